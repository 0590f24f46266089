"""Group features besides collectives: split, merge, hooks, timing, memory.

tests/launch covers failing groups: MPI is not finalised afterwards, which launchers report.
"""

import datetime
import threading

import pytest
import torch
import torch.distributed as dist
from support.data import check_sum, same
from support.works import exception_of

CPU = torch.device("cpu")
SECONDS = datetime.timedelta(seconds=30)


def backend_of(group):
    return group._get_backend(CPU)


def total(pg, value):
    tensor = torch.full((5,), float(value))
    pg.allreduce([tensor]).wait()
    return tensor[0].item()


# ---- split and merge --------------------------------------------------------------------------------------


def test_split(rank, size):
    """Members get a group, in the order of ranks; others None. Overlapping and repeated splits are different
    groups with their own names, timeouts and communicators."""
    world = dist.group.WORLD
    for first in range(size):
        members = list(range(first, size))
        child = world.split_group(members, timeout=SECONDS, group_desc="tail")
        if rank < first:
            assert child is None
            continue
        again = world.split_group(members, timeout=SECONDS)
        assert (child.rank(), child.size()) == (rank - first, size - first)
        assert total(child, rank) == total(again, rank) == sum(members)
        assert backend_of(child) is not backend_of(again)
        options = backend_of(child).options
        assert options._timeout == SECONDS and list(options.global_ranks_in_group) == members
        grandchild = child.split_group([child.size() - 1], timeout=SECONDS)
        assert (grandchild is None) == (rank != size - 1)
        for made in (grandchild, again, child):
            if made is not None:
                made.shutdown()
    assert backend_of(world).options._timeout != SECONDS  # the child's settings do not change the parent's


def test_split_serves_all_devices_with_one_backend(size):
    """c10d splits once per device type."""
    child = dist.group.WORLD.split_group(list(range(size)), timeout=SECONDS)
    assert child._get_backend(CPU) is child._get_backend(torch.device("cuda"))
    child.shutdown()


def test_split_with_wrong_ranks(size):
    with pytest.raises(ValueError, match=rf"split: ranks holds {size}, expected ranks .*0\.\.{size - 1}"):
        dist.group.WORLD.split_group([size], timeout=SECONDS)


def test_merge(rank, size):
    alone = dist.group.WORLD.split_group([rank], timeout=SECONDS)
    groups = [dist.group.WORLD.split_group([r], timeout=SECONDS) for r in range(size)]
    assert [g is not None for g in groups] == [r == rank for r in range(size)]
    store = dist.PrefixStore("merge-test", dist.distributed_c10d._get_default_store())
    merged = alone.merge_remote_group(store, size, SECONDS, group_name="merged")
    assert merged.size() == size
    assert total(merged, rank) == sum(range(size))
    gathered = [[torch.zeros(1, dtype=torch.int64) for _ in range(size)]]
    merged.allgather(gathered, [torch.tensor([merged.rank()])]).wait()
    assert [t.item() for t in gathered[0]] == list(range(size))
    for made in (merged, alone, groups[rank]):
        made.shutdown()


# ---- hooks and timing -------------------------------------------------------------------------------------


def test_completion_hook(rank, size):
    group, another = dist.new_group(), dist.new_group()
    completed, inside = [], []

    def hook(info):
        completed.append(info)
        if len(completed) == 1:
            raise ZeroDivisionError("in the hook")  # logged, without further effect
        if len(completed) == 3:
            inside.append(torch.ones(1))
            another.allreduce([inside[0]]).wait()  # a separate group keeps the order of all ranks

    group._register_on_completion_hook(hook)
    assert group._has_hooks()
    with pytest.raises(ValueError, match="has a hook already"):
        group._register_on_completion_hook(print)
    for i in range(3):
        dist.all_reduce(torch.ones(10), group=group, async_op=bool(i % 2))
    dist.broadcast(torch.ones(10), 0, group=group)
    group._wait_for_pending_works()
    assert sorted(info.seq for info in completed) == list(range(4))
    assert inside[0].item() == size
    assert sum("BROADCAST" in str(info.op_type) for info in completed) == 1
    for info in completed:
        assert info.time_started <= info.time_finished
        assert info.active_duration >= datetime.timedelta(0)
    dist.destroy_process_group(group)  # waits for pending works, too
    assert len(completed) == 4
    dist.destroy_process_group(another)


