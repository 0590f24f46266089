"""Soak: random collectives over overlapping groups from several threads; checks results and memory growth.

    mpi-gdr run -n 3 tests/soak/soak.py [-n 1000000] [--threads 4] [--seed S]

Each thread has its own groups: one of all ranks, the others random, overlapping subsets. All ranks draw the
same operations for thread t, so the order inside a group is the same; threads and ranks run ahead of each
other as far as operations allow. A thread has up to WINDOW pending asynchronous operations, which ranks wait
for in different orders.

At the first wrong result or error, prints the rank, thread and step and exits with 1. Also exits with 1 if a
rank's memory grows after the warm-up: its maximum of allocated memory by more than --growth, or that of
resident memory by more than three times --growth. Resident memory has the higher limit because it grows until
the free blocks between the groups' cached plans are large enough for the random sizes.
"""

import argparse
import ctypes
import datetime
import os
import random
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.extend(map(str, Path(__file__).parents[:2]))
from operations import OPERATIONS, Step

WINDOW = 8
GROUPS = 4  # per thread
SAMPLE_SECONDS = 1
WARM_UP = 0.2  # fraction of the steps
MIB = 1 << 20


def parse():
    parser = argparse.ArgumentParser(description="Random collectives from several threads, checked.")
    parser.add_argument("-n", type=int, default=1_000_000, help="collectives, all threads together")
    parser.add_argument("--threads", type=int, default=4, metavar="T")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run: same operations, same order")
    parser.add_argument("--growth", type=float, default=48, metavar="MIB", help="allowed after the warm-up")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="of the groups")
    parser.add_argument("--backend", default="mpi-gdr")
    return parser.parse_args()


class Mallinfo2(ctypes.Structure):
    """The result of glibc's mallinfo2(), see mallinfo(3)."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks")
    _fields_ = tuple((name, ctypes.c_size_t) for name in (*_names, "keepcost"))


libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo2


def memory_now() -> tuple[int, int]:
    """(bytes allocated by malloc, bytes resident) of this process.

    Trims malloc first: how much freed memory it keeps depends on thread timing, and is no leak.
    """
    info = libc.mallinfo2()
    libc.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return info.uordblks + info.hblkhd, pages * os.sysconf("SC_PAGE_SIZE")


class Worker:
    """One thread of one rank."""

    def __init__(self, index, steps, seed, groups):
        self.index, self.steps, self.seed = index, steps, seed
        self.groups = groups  # [(members, group)]
        self.done = 0
        self.bytes = 0
        self.counts = Counter()
        self.pending = []
        self.doing = "its first step"
        self.local = random.Random(f"{seed}/{index}/rank {dist.get_rank()}")

    def run(self):
        for number in range(self.steps):
            self.step(number)
            self.done = number + 1
        self.wait_for_pending(0)

    def step(self, number):
        draw = random.Random(f"{self.seed}/{self.index}/{number}")
        members, group = draw.choice(self.groups)
        operation = draw.choice(OPERATIONS)
        if dist.get_rank() not in members:
            return
        step = Step(group, members.index(dist.get_rank()), len(members), draw, number)
        step.description = self.doing = (
            f"thread {self.index} step {number}: {operation.__name__} of {step.bytes} bytes {step.dtype} "
            f"over ranks {members}, {'asynchronous' if step.asynchronous else 'synchronous'}"
        )
        self.pending.append((self.doing, *operation(step)))
        self.counts[operation.__name__] += 1
        self.bytes += step.bytes
        self.wait_for_pending(WINDOW - 1 if step.asynchronous else self.local.randrange(WINDOW))

    def wait_for_pending(self, left):
        while len(self.pending) > left:
            self.doing, works, check = self.pending.pop(self.local.randrange(len(self.pending)))
            for work in works:
                if work is not None:
                    work.wait()
            check()


def make_groups(seed, threads):
    """Each thread's groups, created in the same order on all ranks."""
    draw = random.Random(f"{seed}/groups")
    size = dist.get_world_size()
    result = []
    for _ in range(threads):
        members = [list(range(size))]
        while len(members) < GROUPS:
            members.append(sorted(draw.sample(range(size), draw.randint(min(2, size), size))))
        result.append([(m, dist.new_group(m)) for m in members])
    return result


