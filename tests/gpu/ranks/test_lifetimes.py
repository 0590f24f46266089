"""Lifetimes of memory: tensors that a program frees or reuses as early as it may."""

import threading
import time

import pytest
import torch
import torch.distributed as dist
from support.gpu import (
    COUNT,
    DEVICE,
    HAS_STREAMS,
    allocate_and_free,
    check,
    full,
    late,
    on_device,
    sleep,
    streams,
    synchronize,
    use,
)
from support.works import wait_all


def churn(times=3):
    """Allocates blocks of the size in use and writes to them, as other parts of a program do."""
    for _ in range(times):
        torch.full((COUNT,), -7.0, device=DEVICE)


def rows(value):
    """A strided tensor, which the library copies to a contiguous one."""
    return late(2 * COUNT, value, milliseconds=2)[::2]


@pytest.mark.streams
def test_works_that_are_neither_awaited_nor_kept(rank, size):
    kept = []
    for i in range(40):
        output = torch.zeros(size * COUNT, device=DEVICE)
        dist.all_gather_into_tensor(output, late(COUNT, rank + i, milliseconds=1), async_op=True)
        dist.all_reduce(late(COUNT, -1, milliseconds=1), async_op=True)
        dist.all_reduce(rows(-1), async_op=True)
        churn()
        kept.append(output)
    synchronize()
    for i, output in enumerate(kept):
        check(output, torch.arange(i, size + i).float().repeat_interleave(COUNT))


def test_memory_of_a_result_goes_right_after_the_wait(rank, size):
    results = []
    for i in range(40):
        tensor = late(COUNT, rank + i, milliseconds=1)
        dist.all_reduce(tensor, async_op=True).wait()
        results.append(tensor + 1)
        del tensor
        churn()
    for i, result in enumerate(results):
        check(result, full(i * size + sum(range(size)) + 1))


@pytest.mark.parametrize("kind", ["contiguous", "rows", "list"])
def test_waiting_on_another_stream_than_that_of_the_call(rank, size, kind):
    first, second = streams(2)
    for i in range(20):
        with use(first):
            if kind == "list":
                outputs = [torch.zeros(COUNT, device=DEVICE) for _ in range(size)]
                work = dist.all_gather(outputs, late(COUNT, rank + i, milliseconds=2), async_op=True)
            else:
                outputs = [rows(rank + i) if kind == "rows" else late(COUNT, rank + i, milliseconds=2)]
                work = dist.all_reduce(outputs[0], async_op=True)
        with use(second):
            work.wait()  # orders the second stream only
        with use(first):
            del work
            churn(6)
        with use(second):
            results = [output + 1 for output in outputs]
            if HAS_STREAMS:
                for output in outputs:
                    output.record_stream(second)
        synchronize()
        for r, result in enumerate(results):
            expected = r + i if kind == "list" else i * size + sum(range(size))
            check(result, full(expected + 1))


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.ranks(2)
def test_messages_without_a_waiter(rank, size, strided):
    """The target is freed and its memory reused while the message is copied there."""
    right, left = (rank + 1) % size, (rank - 1) % size
    count = 2 * COUNT if strided else COUNT
    for _ in range(5):
        target, second = torch.zeros(count, device=DEVICE), torch.zeros(COUNT, device=DEVICE)
        dist.irecv(target[::2] if strided else target, left)
        dist.isend(late(COUNT, -5, milliseconds=5), right)
        del target
        # Copies of received data come after this one.
        works = [dist.irecv(second, left), dist.isend(late(COUNT, rank, milliseconds=40), right)]
        others = []
        for _ in range(15):
            time.sleep(0.002)
            others.append(torch.full((count,), 3.0, device=DEVICE))
        wait_all(*works)
        synchronize()
        check(second, full(left))
        for other in others:
            check(other, full(3, len(other)))


