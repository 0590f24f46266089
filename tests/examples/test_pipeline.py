"""examples/pipeline.py: one process's gradients, and the bubbles of theory."""

import pytest
from support import labs


def check(out, ranks, microbatches):
    arguments = [f"--microbatches={microbatches}", "--steps=1", "--block-size=8", "--channels=16"]
    _, result = labs.run("pipeline.py", out, *arguments, ranks=ranks)
    table = result["table"]
    assert set(table) == {"1F1B", "zero bubble", "DualPipeV"}
    for row in table.values():
        assert row["gradient_difference"] < 1e-12 and row["ms"] > 0 and 0 < row["bubbles"] < 1
    assert table["1F1B"]["ideal"] == pytest.approx((ranks - 1) / (microbatches + ranks - 1))
    assert table["1F1B"]["held"] == 2 * ranks
    assert 0 < table["zero bubble"]["ideal"] < table["1F1B"]["ideal"]
    assert 0 < table["DualPipeV"]["ideal"] < table["1F1B"]["ideal"]
    assert labs.is_picture(out / "pipeline.png")


def test_two_ranks(tmp_path):
    check(tmp_path, ranks=2, microbatches=4)


@pytest.mark.full
def test_four_ranks(tmp_path):
    check(tmp_path, ranks=4, microbatches=8)
