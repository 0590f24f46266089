"""Work and Future: waits, callbacks, many concurrent operations, coalescing, functional collectives."""

import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from support.data import check_sum, same
from support.works import in_threads, wait_all

pytestmark = pytest.mark.smoke


def test_wait_twice_and_from_another_thread(size):
    tensor = torch.ones(1000)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True
    assert work.wait() is True
    assert work.is_completed() and work.is_success()
    in_threads(lambda _: work.wait(), [0])
    same(tensor, torch.full((1000,), float(size)))


def test_a_synchronous_call_has_ended_and_has_no_work(size):
    """As with NCCL: torch accepts None for completed operations."""
    options = dist.AllreduceOptions()
    options.asyncOp = False
    tensor = torch.ones(3)
    work = dist.group.WORLD.allreduce([tensor], options)
    assert work is None or (torch.__version__ >= "2.15" and work.is_completed())  # for its flight recorder
    assert tensor.tolist() == [size] * 3


def test_a_synchronous_call_whose_tensor_compiled_code_waits_for(size):
    with fc.allow_inflight_collective_as_graph_input_ctx():
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert fc.wait_tensor(tensor).tolist() == [size] * 3


def test_is_completed_becomes_true_without_wait(size):
    """No thread waits: the background thread must progress the operation."""
    tensor = torch.ones(100_000)
    work = dist.all_reduce(tensor, async_op=True)
    pause = threading.Event()
    while not work.is_completed():
        pause.wait(0.001)
    same(tensor, torch.full((100_000,), float(size)))


def test_future_value_is_the_list_of_outputs(size):
    tensor = torch.ones(10)
    value = dist.all_reduce(tensor, async_op=True).get_future().wait()
    assert isinstance(value, list) and value[0].data_ptr() == tensor.data_ptr()
    same(value[0], torch.full((10,), float(size)))


def test_future_asked_for_twice_and_after_completion():
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    first, second = work.get_future(), work.get_future()
    same(first.wait()[0], second.wait()[0])


def test_chain_of_callbacks(size):
    future = dist.all_reduce(torch.ones(5), async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2).then(lambda f: f.value() + 1)
    same(doubled.wait(), torch.full((5,), 2.0 * size + 1))


def test_callback_that_waits_for_collectives(size):

    def again(future):
        tensor = future.value()[0].clone()
        dist.all_reduce(tensor)
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    future = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(again)
    same(future.wait(), torch.full((5,), size**3.0))


def test_error_in_a_callback_stays_there(size):
    def fail(future):
        raise ZeroDivisionError("in the hook")

    future = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(fail)
    with pytest.raises(RuntimeError, match="in the hook"):
        future.wait()
    check_sum(size)


def test_future_of_a_strided_tensor_is_copied_back(size):
    base = torch.ones(6, 6)
    dist.all_reduce(base.t()[1:, ::2], async_op=True).get_future().wait()
    expected = torch.ones(6, 6)
    expected.t()[1:, ::2] = size
    same(base, expected)


def test_200_operations_in_flight(rank, size):
    works, tensors = [], []
    for i in range(200):
        tensors.append(torch.full((1 + 97 * (i % 50),), float(i)))
        if i % 3 == 1:
            tensors[-1].fill_(rank)
            works.append(dist.broadcast(tensors[-1], i % size, async_op=True))
        else:
            works.append(dist.all_reduce(tensors[-1], async_op=True))
    wait_all(*reversed(works))
    for i, tensor in enumerate(tensors):
        same(tensor, torch.full_like(tensor, i % size if i % 3 == 1 else i * size))


def test_200_futures_in_flight(size):
    futures = [dist.all_reduce(torch.full((11,), float(i)), async_op=True).get_future() for i in range(200)]
    results = torch.futures.collect_all(futures).wait()
    for i, future in enumerate(results):
        same(future.value()[0], torch.full((11,), float(i * size)))


def test_works_without_a_waiter(size):
    for _ in range(50):
        dist.all_reduce(torch.ones(1000), async_op=True)
    check_sum(size)


