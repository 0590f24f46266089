"""examples/pipeline.py: one process's gradients, and the bubbles of theory."""

import pytest
from support import labs


@pytest.mark.parametrize("ranks, microbatches", [(2, 4), pytest.param(4, 8, marks=pytest.mark.full)])
def test_gradients_and_bubbles(tmp_path, ranks, microbatches):
    arguments = [f"--microbatches={microbatches}", "--steps=1", "--block-size=8", "--channels=16"]
    _, result = labs.run("pipeline.py", tmp_path, *arguments, ranks=ranks)
    table = result["table"]
    assert set(table) == {"1F1B", "zero bubble", "DualPipeV"}
    for row in table.values():
        assert row["gradient_difference"] < 1e-12 and row["ms"] > 0 and 0 < row["bubbles"] < 1
    assert table["1F1B"]["ideal"] == pytest.approx((ranks - 1) / (microbatches + ranks - 1))
    assert table["1F1B"]["held"] == 2 * ranks
    assert 0 < table["zero bubble"]["ideal"] < table["1F1B"]["ideal"]
    assert 0 < table["DualPipeV"]["ideal"] < table["1F1B"]["ideal"]
    assert labs.is_picture(tmp_path / "pipeline.png")
