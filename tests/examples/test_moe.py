"""examples/moe.py: distributed experts give the gradients and losses of one process with all of them."""

import pytest
from support import labs

SMALL = ["--experts=6", "--iterations=4", "--batch-size=6", "--block-size=16", "--channels=16"]


def losses(out, ranks):
    _, result = labs.run("moe.py", out, *SMALL, ranks=ranks)
    assert result["ranks"] == ranks and result["gradient_difference"] < 1e-12
    assert len(result["losses"]) == 4 and result["losses"][3] < result["losses"][0]
    assert labs.is_picture(out / "moe.png")
    return result["losses"]


def test_gradients(tmp_path):
    losses(tmp_path, ranks=2)


@pytest.mark.full
def test_losses(tmp_path):
    alone = losses(tmp_path, ranks=1)
    for ranks in (2, 3):
        assert losses(tmp_path, ranks) == pytest.approx(alone, abs=1e-4)
