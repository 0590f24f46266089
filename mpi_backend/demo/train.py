"""A rank of the demo: data-parallel training with DDP, as in any program of torch.distributed."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from .data import VOCAB_SIZE, Text, load, train_batch, val_batches
from .model import GPT, GPTConfig
from .report import Result, bits, equal_bits, table

SEQUENCES = 4  # per step and rank
CONFIG = GPTConfig(VOCAB_SIZE)
SEED = 1337
REPORT_EVERY = 5  # steps
DEADLINE = timedelta(minutes=2)  # of a call: a demo that hangs must report it soon


def run_rank(options: argparse.Namespace) -> int:
    """Trains; rank 0 prints. Exit status: 1 if the ranks end with different bits."""
    if "OMP_NUM_THREADS" not in os.environ:  # else every rank starts a thread per core
        neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // neighbours))
    backend = options.backend or "mpi-gdr"
    dist.init_process_group(backend, timeout=DEADLINE)
    text = load(4_000_000)
    torch.manual_seed(SEED)
    gpt = GPT(CONFIG)
    step_s, loss = train(gpt, text, options.steps)
    result: Result = {
        "backend": backend,
        "step_s": step_s,
        "sum_s": gradient_sum(gpt),
        "loss": loss,
        "val_loss": validate(gpt, text),
        "digests": gather(gpt.digest()),
    }
    if dist.get_rank() == 0:
        print(json.dumps(result) if options.json else "\n".join([*table([result]), bits(result)]), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    status = 0 if equal_bits(result) else 1
    if backend == "gloo":
        # DDP keeps Gloo's threads alive; one that frees a tensor while Python shuts down aborts the process.
        sys.stdout.flush()
        os._exit(status)
    return status


def train(gpt: GPT, text: Text, steps: int) -> tuple[float, float]:
    """Seconds of a step (median) and the loss (mean over the last steps); rank 0 prints progress."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(gpt)
    optimizer = torch.optim.AdamW(gpt.parameter_groups(weight_decay=0.1), betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    seconds, losses = [], []
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        x, y = train_batch(text.train, seed=SEED, iteration=step, batch_size=SEQUENCES * ranks,
                           block_size=CONFIG.block_size, rank=rank, ranks=ranks)  # fmt: skip
        loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.detach())
        if step % REPORT_EVERY == 0 or step == steps:
            shown = mean(torch.stack(losses[-REPORT_EVERY:]))
            if rank == 0:
                print(f"step {step} of {steps}: loss {shown:.3f}, {1e3 * seconds[-1]:.0f} ms", flush=True)
    return statistics.median(seconds), shown


def gradient_sum(gpt: GPT) -> float:
    """Seconds (median) of an all_reduce as large as all gradients, without computation."""
    gradients = torch.zeros(sum(parameter.numel() for parameter in gpt.parameters()))
    seconds = []
    for _ in range(20):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(gradients)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def validate(gpt: GPT, text: Text) -> float:
    """Loss on held-out text, mean over all ranks."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    batches = val_batches(text.val, count=4, batch_size=SEQUENCES * ranks, block_size=CONFIG.block_size,
                          rank=rank, ranks=ranks)  # fmt: skip
    with torch.no_grad():
        return mean(torch.stack([gpt(x, y) for x, y in batches]))


def mean(losses: Tensor) -> float:
    """The mean over all ranks' losses. Collective."""
    total = losses.mean()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def gather(digest: bytes) -> list[str]:
    """All ranks' digests in hexadecimal. Collective."""
    mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return [bytes(part.tolist()).hex() for part in parts]
