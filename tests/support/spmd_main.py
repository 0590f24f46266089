"""One rank of the SPMD tests: `spmd_main.py [--spawn N] <pytest arguments>`, under a launcher.

Each rank runs pytest over the same files in the same order. Writes to SPMD_REPORTS for support/spmd.py:
rank<r>.log (all output), rank<r>.jsonl (a line per event) and rank<r>.stacks (all threads' stacks if a test
hangs).
"""

import gc
import os
import sys
from pathlib import Path


def one_rank(arguments):
    gc.disable()
    import torch.distributed  # noqa: F401  (fills in RANK and the like, but not for a job of one rank)

    reports = Path(os.environ["SPMD_REPORTS"])
    log = os.open(reports / f"rank{os.environ.get('RANK', '0')}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    import pytest

    gc.enable()
    gc.freeze()  # keeps collections from scanning all of torch: an eighth of a rank's work
    sys.path.insert(0, str(Path(__file__).parents[1]))
    # unraisableexception collects five times at the end.
    plugins = ("cacheprovider", "faulthandler", "xdist", "unraisableexception")
    without = [option for plugin in plugins for option in ("-p", f"no:{plugin}")]
    status = pytest.main(["-q", "--tb=short", *without, "-p", "support.spmd_plugin", *arguments])
    sys.stdout.flush()
    sys.stderr.flush()
    return int(status)


def spawned(rank, size, port, arguments):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.exit(one_rank(arguments))


if __name__ == "__main__":
    if sys.argv[1] == "--spawn":
        sys.path.insert(0, str(Path(__file__).parents[1]))
        import torch.multiprocessing

        from support.processes import free_port

        size = int(sys.argv[2])
        torch.multiprocessing.spawn(spawned, (size, free_port(), sys.argv[3:]), size)
    else:
        sys.exit(one_rank(sys.argv[1:]))
