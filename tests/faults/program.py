"""One rank of a job struck by a fault; the arguments select the work, the fault and its place. As in a plain
training script, errors are recorded but end the program."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import os
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable

import mpi_calls
import torch
import torch.distributed as dist
from event_log import Log, shared_memory

PHASES = (
    "before-init", "rendezvous", "mpi-init", "mpi-up", "create-group", "mid", "idle", "end", "destroyed",
)  # fmt: skip
FAULTS = (
    *("none", "sigkill", "sigstop", "slow", "busy", "raise", "return", "exit3", "os-exit"),
    *("memory", "abort", "abort-mpi"),
    # Memory for mpi-gdr's own needs runs out inside an operation.
    *("no-scratch", "no-copy", "no-second-stage"),
    *("stuck", "stuck-exit"),  # a call of MPI never returns; in the second case the program then ends
)
SMALL, LARGE = 1000, 1 << 20  # float32
STRIKE_AT = 5  # round
OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
OPERATIONS += ("barrier", "send_recv", "new_group", "sparse_all_reduce")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", required=True, help="folder for what the ranks see")
    parser.add_argument("--operation", default="all_reduce", choices=OPERATIONS)
    parser.add_argument("--size", default="small", choices=("small", "large"))
    parser.add_argument("--phase", default="mid", choices=PHASES)
    parser.add_argument("--fault", default="none", choices=FAULTS)
    parser.add_argument("--victim", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=8)
    parser.add_argument("--pause", type=float, default=3, help="seconds of a slow rank")
    parser.add_argument("--rounds", type=int, default=10**9, help="collectives of a job that nothing ends")
    parser.add_argument("--intercept", default="", help="library of mpi_calls.py")
    parser.add_argument("--once", action="store_true", help="strike in torchrun's first attempt only")
    return parser.parse_args()


ARGS = arguments()
RANK, SIZE = int(os.environ.get("RANK", os.environ.get("PMI_RANK", "0"))), 0
ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
log = Log(ARGS.events, RANK, ATTEMPT)
STRUCK = ATTEMPT == "0" or not ARGS.once
IS_VICTIM = ARGS.victim == RANK and ARGS.fault != "none" and STRUCK
ROUNDS = ARGS.rounds if STRUCK else 400  # an attempt without a fault must end by itself


def exposed() -> list[str]:
    """Parts of this process that others could reach against the promises on security."""
    found = []
    with open("/proc/self/maps") as maps:
        files = {line.split()[0] for line in maps if "/dev/shm/mpich_sh" in line}
    for span in files if os.geteuid() == 0 else ():  # visible to root only
        status = os.stat(f"/proc/self/map_files/{span}")
        if stat.S_IMODE(status.st_mode) != 0o600 or status.st_nlink != 0:
            found.append(f"shared memory {span}: mode {status.st_mode:o}, {status.st_nlink} name(s)")
    # The PMI server's socket is a connected, nameless pair, known to this process only.
    sockets = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    with open("/proc/net/unix") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if f"socket:[{fields[6]}]" in sockets and int(fields[3], 16) & 0x10000:  # it accepts connections
                found.append(f"a listening socket {fields[7:]}")
    for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
        if ctypes.CDLL(None).getenv(name.encode()):
            found.append(f"{name} is left in the environment of programs that this one starts")
    return found


# ---------------------------------------------------------------- faults


def strike() -> None:
    log("strike", fault=ARGS.fault)
    if ARGS.fault == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif ARGS.fault == "sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif ARGS.fault == "os-exit":
        os._exit(3)
    elif ARGS.fault == "slow":
        time.sleep(ARGS.pause)
    elif ARGS.fault == "busy":  # holds the GIL nearly all the time
        until = time.monotonic() + ARGS.pause
        while time.monotonic() < until:
            sum(range(1000))
    elif ARGS.fault == "raise":
        raise ArithmeticError("loss is not finite")
    elif ARGS.fault == "return":
        sys.exit(0)
    elif ARGS.fault == "exit3":
        sys.exit(3)
    elif ARGS.fault == "memory":
        limit_memory(64 << 20)
        torch.ones(1 << 30, dtype=torch.uint8)
    elif ARGS.fault == "abort":
        dist.distributed_c10d._abort_process_group()
        sys.exit(4)
    elif ARGS.fault == "abort-mpi":
        os.abort()
    elif ARGS.fault == "no-scratch":  # Rabenseifner's needs half the tensor on one of three ranks
        tensor = torch.ones(8 * LARGE)
        limit_memory(4 << 20)
        dist.all_reduce(tensor)
    elif ARGS.fault == "no-copy":
        column = torch.ones(4 * LARGE, 2)[:, 0]
        limit_memory(4 << 20)
        dist.all_reduce(column)
    elif ARGS.fault == "no-second-stage":  # the progress thread needs 72 MiB for all ranks' elements
        room["left"] = 40 << 20
    elif ARGS.fault in ("stuck", "stuck-exit"):
        mpi_calls.hold()
        dist.all_reduce(torch.ones(SMALL), async_op=ARGS.fault == "stuck-exit")
        mpi_calls.wait_until_held()  # on the progress thread
        sys.exit(3)


room: dict[str, int] = {}  # bytes available to an operation from its start


def limit_memory(room: int) -> None:
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))


def strike_inside_mpi_init() -> None:
    """Strikes once this process maps MPI's shared memory; from a child, as Python cannot run here then."""
    victim = os.getpid()
    if os.fork() > 0:
        return
    try:
        while os.getppid() == victim:
            if names := [n for n in shared_memory(victim) if "mpich" in n]:
                log("strike", fault=ARGS.fault, names=names)
                os.kill(victim, signal.SIGSTOP if ARGS.fault == "sigstop" else signal.SIGKILL)
                break
            time.sleep(0.0005)
    finally:
        os._exit(0)


