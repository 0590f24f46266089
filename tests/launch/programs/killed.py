"""Rank 1 is killed during a collective, under a launcher."""

import os
import signal
import threading

import torch
import torch.distributed as dist

dist.init_process_group("mpi-gdr")
tensor = torch.ones(1 << 16)
dist.all_reduce(tensor)
if dist.get_rank() == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    dist.all_reduce(tensor)
    tensor.fill_(1)