class Memory:
    """The maxima of (in use, resident) on this rank, in bytes, during warm-up and after it."""

    def __init__(self):
        self.before = self.after = (0, 0)

    def sample(self, warm):
        now = memory_now()
        if warm:
            self.after = tuple(map(max, self.after, now))
        else:
            self.before = tuple(map(max, self.before, now))
        return now

    def grown(self):
        """Growth of each in MiB."""
        return [(after - before) / MIB for before, after in zip(self.before, self.after, strict=True)]

    def __str__(self):
        (in_use, resident), (later_in_use, later_resident) = self.before, self.after
        return (
            f"in use {in_use / MIB:.0f} MiB at most during warm-up and {later_in_use / MIB:.0f} MiB later, "
            f"resident {resident / MIB:.0f} and {later_resident / MIB:.0f} MiB"
        )


def repeat(arguments):
    return f"repeat with: -n {arguments.n} --threads {arguments.threads} --seed {arguments.seed}"


def guarded(worker, rank, arguments):
    try:
        worker.run()
    except BaseException:
        text = f"soak: rank {rank}: {worker.doing}\n{traceback.format_exc()}{repeat(arguments)}"
        print(text, file=sys.stderr, flush=True)
        os._exit(1)  # other threads and ranks may wait for this one


def main():
    arguments = parse()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)  # torch has newer names for some
    dist.init_process_group(arguments.backend, timeout=datetime.timedelta(seconds=arguments.timeout))
    rank = dist.get_rank()
    if arguments.seed is None:
        seed = [random.SystemRandom().randrange(1 << 31)]
        dist.broadcast_object_list(seed)
        arguments.seed = seed[0]
    steps = -(-arguments.n // arguments.threads)
    groups = make_groups(arguments.seed, arguments.threads)
    workers = [Worker(t, steps, arguments.seed, groups[t]) for t in range(arguments.threads)]
    if rank == 0:
        ranks = f"{dist.get_world_size()} ranks, {len(workers)} threads, seed {arguments.seed}"
        print(f"soak: {steps * len(workers)} collectives on {ranks}", flush=True)
    started = time.monotonic()
    given = [(worker, rank, arguments) for worker in workers]
    threads = [threading.Thread(target=guarded, args=args, daemon=True) for args in given]
    for thread in threads:
        thread.start()
    memory = watch(threads, workers, steps, rank, started)
    elapsed = time.monotonic() - started
    dist.barrier()
    report(rank, workers, memory, elapsed)
    in_use, resident = memory.grown()
    if in_use > arguments.growth or resident > 3 * arguments.growth:
        allowed = f"{arguments.growth:g} and {3 * arguments.growth:g} MiB more; {repeat(arguments)}"
        text = f"soak: rank {rank}: memory grew after the warm-up: {memory}; allowed are {allowed}"
        print(text, file=sys.stderr, flush=True)
        os._exit(1)
    dist.barrier()
    dist.destroy_process_group()


def watch(threads, workers, steps, rank, started):
    """Samples memory and shows progress until all threads have ended."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    memory = Memory()
    memory.sample(False)  # a short run may end before the next sample
    total = steps * len(workers)
    console = Console(stderr=True)
    columns = [TextColumn("soak"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    columns.append(TextColumn("{task.fields[memory]:.0f} MiB"))
    next_line, next_sample = started + 30, started
    with Progress(*columns, console=console, disable=rank != 0 or not console.is_terminal) as progress:
        task = progress.add_task("soak", total=total, memory=0)
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.5 / len(threads))
            done = sum(worker.done for worker in workers)
            if time.monotonic() < next_sample:
                continue
            next_sample = time.monotonic() + SAMPLE_SECONDS
            now = memory.sample(done >= WARM_UP * total)
            progress.update(task, completed=done, memory=now[1] / MIB)
            if rank == 0 and not console.is_terminal and time.monotonic() > next_line:
                next_line += 30
                print(f"soak: {done} of {total}, {now[0] / MIB:.0f} MiB in use", flush=True)
    memory.sample(True)
    return memory


def report(rank, workers, memory, elapsed):
    done = sum((worker.counts for worker in workers), Counter())
    volume = sum(worker.bytes for worker in workers)
    what = f"{done.total()} collectives of {volume / MIB:.0f} MiB in {elapsed:.1f} s"
    print(f"soak: rank {rank}: took part in {what}, all results right; {memory}", flush=True)
    if rank == 0:
        print("soak: " + ", ".join(f"{name} {count}" for name, count in sorted(done.items())), flush=True)


if __name__ == "__main__":
    main()
