"""A short soak, and its detection of faults. In full: `make soak`."""

import re
import sys
from pathlib import Path

import pytest
from support import processes

SOAK = Path(__file__).parent / "soak.py"


def soak(size, *arguments):
    return processes.run([*processes.MPI_GDR_RUN, "-n", str(size), str(SOAK), *arguments], timeout=300)


def test_short():
    """A new seed each time; a failure prints how to repeat it."""
    output = soak(3, "-n", "6000").expect()
    assert re.search(r"soak: 6000 collectives on 3 ranks, 4 threads, seed \d+", output)
    # Two ranks may share a line, because print() writes its end separately.
    assert len(re.findall(r"soak: rank \d: .*? all results right", output)) == 3, output
    sys.path.insert(0, str(SOAK.parent))
    from operations import OPERATIONS

    assert all(re.search(rf"\b{operation.__name__} \d", output) for operation in OPERATIONS), output


FAULTS = {
    # The last element of one result on one rank.
    "result": (
        "a[0][-1:].add_(dist.get_rank())",
        r"rank 1: thread \d step \d+: broadcast of (.*\n)+?.*WrongResult.*: 1 of \d+ elements are wrong",
    ),
    # A leak of 1 MiB per call.
    "memory": (
        "kept.append(torch.ones(1 << 18))",
        r"memory grew after the warm-up: in use .* allowed are 48 and 144 MiB more; repeat with: .* --seed 1",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_result_is_found(tmp_path, fault):
    body, message = FAULTS[fault]
    program = tmp_path / "faulty.py"
    program.write_text(f"""
import sys, types
sys.path.insert(0, {str(SOAK.parent)!r})
import torch, soak
from support import collectives
from torch import distributed as dist

def broadcast(*a, **k):
    work = dist.broadcast(*a, **k)
    if work is not None:
        work.wait()
    {body}
    return work

kept = []
collectives.dist = types.SimpleNamespace(**{{**vars(dist), "broadcast": broadcast}})
sys.argv[1:] = ["-n", "3000", "--threads", "2", "--seed", "1"]
soak.main()
""")
    result = processes.run([*processes.MPI_GDR_RUN, "-n", "2", str(program)], timeout=300)
    assert result.status not in (0, None), result.tail()
    assert re.search(message, result.output), result.tail()
