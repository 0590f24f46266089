"""The order of collectives among streams' kernels; only the device waits."""

import os
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.gpu import (
    DEVICE,
    HAS_STREAMS,
    allocate_and_free,
    check,
    idle,
    late,
    note,
    sleep,
    stream_count,
    streams,
    synchronize,
    use,
)
from support.works import wait_all

with_128_queues = pytest.mark.skipif(
    os.environ.get("FAKECUDA_QUEUES") != "128", reason="simulated only, on a GPU with 128 hardware queues"
)
BLOCKED = 0.3  # seconds of the host, behind a kernel of twice that time


def full(count, value):
    return torch.full((count,), float(value))


@pytest.mark.parametrize("count", [1, 5000, 2**20 + 3])
@pytest.mark.parametrize("is_async", [False, True])
def test_inputs_that_come_late_and_outputs_used_at_once(rank, size, count, is_async):
    tensor = late(count, rank)
    work = dist.all_reduce(tensor, async_op=is_async)
    wait_all(work)
    doubled = tensor * 2
    tensor.fill_(-1)  # only now may the memory be written again
    check(doubled, full(count, 2 * sum(range(size))))
    blocks = torch.zeros(size * count, device=DEVICE)
    work = dist.all_gather_into_tensor(blocks, late(count, rank), async_op=is_async)
    wait_all(work)
    check(blocks + 1, torch.arange(1.0, size + 1).repeat_interleave(count))


def test_outputs_used_on_another_stream(rank, size):
    first, second = streams(2)
    for count in (7, 100_000):
        with use(first):
            tensor = late(count, rank + 1)
            work = dist.all_reduce(tensor, async_op=True)
        with use(second):
            work.wait()
            result = tensor + 1
            if HAS_STREAMS:
                tensor.record_stream(second)
        synchronize()
        check(result, full(count, size * (size + 1) / 2 + 1))


@pytest.mark.ranks(2)
def test_messages_behind_slow_kernels(rank, size):
    received = torch.zeros(70_000, device=DEVICE)
    wait_all(dist.isend(late(70_000, rank), (rank + 1) % size), dist.irecv(received, (rank - 1) % size))
    check(received * 2, full(70_000, 2 * ((rank - 1) % size)))


