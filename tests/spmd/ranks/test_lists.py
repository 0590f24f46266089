"""Collectives on lists: uneven, empty, coalesced, in place, asynchronous, sparse."""

import pytest
import torch
import torch.distributed as dist
from support.data import noise, op_name, same, sample
from support.works import wait_all

DTYPES = [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64, torch.uint16]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
asynchronously = pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])


def finish(work, async_op):
    if async_op:
        assert work.wait()
    else:
        assert work is None


def empties(dtype, counts):
    return [torch.zeros(count, dtype=dtype) for count in counts]


def uneven(source, target):
    """Elements from one rank to another: some zero, no two ranks with the same total."""
    return (source * 3 + target * 5) % 4 * (source + 1)


@dtypes
@asynchronously
@pytest.mark.algorithms
def test_uneven_all_gather(rank, size, dtype, async_op):
    growing, sparse = [r + 1 for r in range(size)], [0, 7, 0, 1000][:size]
    for counts in (growing, sparse, [0] * size, [4099] + [3] * (size - 1)):
        outputs = empties(dtype, counts)
        finish(dist.all_gather(outputs, sample(dtype, counts[rank], rank), async_op=async_op), async_op)
        for r in range(size):
            same(outputs[r], sample(dtype, counts[r], r))


def test_all_gather_of_different_shapes(rank, size):
    shapes = [(r, 3, 2) for r in range(size)]
    outputs = [torch.empty(shape) for shape in shapes]
    dist.all_gather(outputs, torch.full(shapes[rank], float(rank)))
    for r in range(size):
        same(outputs[r], torch.full(shapes[r], float(r)))


@asynchronously
@pytest.mark.algorithms
def test_uneven_reduce_scatter(rank, size, async_op):
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
        for counts in ([r + 1 for r in range(size)], [0, 7, 0, 1000][:size], [0] * size):
            inputs = [torch.full((count,), float(rank + r)) for r, count in enumerate(counts)]
            output = torch.zeros(counts[rank])
            finish(dist.reduce_scatter(output, inputs, op=op, async_op=async_op), async_op)
            values = torch.tensor([float(r + rank) for r in range(size)])
            expected = {"SUM": values.sum(), "MAX": values.max(), "AVG": values.mean()}[op_name(op)]
            same(output, torch.full((counts[rank],), expected.item()))


@asynchronously
def test_all_gather_coalesced(rank, size, async_op):
    inputs = [noise(torch.float32, 5, rank), torch.full((2, 3), float(rank)), torch.empty(0)]
    outputs = [[torch.empty_like(t) for t in inputs] for _ in range(size)]
    with pytest.warns(FutureWarning):  # torch's own deprecation
        finish(dist.all_gather_coalesced(outputs, inputs, async_op=async_op), async_op)
    for r in range(size):
        same(outputs[r][0], noise(torch.float32, 5, r))
        same(outputs[r][1], torch.full((2, 3), float(r)))


@dtypes
@asynchronously
@pytest.mark.smoke
def test_all_to_all_lists(rank, size, dtype, async_op):
    inputs = [sample(dtype, uneven(rank, r), rank, seed=r) for r in range(size)]
    outputs = empties(dtype, [uneven(r, rank) for r in range(size)])
    finish(dist.all_to_all(outputs, inputs, async_op=async_op), async_op)
    for r in range(size):
        same(outputs[r], sample(dtype, uneven(r, rank), r, seed=rank))


def test_all_to_all_of_mixed_shapes_and_views(rank, size):
    inputs = [torch.full((r + 1, rank + 1), 10.0 * rank + r).t() for r in range(size)]
    outputs = [torch.empty(rank + 1, 2 * (r + 1))[:, ::2] for r in range(size)]
    dist.all_to_all(outputs, inputs)
    for r in range(size):
        same(outputs[r].contiguous(), torch.full((rank + 1, r + 1), 10.0 * r + rank))


def test_all_to_all_of_nothing(size):
    outputs = empties(torch.float32, [0] * size)
    dist.all_to_all(outputs, empties(torch.float32, [0] * size))
    assert all(output.numel() == 0 for output in outputs)
    dist.all_to_all(outputs := empties(torch.float32, [1] * size), [torch.tensor([3.0])] * size)
    assert torch.cat(outputs).eq(3).all()  # later calls still match between the ranks


def test_in_place(rank, size):
    """Inputs that share memory with outputs, even if no algorithm supports it."""
    buffer = torch.arange(size * 4.0) + 100 * rank
    dist.all_to_all_single(buffer, buffer)
    blocks = [torch.arange(rank * 4.0, rank * 4.0 + 4) + 100 * r for r in range(size)]
    same(buffer, torch.cat(blocks))
    views = list((torch.arange(size * 4.0) + 100 * rank).view(size, 4).unbind())
    dist.all_to_all(views, views)
    same(torch.cat(views), torch.cat(blocks))
    gathered = torch.full((size, 3), float(rank))
    dist.all_gather(list(gathered.unbind()), gathered[(rank + 1) % size])  # not its own block
    same(gathered, torch.arange(float(size)).view(-1, 1).expand(size, 3).contiguous())
    summed = torch.arange(float(size)).repeat_interleave(2)
    dist.reduce_scatter_tensor(summed[:2], summed)
    same(summed[:2], torch.full((2,), float(size * rank)))
    own = torch.full((size, 3), float(rank))
    dist.gather(own[rank], list(own.unbind()) if rank == 0 else None)
    dist.scatter(own[0], list(own.unbind()) if rank == 0 else None)
    same(own[0], torch.full((3,), float(rank)))


