"""The Work of a device operation: polled, awaited twice and on other threads, with a timeout, as a Future."""

import datetime
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from support.gpu import (
    COUNT,
    DEVICE,
    check,
    check_on_another_stream,
    full,
    idle,
    late,
    sleep,
    streams,
    synchronize,
    use,
)
from support.works import exception_of, in_threads, wait_all

SLOW = 200  # milliseconds of a kernel


def zeros(count=COUNT):
    return torch.zeros(count, device=DEVICE)


def ring(rank, size):
    return (rank + 1) % size, (rank - 1) % size


CALLS = {
    "all_reduce": lambda t, n, r: dist.all_reduce(t, async_op=True),
    "all_reduce, synchronous": lambda t, n, r: dist.all_reduce(t),
    "broadcast": lambda t, n, r: dist.broadcast(t, 0, async_op=True),
    "reduce": lambda t, n, r: dist.reduce(t, 0, async_op=True),
    "all_gather": lambda t, n, r: dist.all_gather([zeros() for _ in range(n)], t, async_op=True),
    "all_gather_into_tensor": lambda t, n, r: dist.all_gather_into_tensor(zeros(n * COUNT), t, async_op=True),
    "reduce_scatter_tensor": lambda t, n, r: dist.reduce_scatter_tensor(zeros(), t.repeat(n), async_op=True),
    "all_to_all_single": lambda t, n, r: dist.all_to_all_single(zeros(n * COUNT), t.repeat(n), async_op=True),
    "gather": lambda t, n, r: dist.gather(
        t, [zeros() for _ in range(n)] if r == 0 else None, 0, async_op=True
    ),
    "scatter": lambda t, n, r: dist.scatter(zeros(), [t] * n if r == 0 else None, 0, async_op=True),
    "not contiguous": lambda t, n, r: dist.all_reduce(t[::2], async_op=True),
    "message": lambda t, n, r: dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, t, (r + 1) % n), dist.P2POp(dist.irecv, zeros(), (r - 1) % n)]
    )[-1],
}  # fmt: skip


@pytest.mark.streams
@pytest.mark.parametrize("what", CALLS)
def test_the_host_is_never_blocked(rank, size, what):
    if what == "message" and size == 1:
        return
    dist.barrier()
    for _ in range(4):  # first allocations and loads may wait, and the machine may be slow
        tensor = torch.ones(COUNT, device=DEVICE)
        synchronize()
        sleep(SLOW)
        work = CALLS[what](tensor, size, rank)
        wait_all(work, work)
        over = torch.tensor(int(idle()))
        synchronize()
        dist.all_reduce(over, dist.ReduceOp.MAX)  # all ranks repeat, or none
        if not over:
            return
    pytest.fail("the kernel in front was over each time, on this rank or another")


def test_polling(rank, size):
    right, left = ring(rank, size)
    for i in range(5):
        tensors = [late(COUNT, rank + i, 5), zeros()]
        works = [dist.all_reduce(tensors[0], async_op=True)]
        if size > 1:
            works += [dist.isend(late(COUNT, rank + i, 5), right), dist.irecv(tensors[1], left)]
        for work in works:
            until = time.monotonic() + 30
            while not work.is_completed():
                assert time.monotonic() < until
                time.sleep(0.001)
            assert work.is_success() and exception_of(work) is None
        check_on_another_stream(tensors[0], full(i * size + sum(range(size))))
        check_on_another_stream(tensors[1], full(left + i if size > 1 else 0))


def test_waiting_twice_and_from_other_threads(rank, size):
    right, left = ring(rank, size)

    def consume(work, tensor, expected):
        with use(streams(1)[0]):
            work.wait()
            check(tensor + 1, expected)

    for i in range(5):
        total, received = late(COUNT, rank + i), zeros()
        works = [(dist.all_reduce(total, async_op=True), total, full(i * size + sum(range(size)) + 1))]
        sends = []
        if size > 1:
            works.append((dist.irecv(received, left), received, full(left - i + 1)))
            sends.append(dist.isend(late(COUNT, rank - i), right))
        for work, tensor, expected in works:
            with ThreadPoolExecutor(3) as pool:
                others = [pool.submit(consume, work, tensor, expected) for _ in range(3)]
                wait_all(work, work)
                check(tensor + 1, expected)
            for other in others:
                other.result()
        wait_all(*sends)


def test_waiting_with_a_timeout(rank, size):
    """With a timeout the host waits, to detect its expiry."""
    tensor = late(COUNT, rank)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait(timeout=datetime.timedelta(seconds=30))
    check_on_another_stream(tensor, full(sum(range(size))))


@pytest.mark.streams
def test_chains_of_futures(rank, size):
    right, left = ring(rank, size)
    for i in range(10):
        chain = dist.all_reduce(late(COUNT, rank + i, 2), async_op=True).get_future()
        for _ in range(3):
            chain = chain.then(lambda f: (f.value()[0] if isinstance(f.value(), list) else f.value()) * 2)
        if size > 1:
            sent = dist.isend(late(COUNT, rank + i, 2), right).get_future()
            received = dist.irecv(zeros(), left).get_future().then(lambda f: f.value()[0] + 1)
            check(received.wait(), full(left + i + 1))
            sent.wait()
        check(chain.wait(), full(8 * (i * size + sum(range(size)))))
    futures = [dist.all_reduce(late(10, 1, 1), async_op=True).get_future() for _ in range(5)]
    for tensors in torch.futures.wait_all(futures):
        check(tensors[0], full(size, 10))
    results = [dist.all_reduce(late(10, 1, 1), async_op=True).get_future_result() for _ in range(3)]
    assert [int(result.wait()) for result in results] == [0, 0, 0]


