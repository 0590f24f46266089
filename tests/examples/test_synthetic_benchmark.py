"""examples/synthetic_benchmark.py prints Horovod's lines and trains as one process. Does not check rates."""

import re
import sys

import pytest
import torch
import torch.nn.functional as F
from support import labs, processes

# At 32 pixels the last batch norm has two values per channel, and rounding decides the losses.
SMALL = ["--image-size=64", "--batch-size=2", "--num-warmup-batches=1", "--num-batches-per-iter=1"]
SMALL += ["--num-iters=2", "--no-cuda"]
NUMBER = r"\d+\.\d"
LINES = [
    "Model: resnet18", "Batch size: 2", "Number of CPUs: 2", r"Running warmup\.\.\.",
    r"Running benchmark\.\.\.",
    f"Iter #0: {NUMBER} img/sec per CPU",
    f"Iter #1: {NUMBER} img/sec per CPU",
    rf"Img/sec per CPU: {NUMBER} \+-{NUMBER}",
    rf"Total img/sec on 2 CPU\(s\): {NUMBER} \+-{NUMBER}",
    rf"One CPU alone: {NUMBER} img/sec; 2 CPU\(s\) are \d+\.\d\d times as fast, \d+\.\d % of ideal",
]  # fmt: skip


def losses_of_one_process(steps: int, ranks: int = 2) -> list[float]:
    """The same batches on one process: the mean of the ranks' losses and gradients."""
    sys.path.append(str(labs.EXAMPLES))
    import resnet

    torch.manual_seed(0)
    model = resnet.MODELS["resnet18"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * ranks)
    batches = []
    for rank in range(ranks):
        torch.manual_seed(1 + rank)
        batches.append((torch.randn(2, 3, 64, 64), torch.randint(1000, (2,))))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        # Separately: each rank's batch norm sees only its own images.
        loss = sum(F.cross_entropy(model(images), labels) for images, labels in batches) / ranks
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_lines_and_losses(tmp_path):
    output, result = labs.run("synthetic_benchmark.py", tmp_path, *SMALL)
    assert re.search("\n" + "\n".join(LINES) + "\n", output), output
    assert result["losses"] == pytest.approx(losses_of_one_process(steps=3), rel=1e-4)
    assert result["losses"][2] < result["losses"][0] - 1
    assert result["scaling"] > 0
    assert labs.is_picture(tmp_path / "throughput.png")


@pytest.mark.full
def test_losses_are_those_of_gloo(tmp_path):
    def losses(*arguments):
        return labs.run("synthetic_benchmark.py", tmp_path, *SMALL, *arguments)[1]["losses"]

    exact, half = losses(), losses("--fp16-allreduce")
    assert exact == pytest.approx(losses("--backend=gloo"), rel=1e-6)
    # After one step; later steps amplify the rounding.
    assert half[:2] == pytest.approx(exact[:2], rel=1e-2) and half != exact


@pytest.mark.full
def test_a_model_that_does_not_exist():
    program = labs.EXAMPLES / "synthetic_benchmark.py"
    output = processes.run([sys.executable, program, "--model=resnet19", "--no-cuda"]).expect(2)
    assert "--model resnet19: expected one of" in output
