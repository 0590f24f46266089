"""Tensors in the device's group memory (on the CPU: the host's): allocation, and collectives on them."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from support import training
from support.gpu import DEVICE, check, late
from support.gpu_training import check_model, train
from support.works import wait_all
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import mpi_backend
from mpi_backend.extension import _C

SHARED = DEVICE.type == "cpu" or os.environ.get("MPI_GDR_IPC", "on") == "on"
SEGMENT = 64 << 20


def backend():
    return dist.group.WORLD._get_backend(DEVICE)


def full(count, value, dtype=torch.float32):
    return backend().allocate_tensor(count, dtype=dtype, device=DEVICE).fill_(value)


def memory_of(tensor):
    """(bytes in use, bytes reserved, segments) of the device's group memory; None: `tensor` is not in it."""
    return _C.device_group_memory(tensor.data_ptr())


def total(size):
    return float(sum(range(size)))


def test_tensors_are_on_the_device():
    where = torch.zeros(1, device=DEVICE).device  # with its index
    assert backend().supports_tensor_alloc(where) == SHARED
    for dtype in (torch.float32, torch.int8, torch.complex64):
        tensor = full(1001, 3, dtype)
        assert tensor.device == where and tensor.dtype == dtype and tensor.shape == (1001,)
        check(tensor.view(7, 143).t().contiguous() + tensor[:1], torch.full((143, 7), 6, dtype=dtype))
    assert full(0, 0).numel() == 0
    cube = mpi_backend.empty(2, 3, 4, dtype=torch.float64, device=DEVICE)
    assert cube.shape == (2, 3, 4) and cube.device == where and cube.is_contiguous()
    with pytest.raises(ValueError, match="allocate_tensor: size=-1"):
        full(-1, 0)


@pytest.mark.streams
def test_what_is_no_such_memory_is_refused():
    assert backend().supports_tensor_alloc(torch.device("cpu"))
    assert not backend().supports_tensor_alloc(torch.device(DEVICE.type, 99))
    with pytest.raises(ValueError, match="device=meta, expected cpu or a device that mpi-gdr serves"):
        mpi_backend.empty(3, device="meta")
    with pytest.raises(torch.OutOfMemoryError, match="no memory for"):
        full(1 << 50, 0, torch.int8)
    assert memory_of(torch.zeros(1, device=DEVICE)) is None
    tensor = full(10, 1.0)  # the failure breaks nothing
    dist.all_reduce(tensor)


@pytest.mark.streams
def test_allocating_and_freeing_does_not_grow():
    kept = full(1000, 1.0)
    before = memory_of(kept)
    for step in range(60):
        tensors = [full(4 << 20, step) for _ in range(3)]  # 48 MiB
        check(tensors[1][-5:], torch.full((5,), float(step)))
    del tensors
    after = memory_of(kept)
    assert after[0] <= before[0]  # less if earlier tests' memory was still in use
    assert after[1] <= before[1] + 2 * SEGMENT and after[2] <= before[2] + 2


@pytest.mark.streams
def test_memory_is_reused_behind_the_work_of_its_stream():
    """Freed before its stream reads it: later allocations may reuse it only after that work."""
    for turn in range(3):
        source = full(8 << 20, turn)  # two fill a segment
        target = torch.zeros(8 << 20, device=DEVICE)
        late(1, 0.0, 50)
        target.copy_(source, non_blocking=True)
        del source
        others = [full(8 << 20, -1.0) for _ in range(2)]
        with torch.Stream(device=DEVICE):
            others += [full(8 << 20, -2.0)]
        check(target[::4096], torch.full((2048,), float(turn)))
        del others


@pytest.mark.streams
def test_memory_is_reused_beside_a_message_that_is_awaited(rank, size):
    """The allocator must not wait for the device, which waits for a message that the peer sends later."""
    del (held := [full(8 << 20, 0.0) for _ in range(2)])[:]  # at least one segment
    dist.barrier()
    tensor = torch.zeros(100, device=DEVICE)
    request = dist.irecv(tensor, (rank - 1) % size)
    request.wait()
    for step in range(20):
        held = [full(4 << 20, step) for _ in range(2)]
        del held
    dist.isend(torch.full((100,), float(rank)), (rank + 1) % size).wait()  # a host tensor, on no stream
    check(tensor, torch.full((100,), float((rank - 1) % size)))


@pytest.mark.streams
@pytest.mark.skipif(
    os.environ.get("FAKECUDA_WAITS") == "1",
    reason="simulated only, on a GPU where making pinned memory, which messages need, waits for nothing",
)
def test_the_first_collective_beside_a_message_that_is_awaited(rank, size):
    """The group's devices start to share memory only then, which requires a wait for the device."""
    group = dist.new_group()
    tensor = torch.zeros(100, device=DEVICE)
    request = dist.irecv(tensor, (rank - 1) % size)
    request.wait()
    sums = torch.full((5000,), float(rank), device=DEVICE)
    dist.all_reduce(sums, group=group)
    dist.isend(torch.full((100,), float(rank)), (rank + 1) % size).wait()  # a host tensor, on no stream
    check(tensor, torch.full((100,), float((rank - 1) % size)))
    check(sums, torch.full((5000,), total(size)))
    dist.all_reduce(sums, group=group)
    check(sums, torch.full((5000,), size * total(size)))
    dist.destroy_process_group(group)