def test_many_streams_and_groups(rank, size):
    groups, queues = [dist.new_group() for _ in range(4)], streams(4)
    kept = []
    for i in range(32):
        with use(queues[i % 4]):
            tensor = late(1000 + i, i + rank, milliseconds=1)
            wait_all(dist.all_reduce(tensor, group=groups[(i + i // 4) % 4], async_op=True))
            kept.append(tensor + 1)
    synchronize()
    for i, tensor in enumerate(kept):
        check(tensor, full(1000 + i, i * size + sum(range(size)) + 1))
    for group in groups:
        dist.destroy_process_group(group)


@pytest.mark.simulated
def test_twelve_groups_share_our_streams(rank, size):
    before = stream_count()
    groups = [dist.new_group() for _ in range(12)]
    totals, received, works = [], [], []
    for i, group in enumerate(groups):
        totals.append(late(60_000, rank + i, milliseconds=1))
        works.append(dist.all_reduce(totals[-1], group=group, async_op=True))
        received.append(torch.zeros(1000, device=DEVICE))
        works.append(dist.isend(late(1000, rank + i, 1), (rank + 1) % size, group=group))
        works.append(dist.irecv(received[-1], (rank - 1) % size, group=group))
    wait_all(*reversed(works))
    for i in range(12):
        check(totals[i], full(60_000, i * size + sum(range(size))))
        check(received[i], full(1000, (rank - 1) % size + i))
    assert stream_count() - before <= 25  # docs/gpu.md
    for group in groups:
        dist.destroy_process_group(group)


def test_hundreds_in_flight(rank, size):
    sleep(50)
    tensors = [torch.full((1 + 37 * (i % 40),), float(rank + i), device=DEVICE) for i in range(300)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    wait_all(*reversed(works))
    for i, tensor in enumerate(tensors):
        check(tensor, full(len(tensor), i * size + sum(range(size))))


def test_allocating_and_synchronising_in_between(rank, size):
    """Calls that wait for the whole device, between the issue of operations and their completion."""
    works, tensors = [], []
    for i in range(40):
        tensors.append(late(20_000, rank + i, milliseconds=1))
        works.append(dist.all_reduce(tensors[-1], async_op=True))
        if i % 3 == 0:
            allocate_and_free(32 + i)
        if i % 8 == 7:
            synchronize()
    wait_all(*works)
    for i, tensor in enumerate(tensors):
        check(tensor, full(20_000, i * size + sum(range(size))))


@pytest.mark.streams
@pytest.mark.parametrize("how", ["work", "future"])
def test_waiting_does_not_block_the_host(rank, size, how):
    tensor = torch.ones(1000, device=DEVICE)
    dist.all_reduce(tensor)
    sleep(1)
    synchronize()
    dist.barrier()
    sleep(600)
    begin = time.perf_counter()
    work = dist.all_reduce(tensor, async_op=True)
    (work if how == "work" else work.get_future()).wait()
    seconds = time.perf_counter() - begin
    over = idle()
    check(tensor, full(1000, size * size))
    note(f"host time of all_reduce and {how}.wait() behind a kernel of 600 ms", f"{1e3 * seconds:.2f} ms")
    assert seconds < BLOCKED
    assert not over, "the kernel in front was over too early to tell"


@pytest.mark.streams
def test_another_thread_frees_memory_while_messages_move(rank, size):
    """The thread waits for the device with a lock that every CUDA call takes."""
    over = threading.Event()

    def allocate():
        while not over.is_set():
            allocate_and_free()

    dist.all_reduce(torch.zeros(1, device=DEVICE))
    other = threading.Thread(target=allocate)
    other.start()
    try:
        for i in range(5):
            received = torch.zeros(300_000, device=DEVICE)
            sent = late(300_000, i, 1)
            wait_all(dist.irecv(received, (rank - 1) % size), dist.isend(sent, (rank + 1) % size))
            dist.all_reduce(received)
            check(received, full(300_000, i * size))
    finally:
        over.set()
        other.join()


@pytest.mark.simulated
@pytest.mark.skipif("SPMD_LOGGED" not in os.environ, reason="simulated only, on a GPU whose log is looked at")
def test_the_log_shows_what_the_ranks_found():
    for group in (None, dist.new_group()):
        dist.all_reduce(torch.zeros(1, device=DEVICE), group=group)
    log = Path(os.environ["MPI_GDR_DEBUG_FILE"].replace("%p", str(os.getpid()))).read_text()
    expected = os.environ["SPMD_LOGGED"]
    assert expected in log
    if expected.startswith("WARN INIT "):  # once a process
        assert log.count("WARN INIT ") == 1


def collectives_beside_messages(rank, size, waiting):
    """On `waiting` streams the program waits for messages that are sent only after collectives."""
    dist.all_reduce(torch.zeros(1, device=DEVICE))
    received = []
    for _ in range(waiting):
        with use(*streams(1)):
            received.append(torch.zeros(10, device=DEVICE))
            dist.irecv(received[-1], (rank - 1) % size).wait()
    for group in (None, dist.new_group()):
        tensor = torch.full((5000,), float(rank), device=DEVICE)
        dist.all_reduce(tensor, group=group)
        check(tensor, full(5000, sum(range(size))))
    for i in range(waiting):
        dist.isend(full(10, i), (rank + 1) % size).wait()  # a host tensor, on no stream
    synchronize()
    for i, tensor in enumerate(received):
        check(tensor, full(10, i))


@pytest.mark.simulated
@with_128_queues
def test_no_stream_of_the_program_is_one_of_ours(rank, size):
    """Each stream of torch's pool waits for its own message."""
    collectives_beside_messages(rank, size, 64)


@pytest.mark.simulated
@with_128_queues
def test_later_groups_get_no_blocked_stream_of_a_failed_one(rank, size):
    dist.all_reduce(torch.zeros(1, device=DEVICE), group=(failed := dist.new_group()))
    synchronize()
    dist.barrier(group=failed)
    (side,) = streams(1)
    if rank == 0:
        with use(side):
            sleep(5000)
            dist.all_reduce(torch.zeros(1, device=DEVICE), group=failed, async_op=True).get_future()
            failed._get_backend(DEVICE).abort()
    dist.barrier()
    if rank > 0:
        failed._get_backend(DEVICE).abort()
    tensor = torch.full((1000,), float(rank), device=DEVICE)
    dist.all_reduce(tensor, group=(later := dist.new_group()), async_op=True).get_future().wait()
    check(tensor, full(1000, sum(range(size))))
    assert rank > 0 or not side.query()
    synchronize()
    for group in (failed, later):
        dist.destroy_process_group(group)


@pytest.mark.simulated
@pytest.mark.skipif(
    "SPMD_FEW_STREAMS" not in os.environ or "FAKECUDA_QUEUES" in os.environ,
    reason="simulated only, with as many hardware queues as CUDA is asked for, and no more streams",
)
def test_hardware_queues_are_for_more_streams_than_cuda_s_eight(rank, size):
    collectives_beside_messages(rank, size, 12)