# ---------------------------------------------------------------- what the job does


def operation(name: str, count: int) -> Callable[[int], bool]:
    """Returns round -> whether the result is right. Values depend on the round, so stale data is wrong."""
    mine, other = torch.empty(count), torch.empty(count)
    blocks = torch.empty(SIZE, count)
    total = SIZE * (SIZE - 1) / 2

    def call(round: int) -> bool:
        root, base = round % SIZE, float(round % 1000)
        mine.fill_(base + RANK)
        ranks = (base + torch.arange(SIZE)).reshape(-1, 1)
        if name == "all_reduce":
            dist.all_reduce(mine)
            return bool((mine == SIZE * base + total).all())
        if name == "broadcast":
            dist.broadcast(mine, root)
            return bool((mine == base + root).all())
        if name == "all_gather":
            dist.all_gather_into_tensor(blocks.view(-1), mine)
            return bool((blocks == ranks).all())
        if name == "reduce_scatter":
            blocks.fill_(base + RANK)
            dist.reduce_scatter_tensor(mine, blocks.view(-1))
            return bool((mine == SIZE * base + total).all())
        if name == "all_to_all":
            dist.all_to_all_single(blocks, (base + RANK + torch.zeros(SIZE, count)).contiguous())
            return bool((blocks == ranks).all())
        if name == "gather":
            dist.gather(mine, list(blocks) if root == RANK else None, root)
            return root != RANK or bool((blocks == ranks).all())
        if name == "scatter":
            blocks.copy_(ranks.expand(SIZE, count))
            dist.scatter(mine, list(blocks) if root == RANK else None, root)
            return bool((mine == base + RANK).all())
        if name == "send_recv":  # a ring
            works = [dist.isend(mine, (RANK + 1) % SIZE), dist.irecv(other, (RANK - 1) % SIZE)]
            for work in works:
                work.wait()
            return bool((other == base + (RANK - 1) % SIZE).all())
        if name == "sparse_all_reduce":
            elements = torch.arange(2 * count).reshape(1, -1)
            sparse = torch.sparse_coo_tensor(elements, torch.full((2 * count,), base + RANK), (4 * count,))
            if room:  # enough for this rank's elements, 24 MiB, but not for all ranks'
                limit_memory(room["left"])
            dist.all_reduce(sparse, async_op=True).wait()
            return bool((sparse.to_dense()[: 2 * count] == SIZE * base + total).all())
        if name == "new_group":
            group = dist.new_group()
            dist.all_reduce(mine, group=group)
            dist.destroy_process_group(group)
            return bool((mine == SIZE * base + total).all())
        dist.barrier()
        return True

    return call


def work_until_struck(call: Callable[[int], bool]) -> None:
    """Runs rounds. Outside faults strike at any time, the program's own between two rounds."""
    from_outside = ARGS.fault in ("sigkill", "sigstop", "os-exit", "abort-mpi")
    if IS_VICTIM and from_outside:
        threading.Timer(0.3, strike).start()
    for number in range(ROUNDS):
        if IS_VICTIM and number == STRIKE_AT and not from_outside:
            log("round", number=number)
            if ARGS.fault == "raise" and ARGS.operation == "all_reduce":  # with this round outstanding
                count = LARGE if ARGS.size == "large" else SMALL
                dist.all_reduce(torch.full((count,), float(number + RANK)), async_op=True)
            strike()
        before = time.monotonic()
        right = call(number)
        if not right:
            log("wrong", number=number)
        if number % 100 == 0 or time.monotonic() > before + 0.5:
            log("round", number=number)


def main() -> None:
    global SIZE
    if IS_VICTIM and ARGS.phase == "before-init":
        strike()
    log("call", what="init_process_group")
    if IS_VICTIM and ARGS.phase == "mpi-init":
        strike_inside_mpi_init()
    timeout = datetime.timedelta(seconds=ARGS.deadline)
    if IS_VICTIM and ARGS.phase == "rendezvous":  # after torch's store, before ours
        next(dist.rendezvous("env://", timeout=timeout))
        strike()
    if ARGS.intercept:
        mpi_calls.load(ARGS.intercept)
    if IS_VICTIM and ARGS.phase == "mpi-up":  # after MPI_Init, before the ranks' meeting
        mpi_calls.on_query_thread(lambda: strike())
    dist.init_process_group("mpi-gdr", timeout=timeout)
    SIZE = dist.get_world_size()
    call = operation(ARGS.operation, LARGE if ARGS.size == "large" else SMALL)
    if not all(call(number) for number in range(SIZE)):
        log("wrong", number=-1)
    log("ready", names=shared_memory(), exposed=exposed())
    if ARGS.phase == "create-group":
        if IS_VICTIM:
            mpi_calls.on_comm_create_group(lambda: strike())
        log("call", what="new_group")
        dist.new_group(timeout=timeout)
    elif ARGS.phase == "mid":
        work_until_struck(call)
    elif ARGS.phase == "idle":
        if IS_VICTIM:
            time.sleep(0.5)
            strike()
        time.sleep(ARGS.pause)
        log("call", what=ARGS.operation)
        if not call(7):
            log("wrong", number=7)
    if IS_VICTIM and ARGS.phase == "end":
        strike()
    log("call", what="destroy_process_group")
    dist.destroy_process_group()
    if IS_VICTIM and ARGS.phase == "destroyed":
        strike()


resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
if ARGS.fault.startswith("no-"):  # one heap: others reserve addresses that the limit counts as used
    M_ARENA_MAX = -8
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
log("start", pid=os.getpid())
try:
    main()
    log("end")
except Exception as error:
    log("error", kind=type(error).__name__, text=str(error))
    raise