@pytest.mark.parametrize("is_async", [False, True])
def test_collectives(rank, size, is_async):
    def finish(work):
        wait_all(work)

    for count in (1, 1000, 300_001):
        whole = full(count, rank)
        finish(dist.all_reduce(whole, async_op=is_async))
        check(whole, torch.full((count,), total(size)))

        base = full(count + 20, rank)
        finish(dist.all_reduce(base[10 : count + 10], async_op=is_async))
        expected = torch.full((count + 20,), float(rank))
        expected[10 : count + 10] = total(size)
        check(base, expected)

        # In place: the input is a part of the output, or vice versa.
        gathered = full(size * count, -1.0)
        part = gathered[rank * count : (rank + 1) * count].fill_(rank)
        finish(dist.all_gather_into_tensor(gathered, part, async_op=is_async))
        check(gathered, torch.arange(size).float().repeat_interleave(count))
        finish(dist.reduce_scatter_tensor(part, gathered, async_op=is_async))
        check(part, torch.full((count,), float(size * rank)))

        tensor = full(count, rank + 1)
        finish(dist.broadcast(tensor, size - 1, async_op=is_async))
        check(tensor, torch.full((count,), float(size)))
        output = full(size * count, -1.0)
        finish(dist.all_to_all_single(output, full(size * count, rank), async_op=is_async))
        check(output, torch.arange(size).float().repeat_interleave(count))


def test_only_some_ranks_have_it(rank, size):
    """Each rank's tensor may be in group memory or not, differently from call to call."""
    for step in range(8):
        there = (step >> (rank % 3)) & 1
        tensor = full(5000, rank) if there else torch.full((5000,), float(rank), device=DEVICE)
        dist.all_reduce(tensor)
        check(tensor, torch.full((5000,), total(size)))


def test_late_results(rank, size):
    tensor = full(5000, 0.0)
    for step in range(5):
        tensor.copy_(late(5000, float(rank + step)))
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        check(tensor, torch.full((5000,), total(size) + step * size))


def test_it_outlives_its_group(rank, size):
    group = dist.new_group()
    tensor = group._get_backend(DEVICE).allocate_tensor(5000, dtype=torch.float32, device=DEVICE).fill_(rank)
    dist.all_reduce(tensor, group=group)
    dist.destroy_process_group(group)
    del group
    check(tensor, torch.full((5000,), total(size)))
    dist.all_reduce(tensor)
    check(tensor, torch.full((5000,), size * total(size)))


@pytest.mark.parametrize("views", [False, True])
def test_ddp_takes_its_buckets_from_it(size, views, monkeypatch):
    monkeypatch.setenv("DDP_DISABLE_COMM_MEM", "0")
    buckets = []

    def hook(state, bucket):
        buckets.append(bucket.buffer())
        future = dist.all_reduce(bucket.buffer().div_(size), async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    model = training.new_model().to(DEVICE)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=views)
    wrapped.register_comm_hook(None, hook)
    train(wrapped)
    check_model(model, size)
    if DEVICE.type != "cpu":
        assert buckets and all((memory_of(bucket) is not None) == SHARED for bucket in buckets)


def test_fsdp2_takes_its_memory_from_it(size):
    model = training.new_model().to(DEVICE)
    mesh = dist.device_mesh.init_device_mesh(DEVICE.type, (size,))
    fully_shard(model.first, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.set_allocate_memory_from_process_group_for_comm(True)
    train(model)
    check_model(model, size)


@pytest.mark.simulated
@pytest.mark.skipif(
    "MPI_GDR_DEVICE_GROUP_MEMORY" not in os.environ,
    reason="simulated only, on a GPU with little group memory",
)
def test_a_steady_step_of_fsdp2_waits_for_no_device(rank, size):
    """Once all memory is given out, freed memory is reused in stream order."""
    from fakecuda import simgpu

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512, bias=False) for _ in range(2))).to(DEVICE)
    mesh = dist.device_mesh.init_device_mesh(DEVICE.type, (size,))
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    for part in model:  # those with parameters of their own
        part.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = training.sgd(model)
    batch = torch.ones(4, 512, device=DEVICE)

    def step():
        training.descend(optimizer, model(batch).sum())
        torch.accelerator.current_stream().synchronize()
        deadline = time.monotonic() + 60
        while memory_of(taken[0])[0] > idle:  # memory in use by operations is not free
            assert time.monotonic() < deadline, (memory_of(taken[0]), idle)
            time.sleep(0.001)

    taken = []
    with pytest.raises(torch.OutOfMemoryError):
        while True:
            taken.append(mpi_backend.empty(8 << 20, dtype=torch.int8, device=DEVICE))
    del taken[-4:]  # enough for some steps
    idle = memory_of(taken[0])[0]
    for _ in range(4):
        step()
    before = simgpu.device_wide_waits()
    for _ in range(4):
        step()
    assert simgpu.device_wide_waits() == before