def test_list_operations_inside_a_block(rank, size, backend):
    """One Work for operations of all kinds, including sparse ones."""
    gathered, scattered = empties(torch.float32, [3] * size), torch.zeros(2)
    swapped, sparse = empties(torch.float32, [5] * size), (torch.eye(4) * (rank + 1)).to_sparse()
    gathering, scattering = dist.GatherOptions(), dist.ScatterOptions()
    reducing, exchanging = dist.AllreduceOptions(), dist.AllToAllOptions()
    for options in (gathering, scattering, reducing, exchanging):
        options.asyncOp = True
    backend._start_coalescing()
    backend.gather([gathered] if rank == 0 else [], [torch.full((3,), float(rank))], gathering)
    backend.allreduce([sparse], reducing)
    parts = [torch.full((2,), float(r)) for r in range(size)]
    backend.scatter([scattered], [parts] if rank == 0 else [], scattering)
    backend.alltoall(swapped, [torch.full((5,), float(rank))] * size, exchanging)
    backend._end_coalescing().wait()
    if rank == 0:
        same(torch.stack(gathered), torch.arange(float(size)).view(-1, 1).expand(size, 3).contiguous())
    same(scattered, torch.full((2,), float(rank)))
    same(torch.stack(swapped), torch.arange(float(size)).view(-1, 1).expand(size, 5).contiguous())
    same(sparse.to_dense(), torch.eye(4) * (size * (size + 1) / 2))
    backend._start_coalescing()
    backend._end_coalescing().wait()  # an empty block completes at once


# ---- sparse -----------------------------------------------------------------------------------------------


def coo(rank, elements, dtype=torch.float32, dense=0):
    """`elements` entries of a 5 x 7 (x 2) matrix, overlapping between ranks and repeated within one."""
    indices = torch.tensor([[(r + rank) % 5, (2 * r) % 7] for r in range(elements)]).reshape(-1, 2).t()
    values = (torch.arange(elements * (1 + dense)) + 10.0 * rank).to(dtype)
    shape = (5, 7, 2) if dense else (5, 7)
    return torch.sparse_coo_tensor(indices, values.view(elements, 2) if dense else values, shape)


@asynchronously
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_sparse_all_reduce(rank, size, dtype, async_op):
    for elements in (lambda r: 4 + r, lambda r: 6 if r == 0 else 0, lambda r: 0):
        for dense in (0, 1):
            tensor = coo(rank, elements(rank), dtype, dense)
            finish(dist.all_reduce(tensor, async_op=async_op), async_op)
            expected = sum(coo(r, elements(r), dtype, dense).to_dense() for r in range(size))
            assert tensor.is_coalesced()
            same(tensor.to_dense(), expected)


def test_sparse_all_reduce_has_equal_bits_everywhere(rank, size):
    values = noise(torch.float32, 300, rank)
    indices = torch.randint(0, 40, (1, 300), generator=torch.Generator().manual_seed(rank))
    tensor = torch.sparse_coo_tensor(indices, values, (40,))
    dist.all_reduce(tensor)
    dense = tensor.to_dense()
    everywhere = torch.empty(size, 40)
    dist.all_gather_into_tensor(everywhere, dense)
    for other in everywhere:
        assert torch.equal(other.view(torch.int32), dense.view(torch.int32))


def test_sparse_operations_in_flight(rank, size):
    tensors = [coo(rank, i % 6) for i in range(60)]
    dense = [torch.full((9,), float(rank)) for _ in range(60)]
    works = [dist.all_reduce(t, async_op=True) for pair in zip(tensors, dense, strict=True) for t in pair]
    future = works[2].get_future()
    wait_all(*reversed(works))
    for i, tensor in enumerate(tensors):
        same(tensor.to_dense(), sum(coo(r, i % 6).to_dense() for r in range(size)))
        same(dense[i], torch.full((9,), float(sum(range(size)))))
    same(future.wait()[0].to_dense(), tensors[1].to_dense())


@pytest.mark.ranks(2)
def test_sparse_tensors_that_differ_between_ranks(rank, size):
    """All ranks get the error when they wait, and the group survives."""
    for async_op in (False, True):
        other = coo(0, 3, torch.float64) if rank == 0 else coo(rank, 3)
        with pytest.raises(ValueError, match=r"rank 0 has Double\[5, 7\].*rank 1 has Float\[5, 7\]"):
            work = dist.all_reduce(other, async_op=async_op)
            assert not work.is_completed() or not work.is_success()
            work.wait()
    good = coo(rank, 3)
    dist.all_reduce(good)
    same(good.to_dense(), sum(coo(r, 3).to_dense() for r in range(size)))


def test_sparse_operation_is_a_sum_only(size):
    with pytest.raises(ValueError, match="all_reduce: op=max of a sparse tensor, expected sum"):
        dist.all_reduce(coo(0, 2), op=dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match="all_reduce: tensors is a SparseCsr tensor"):
        dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([torch.eye(3).to_sparse_csr()])
