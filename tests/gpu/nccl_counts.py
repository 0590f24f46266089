"""Prints the rows of NCCL of `make gpu-counts`; fails if a count has grown (ranks/test_nccl_counts.py)."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import simgpu_build
from test_gpu import EIGHT, GPUS, NCCL, TWO_NODES, run

COLUMNS = "NCCL, calls | groups | kernels | copies | events and flags | waits | blocks of device memory"

if __name__ == "__main__":
    simgpu_build.compiled()
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes")
        os.environ["SPMD_NOTES"] = str(notes)
        for size, nodes in ((2, {}), (4, TWO_NODES)):
            run(Path(folder, str(size)), size, "-k", "nccl_counts", **GPUS[EIGHT], **NCCL, **nodes)
        rows = [line.expandtabs(1) for line in notes.read_text().splitlines() if line.startswith("|")]
    print("\nA collective of 1000 float32 by NCCL: the least of several calls, of the rank that has most.\n")
    print(f"| collective | {COLUMNS} |\n|---|{'--:|' * 7}")
    print("\n".join(rows))