def test_2000_broadcasts(rank):
    """The root runs ahead as far as the backend allows; no message may be lost."""
    tensor = torch.empty(16, dtype=torch.int64)
    for i in range(2000):
        if rank == 0:
            tensor.fill_(i)
        dist.broadcast(tensor, 0)
        assert tensor[0] == i and tensor[15] == i


@pytest.mark.parametrize("device", [None, torch.device("cpu")])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_coalescing(rank, size, device, asynchronous):
    counts = (0, 2, 1000)
    for call in (dist.all_reduce, dist.all_gather_into_tensor, dist.reduce_scatter_tensor):
        tensors = [torch.full((n,), float(rank)) for n in counts]
        gathered = [torch.empty(size * n) for n in counts]
        whole = [torch.full((size * n,), float(rank)) for n in counts]
        given = {
            dist.all_reduce: [tensors],
            dist.all_gather_into_tensor: [gathered, tensors],
            dist.reduce_scatter_tensor: [tensors, whole],
        }[call]
        with dist._coalescing_manager(device=device, async_ops=asynchronous) as manager:
            for arguments in zip(*given, strict=True):
                call(*arguments)
        if asynchronous:
            manager.wait()
        for n, tensor, output in zip(counts, tensors, gathered, strict=True):
            if call is dist.all_gather_into_tensor:
                same(output, torch.arange(float(size)).repeat_interleave(n))
            else:
                same(tensor, torch.full((n,), float(sum(range(size)))))


@pytest.mark.ranks(2)
def test_a_block_of_collectives_and_messages(rank, size):
    """One Work for both; messages keep their order among those outside of the block."""
    pg, device = dist.group.WORLD, torch.device("cpu")
    right, left = (rank + 1) % size, (rank - 1) % size
    received = [torch.empty(30000) for _ in range(3)]
    strided = torch.empty(2, 30000).t()  # copied to after the operation
    sent = [torch.full((n,), 10.0 * rank + i) for i, n in enumerate((30000, 60000, 30000, 30000))]
    reduced, spread = torch.full((7,), float(rank)), torch.full((5,), float(rank))
    outside = [dist.isend(sent[0], right), dist.irecv(received[0], left)]
    pg._start_coalescing(device)
    dist.all_reduce(reduced, async_op=True)
    dist.isend(sent[1].view(30000, 2), right)
    dist.irecv(strided, left)
    dist.broadcast(spread, size - 1, async_op=True)
    dist.isend(sent[2], right)
    dist.irecv(received[1], left)
    block = pg._end_coalescing(device)
    outside += [dist.isend(sent[3], right), dist.irecv(received[2], left)]
    block.wait()
    assert block.is_completed() and len(block.result()) == 6
    wait_all(*outside)
    for tensor, i in zip(received, (0, 2, 3), strict=True):
        same(tensor, torch.full((30000,), 10.0 * left + i))
    same(strided, torch.full((30000, 2), 10.0 * left + 1))
    same(reduced, torch.full((7,), float(sum(range(size)))))
    same(spread, torch.full((5,), float(size - 1)))


@pytest.mark.ranks(2)
def test_coalescing_manager_around_collectives_and_messages(rank, size):
    reduced, received = torch.full((7,), float(rank)), torch.empty(3)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.all_reduce(reduced)
        dist.isend(torch.full((3,), float(rank)), (rank + 1) % size)
        dist.irecv(received, (rank - 1) % size)
    manager.wait()
    same(reduced, torch.full((7,), float(sum(range(size)))))
    same(received, torch.full((3,), float((rank - 1) % size)))


def test_collectives_from_several_threads_on_groups_of_their_own(size):
    groups = [dist.new_group() for _ in range(3)]

    def work(group):
        tensor = torch.ones(100)
        for _ in range(20):
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.full((100,), float(size)))

    in_threads(work, groups)
    for group in groups:
        dist.destroy_process_group(group)