@pytest.mark.ranks(2)
def test_messages_in_crossed_order(rank, size):
    """The receive of A is issued before that of B, but A is sent only after a message that depends on B."""
    peer = rank ^ 1
    if peer >= size:
        return
    for _ in range(5):
        a, b = torch.zeros(COUNT, device=DEVICE), torch.zeros(COUNT, device=DEVICE)
        if rank % 2 == 0:
            work_a, work_b = dist.irecv(a, peer, tag=1), dist.irecv(b, peer, tag=2)
            work_b.wait()
            dist.isend(b + 1, peer, tag=3).wait()
            churn()
            work_a.wait()
            check(a * 2, full(84))
        else:
            dist.isend(late(COUNT, 20), peer, tag=2).wait()
            c = torch.zeros(COUNT, device=DEVICE)
            dist.irecv(c, peer, tag=3).wait()
            dist.isend(c * 2, peer, tag=1).wait()
            churn()


@pytest.mark.ranks(2)
def test_hundreds_of_messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    outputs = [torch.zeros(10 + i, device=DEVICE) for i in range(300)]
    receives = [dist.irecv(output, left, tag=i) for i, output in enumerate(outputs)]
    sleep(30)
    sends = [dist.isend(on_device(rank + i, 10 + i), right, tag=i) for i in range(300)]
    for i in reversed(range(300)):
        receives[i].wait()
        check(outputs[i], full(left + i, 10 + i))
    wait_all(*sends)


@pytest.mark.streams
@pytest.mark.ranks(2)
def test_a_block_of_messages_and_collectives(rank, size):
    """No Work is kept."""
    right, left = (rank + 1) % size, (rank - 1) % size
    group = dist.group.WORLD
    for i in range(20):
        received, total = torch.zeros(COUNT, device=DEVICE), late(COUNT, rank + i, milliseconds=2)
        arrival = dist.irecv(received, left)
        group._start_coalescing(DEVICE)
        dist.isend(late(COUNT, rank - i, milliseconds=2), right)
        dist.all_reduce(total, async_op=True)
        dist.all_reduce(rows(5), async_op=True)
        group._end_coalescing(DEVICE)
        churn()
        arrival.wait()
        check(received, full(left - i))
        synchronize()
        check(total, full(i * size + sum(range(size))))


@pytest.mark.ranks(2)
def test_strided_messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(10):
        target = torch.zeros(2 * COUNT, device=DEVICE)
        works = [dist.isend(rows(rank + i), right), dist.irecv(target[::2], left)]
        churn()
        wait_all(*works)
        check(target, torch.tensor([left + i, 0.0]).repeat(COUNT))


@pytest.mark.ranks(2)
def test_batches_of_messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(10):
        received = [torch.zeros(COUNT, device=DEVICE) for _ in range(4)]
        calls = [dist.P2POp(dist.irecv, t, left, tag=k) for k, t in enumerate(received)]
        calls += [dist.P2POp(dist.isend, late(COUNT, rank + k + i, 1), right, tag=k) for k in range(4)]
        works = dist.batch_isend_irecv(calls)
        del calls
        churn()
        wait_all(*works)
        churn()
        for k, tensor in enumerate(received):
            check(tensor, full(left + k + i))


def test_other_threads_allocate_and_free(rank, size):
    """Calls that wait for the whole device, beside the issuing thread."""
    ended = threading.Event()

    def disturb():
        while not ended.wait(0.002):
            allocate_and_free()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        kept = []
        for i in range(60):
            tensor = late(COUNT, rank + i, milliseconds=1)
            dist.all_reduce(tensor, async_op=True).wait()
            kept.append(tensor + 1)
            if size > 1:
                received = torch.zeros(COUNT, device=DEVICE)
                wait_all(dist.isend(tensor, (rank + 1) % size), dist.irecv(received, (rank - 1) % size))
                kept.append(received + 1)
        per_round = len(kept) // 60
        for i, tensor in enumerate(kept):
            check(tensor, full(i // per_round * size + sum(range(size)) + 1))
    finally:
        ended.set()
        thread.join()
