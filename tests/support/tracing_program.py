"""A job of two ranks under torch's profiler and MPI_GDR_TRACE, for tests/launch/test_tracing.py.

    tracing_program.py FOLDER

Each rank writes to FOLDER its profilers' events (<kind><rank>.json, exported: <kind>_trace<rank>.json), its
flight log (flight<rank>) and SIGUSR2's trace (signal<rank>.json).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager, _get_default_store
from torch.profiler import ProfilerActivity, profile, record_function

import mpi_backend

folder = Path(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("mpi-gdr")
rank, store = dist.get_rank(), _get_default_store()
pair = dist.new_group([0, 1], group_desc="the pair")
tensors = {n: torch.ones(n) for n in (16, 1000, 300_000)}


def observe(**options):
    return profile(activities=[ProfilerActivity.CPU], **options)


def events_of(prof):
    """KinetoEvent's fields, of which FunctionEvent lacks some."""
    return [
        {"name": e.name(), "is_async": e.is_async(), "shapes": e.shapes(), "duration": e.duration_ns(),
         "crosses": e.start_thread_id() != e.end_thread_id()}
        for e in prof.profiler.kineto_results.events()
    ]  # fmt: skip


def exchange():
    """Each kind of call once; the same on both ranks."""
    dist.all_reduce(tensors[1000])
    dist.all_reduce(tensors[300_000].to(torch.bfloat16), group=pair)
    works = [dist.all_reduce(t, async_op=True) for t in tensors.values()]
    for work in works:
        work.wait()
    dist.all_gather_into_tensor(torch.empty(32), tensors[16])
    splits = [10, 6] if rank == 0 else [6, 10]
    dist.all_to_all_single(torch.empty(16), tensors[16], splits, splits)
    if rank == 0:
        dist.send(tensors[1000], 1)
    else:
        dist.recv(tensors[1000], 0)
    with _coalescing_manager(async_ops=True) as block:
        for t in tensors.values():
            dist.all_reduce(t)
    block.wait()
    both = [dist.P2POp(dist.isend, tensors[16], 1 - rank), dist.P2POp(dist.irecv, torch.empty(16), 1 - rank)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    dist.barrier()


def main():
    exchange()  # not observed
    with observe() as plain:
        exchange()
    with observe(record_shapes=True) as shapes:
        exchange()
    (folder / f"plain{rank}.json").write_text(json.dumps(events_of(plain)))
    (folder / f"shapes{rank}.json").write_text(json.dumps(events_of(shapes)))
    averages = {row.key: row.count for row in plain.key_averages()}
    (folder / f"averages{rank}.json").write_text(json.dumps(averages))
    plain.export_chrome_trace(str(folder / f"plain_trace{rank}.json"))
    shapes.export_chrome_trace(str(folder / f"shapes_trace{rank}.json"))

    with observe() as anyone:
        dist.send(tensors[16], 1) if rank == 0 else dist.recv(torch.empty(16))
    anyone.export_chrome_trace(str(folder / f"anyone_trace{rank}.json"))

    # While no thread waits, another thread ends the span, except if the operation is short or that thread
    # gets no processor: repeats until another thread has ended it.
    crossed = False
    while not crossed:
        with observe() as unattended:
            work = dist.all_reduce(tensors[300_000], async_op=True)
            time.sleep(0.05)
        work.wait()
        crossed = any(e["crosses"] for e in events_of(unattended) if e["name"] == "mpi-gdr:all_reduce")
        verdict = torch.tensor([crossed], dtype=torch.int32)
        dist.all_reduce(verdict, op=dist.ReduceOp.MIN)
        crossed = bool(verdict.item())

    # Operations that end under another profiler than they start under: with wait(), a Future, or dropped.
    late = []
    if rank == 0:
        with observe(record_shapes=True) as early:
            works = [dist.all_reduce(t, async_op=True) for t in tensors.values()]
            futures = [works[1].get_future()]
            del works[2]
        with observe() as other:
            store.set("stopped", "1")
            works[0].wait()
            futures[0].wait()
            dist.barrier()
        late = [e for prof in (early, other) for e in events_of(prof)]
    else:
        store.wait(["stopped"])
        for t in tensors.values():
            dist.all_reduce(t)
        dist.barrier()
    (folder / f"late{rank}.json").write_text(json.dumps(late))

    # DDP issues on autograd's threads and waits for Futures; functional collectives wait when read.
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    with observe() as training, record_function("step"):
        model(torch.ones(4, 64)).sum().backward()
        functional.all_reduce(tensors[16], "sum", dist.group.WORLD).sum().item()
    (folder / f"training{rank}.json").write_text(json.dumps(events_of(training)))

    mpi_backend.dump_flight_log(str(folder / f"flight{rank}"))
    trace = Path(os.environ["MPI_GDR_TRACE"]).with_suffix(f".rank{rank}.json")
    os.kill(os.getpid(), signal.SIGUSR2)
    deadline = time.monotonic() + 60
    while json.loads(trace.read_text())["otherData"]["reason"] != "signal" and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.copy(trace, folder / f"signal{rank}.json")
    dist.destroy_process_group()


main()