def test_groups_on_their_own_threads_and_streams(rank, size):
    """All ranks issue in the same order, in turns, because streams may share a hardware queue."""
    groups = [dist.new_group() for _ in range(3)]
    turns = [threading.Semaphore(int(n == 0)) for n in range(3)]

    def work(number):
        with use(streams(1)[0]):
            for i in range(25):
                tensor = late(100 * number + 7, rank + i, 1)
                assert turns[number].acquire(timeout=20)
                dist.all_reduce(tensor, group=groups[number], async_op=True).wait()
                turns[(number + 1) % 3].release()
                check(tensor * 2, full(2 * (i * size + sum(range(size))), 100 * number + 7))

    in_threads(work, range(3))
    for group in groups:
        dist.destroy_process_group(group)


def test_a_barrier_ends_what_was_called_before(rank, size):
    for is_async in (False, True):
        tensor = late(COUNT, rank)
        dist.all_reduce(tensor, async_op=True)
        work = dist.barrier(async_op=is_async)
        wait_all(work)
        check_on_another_stream(tensor, full(sum(range(size))))


@pytest.mark.ranks(2)
def test_a_barrier_while_a_message_is_awaited(rank, size):
    """The message is sent only after the barrier."""
    right, left = ring(rank, size)
    received = zeros()
    work = dist.irecv(received, left)
    dist.barrier()
    dist.isend(late(COUNT, rank), right).wait()
    work.wait()
    check(received, full(left))


def test_a_group_is_destroyed_with_work_in_flight(rank, size):
    group = dist.new_group()
    tensor, waited = late(COUNT, rank, 50), late(COUNT, rank, 50)
    dist.all_reduce(tensor, group=group, async_op=True)
    dist.all_reduce(waited, group=group, async_op=True).wait()
    dist.destroy_process_group(group)
    check(waited + 1, full(sum(range(size)) + 1))
    synchronize()
    check(tensor, full(sum(range(size))))


def test_objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (10 + 1000 * rank)})
    assert [g["rank"] for g in gathered] == list(range(size))
    objects = [("from", rank), [rank] * 100]
    dist.broadcast_object_list(objects, size - 1, device=DEVICE)
    assert objects == [("from", size - 1), [size - 1] * 100]
    received = [None]
    if size > 1:
        if rank == 0:
            dist.send_object_list([{"a": 1}], 1, device=DEVICE)
        elif rank == 1:
            dist.recv_object_list(received, 0, device=DEVICE)
            assert received == [{"a": 1}]


def test_many_tensors_in_one_block(rank, size):
    for i in range(5):
        tensors = [late(100 + 17 * k, rank + k, 1) for k in range(12)]
        with dist._coalescing_manager(device=DEVICE, async_ops=True) as block:
            for tensor in tensors:
                dist.all_reduce(tensor)
        block.wait()
        for k, tensor in enumerate(tensors):
            check(tensor + i, full(k * size + sum(range(size)) + i, len(tensor)))
    outputs = [zeros(size * 50) for _ in range(4)]
    with dist._coalescing_manager(device=DEVICE):
        for k, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, late(50, rank + k, 1))
    for k, output in enumerate(outputs):
        check(output, torch.arange(k, size + k).float().repeat_interleave(50))


def test_uneven_all_to_all_in_a_row(rank, size):
    for i in range(40):
        counts = [(rank + r + i) % 3 * 40 for r in range(size)]  # to and from each rank
        output = zeros(sum(counts))
        dist.all_to_all_single(output, late(sum(counts), rank, 1), counts, counts, async_op=True).wait()
        check(output * 1, torch.arange(float(size)).repeat_interleave(torch.tensor(counts)))


@pytest.mark.ranks(2)
def test_messages_that_only_their_order_distinguishes(rank, size):
    """Same peer and tag, from streams of which the first is the slowest."""
    right, left = ring(rank, size)
    for i in range(10):
        received, works = [], []
        for k, stream in enumerate(streams(4)):
            with use(stream):
                received.append(zeros())  # ordered by the stream that receives into it
                sleep(8 - 2 * k)
                works.append(dist.irecv(received[k], left))
        synchronize() if i % 2 else None
        for k, stream in enumerate(streams(4)):
            with use(stream):
                tensor = late(COUNT, rank + 10 * k, 8 - 2 * k)
                works.append(dist.isend(tensor, right))
        if DEVICE.type != "cpu" and i % 3 == 0:
            last = torch.zeros(10)
            works.append(dist.irecv(last, left))
            works.append(dist.isend(torch.full((10,), float(rank)), right))
        wait_all(*works)
        for k, tensor in enumerate(received):
            check(tensor, full(left + 10 * k))
