"""Rank 0 waits for a message that rank 1 never sends, and rank 1 for one of rank 0. argv: a folder to say in
that they do."""

import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
dist.init_process_group("mpi-gdr")
dist.barrier()
work = dist.irecv(torch.empty(1), 1 - dist.get_rank())
(Path(sys.argv[1]) / f"ready{dist.get_rank()}").touch()
work.wait()
