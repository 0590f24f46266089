"""examples/spatial.py: tiles give the output, gradients and losses of one process."""

import pytest
from support import labs


def run(out, ranks):
    _, result = labs.run("spatial.py", out, "--size=32", "--channels=4", "--iterations=3", ranks=ranks)
    assert result["ranks"] == ranks and len(result["losses"]) == 3 and result["difference"] < 1e-12
    assert labs.is_picture(out / "spatial.png")
    return result


def test_gradients(tmp_path):
    assert run(tmp_path, ranks=2)["error_without_halos"] > 1e-3  # halos matter at this size


@pytest.mark.full
def test_losses(tmp_path):
    alone = run(tmp_path, ranks=1)
    assert alone["error_without_halos"] == 0
    for ranks in (2, 4):  # 1 x 2 and 2 x 2 tiles; corners matter for the latter
        assert run(tmp_path, ranks)["losses"] == pytest.approx(alone["losses"], abs=1e-5)