def test_pending_works_wait_no_longer_than_the_timeout(size):
    """A hook that does not return (it waits for a later event) is an error, not a hang."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    over = threading.Event()
    group._register_on_completion_hook(lambda info: over.wait(120))
    dist.all_reduce(torch.ones(10), group=group, async_op=True)
    with pytest.raises(dist.DistBackendError, match=r"hook has not returned for 1 operation\(s\) 2 s after"):
        group._wait_for_pending_works()
    over.set()
    group._wait_for_pending_works()
    dist.destroy_process_group(group)


def test_timing(size):
    group = dist.new_group()
    backend = backend_of(group)
    before = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    before.wait()
    with pytest.raises(ValueError, match="timing was not enabled"):
        before._get_duration()
    group._enable_collectives_timing()  # reaches the backend twice: once per device
    work = dist.all_reduce(torch.ones(100_000), group=group, async_op=True)
    work.wait()
    assert 0 < work._get_duration() < 30_000
    assert backend._get_sequence_number_for_group() == 2
    dist.destroy_process_group(group)


# ---- memory -----------------------------------------------------------------------------------------------


def test_memory_of_the_group(rank, size):
    group = dist.new_group()
    backend = backend_of(group)
    assert backend.supports_tensor_alloc(CPU)
    assert not backend.supports_tensor_alloc(torch.device("cuda", 0))
    tensor = backend.allocate_tensor(5000, dtype=torch.float64, device=CPU)
    assert tensor.shape == (5000,) and tensor.dtype == torch.float64
    assert tensor.data_ptr() % 4096 == 0
    tensor.fill_(rank)
    dist.all_reduce(tensor, group=group)
    assert backend.allocate_tensor(0, dtype=torch.int8, device=CPU).numel() == 0
    with pytest.raises(ValueError, match=r"no group memory on device=cuda:0, expected cpu or"):
        backend.allocate_tensor(3, dtype=torch.float32, device=torch.device("cuda", 0))
    with pytest.raises(ValueError, match="allocate_tensor: size=-1"):
        backend.allocate_tensor(-1, dtype=torch.float32, device=CPU)
    dist.destroy_process_group(group)
    del backend, group
    same(tensor, torch.full((5000,), float(sum(range(size))), dtype=torch.float64))
    tensor.resize_(9000)  # outlives the group, including its allocator
    assert tensor[4999] == sum(range(size))


# ---- errors and ends --------------------------------------------------------------------------------------


def test_shutdown_twice_and_after_abort(size):
    group = dist.new_group()
    backend = backend_of(group)
    backend.shutdown()
    backend.shutdown()
    dist.destroy_process_group(group)
    group = dist.new_group()
    backend = backend_of(group)
    dist.barrier()  # all have created it
    backend.abort()
    backend.abort()
    backend.shutdown()
    dist.destroy_process_group(group)
    check_sum(size)


def test_work_reports_results_that_could_not_be_written(rank, size):
    """A copy writes to a strided leaf; if it fails, so does the operation, but the group survives."""
    base = torch.zeros(6, 6)
    work = dist.all_reduce(base.t()[1:, ::2], async_op=True)
    work.wait()
    assert work.is_success() and exception_of(work) is None
    with torch.inference_mode():
        inference = torch.ones(4, 4)
    work = dist.all_reduce(inference.t()[1:], async_op=True)
    work.get_future().wait()  # completed by a thread that is not in inference mode
    assert work.is_success()
    same(inference.t()[1:].contiguous(), torch.full((3, 4), float(size)))


def test_result_and_synchronize(size):
    tensor = torch.ones(5)
    work = dist.all_reduce(tensor, async_op=True)
    work.synchronize()
    assert work.result()[0].data_ptr() == tensor.data_ptr()
    same(tensor, torch.full((5,), float(size)))
    assert work.get_future_result().wait() == 0  # WorkResult.SUCCESS
