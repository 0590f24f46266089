"""Repeats a call in a group that measures: `choices_program.py FOLDER`. Each rank writes the algorithms that
its flight log names, and the group's choices after the first call and at the end."""

import json
import pickle
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import mpi_backend

CALLS = 40
folder = Path(sys.argv[1])
dist.init_process_group("mpi-gdr")
rank = dist.get_rank()
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
data = torch.ones(300_000)
chosen = []
for _ in range(CALLS):
    dist.all_reduce(data)
    data.fill_(1)
    chosen.append(backend.choices())
dump = pickle.loads(Path(mpi_backend.dump_flight_log(folder / f"flight{rank}")).read_bytes())
ran = [entry["algorithm"] for entry in dump["entries"] if entry["name"] == "all_reduce"]
result = {"ran": ran, "first": chosen[0], "last": chosen[-1]}
(folder / f"rank{rank}.json").write_text(json.dumps(result))
dist.destroy_process_group()
