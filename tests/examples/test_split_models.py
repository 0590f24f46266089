"""examples/moe.py and spatial.py: experts, or tiles, on several ranks match one process."""

import pytest
from support import labs
from support.cases import cases

EXAMPLES = {
    "moe": ("--experts=6", "--iterations=4", "--batch-size=6", "--block-size=16", "--channels=16"),
    "spatial": ("--size=32", "--channels=4", "--iterations=3"),
}


def run(name, out, ranks):
    """The result; checks the gradients."""
    _, result = labs.run(f"{name}.py", out, *EXAMPLES[name], ranks=ranks)
    assert result["ranks"] == ranks and labs.is_picture(out / f"{name}.png")
    if name == "moe":
        assert result["gradient_difference"] < 1e-12
        assert len(result["losses"]) == 4 and result["losses"][3] < result["losses"][0]
    else:
        assert result["difference"] < 1e-12 and len(result["losses"]) == 3
        # Halos matter at this size.
        assert (result["error_without_halos"] > 1e-3) == (ranks > 1)
    return result


@pytest.mark.parametrize("name", EXAMPLES)
def test_gradients(tmp_path, name):
    run(name, tmp_path, ranks=2)


# 1 x 2 and 2 x 2 tiles; corners matter for the latter.
@pytest.mark.full
@cases("name, sizes, tolerance", ("moe", (2, 3), 1e-4), ("spatial", (2, 4), 1e-5))
def test_losses(tmp_path, name, sizes, tolerance):
    alone = run(name, tmp_path, ranks=1)
    for ranks in sizes:
        assert run(name, tmp_path, ranks)["losses"] == pytest.approx(alone["losses"], abs=tolerance)
