"""broadcast, all_gather and all_to_all compared with the other ranks' known inputs; barrier; views."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from support.data import COUNTS, DTYPES, noise, same, sample, samples
from support.works import wait_all

LARGE = (1 << 20) + 1
dtypes = pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.uint16], ids=lambda d: str(d)[6:])


@dtypes
@pytest.mark.algorithms
@pytest.mark.smoke
def test_broadcast_from_every_root(rank, size, dtype):
    for root in range(size):
        for count in COUNTS:
            tensor = sample(dtype, count, rank)
            dist.broadcast(tensor, root)
            same(tensor, sample(dtype, count, root))


@dtypes
@pytest.mark.algorithms
@pytest.mark.smoke
def test_all_gather_into_tensor(rank, size, dtype):
    for count in COUNTS:
        output = torch.empty(size * count, dtype=dtype)
        dist.all_gather_into_tensor(output, sample(dtype, count, rank))
        same(output, torch.cat(samples(dtype, count, size)))


@dtypes
def test_all_gather_list(rank, size, dtype):
    for count in COUNTS:
        outputs = [torch.empty(count, dtype=dtype) for _ in range(size)]
        dist.all_gather(outputs, sample(dtype, count, rank))
        for r in range(size):
            same(outputs[r], sample(dtype, count, r))


@dtypes
@pytest.mark.algorithms
@pytest.mark.smoke
def test_all_to_all_single_even(rank, size, dtype):
    for count in COUNTS:
        output = torch.empty(size * count, dtype=dtype)
        dist.all_to_all_single(output, sample(dtype, size * count, rank))
        blocks = [sample(dtype, size * count, r)[count * rank : count * (rank + 1)] for r in range(size)]
        same(output, torch.cat(blocks))


@pytest.mark.algorithms
@pytest.mark.parametrize("width", [1, 3])
def test_all_to_all_single_uneven(rank, size, width):
    def rows(source, target):  # some are zero, no two ranks have the same total
        return (source * 3 + target * 5) % 4 * (source + 1)

    sent = [rows(rank, r) for r in range(size)]
    received = [rows(r, rank) for r in range(size)]
    values = torch.arange(sum(sent) * width).view(-1, width) + 1000 * rank
    output = torch.empty(sum(received), width, dtype=values.dtype)
    if size > 1 and os.environ.get("MPI_GDR_ALLTOALL_ALGO") == "bruck":
        with pytest.raises(ValueError, match="algorithm bruck needs even splits on all ranks"):
            dist.all_to_all_single(output, values, received, sent)
        return
    dist.all_to_all_single(output, values, received, sent)
    expected = []
    for r in range(size):
        total = sum(rows(r, t) for t in range(size))
        theirs = torch.arange(total * width).view(-1, width) + 1000 * r
        first = sum(rows(r, t) for t in range(rank))
        expected.append(theirs[first : first + rows(r, rank)])
    same(output, torch.cat(expected))


def test_all_to_all_single_of_nothing(size):
    output = torch.empty(0)
    dist.all_to_all_single(output, torch.empty(0), [0] * size, [0] * size)
    assert output.numel() == 0


def test_all_to_all_only_to_the_next_rank(rank, size):
    sent = [5 if r == (rank + 1) % size else 0 for r in range(size)]
    received = [5 if r == (rank - 1) % size else 0 for r in range(size)]
    output = torch.empty(5)
    dist.all_to_all_single(output, torch.full((5,), float(rank)), received, sent)
    same(output, torch.full((5,), float((rank - 1) % size)))


@pytest.mark.algorithms
def test_large(rank, size):
    tensor = noise(torch.float32, LARGE, rank)
    dist.broadcast(tensor, size - 1)
    same(tensor, noise(torch.float32, LARGE, size - 1))
    output = torch.empty(size * LARGE)
    dist.all_gather_into_tensor(output, noise(torch.float32, LARGE, rank))
    same(output, torch.cat([noise(torch.float32, LARGE, r) for r in range(size)]))


def strided(values, kind):
    """A tensor with these values that is not contiguous."""
    if kind == "transposed":
        return values.view(-1, 4).clone().t().contiguous().t()
    if kind == "every second":
        spread = torch.zeros(2 * values.numel(), dtype=values.dtype)
        spread[::2] = values
        return spread[::2]
    return torch.cat([values, values[:1]])[:-1][:].view(-1, 4)[:, :]  # contiguous, but a part of its storage


@pytest.mark.parametrize("kind", ["transposed", "every second", "part"])
def test_views(rank, size, kind):
    values = [strided(sample(torch.float32, 64, r), kind) for r in range(size)]
    tensor = strided(sample(torch.float32, 64, rank), kind)
    dist.all_reduce(tensor)
    same(tensor.contiguous(), sum(values).contiguous())
    tensor = strided(sample(torch.float32, 64, rank), kind)
    dist.broadcast(tensor, 0, async_op=True).wait()
    same(tensor.contiguous(), values[0].contiguous())
    outputs = [torch.empty_like(v) for v in values]
    dist.all_gather(outputs, values[rank])
    for output, value in zip(outputs, values, strict=True):
        same(output.contiguous(), value.contiguous())
    if size > 1:
        target = strided(torch.zeros(64), kind)
        wait_all(dist.isend(values[rank], (rank + 1) % size), dist.irecv(target, (rank - 1) % size))
        same(target.contiguous(), values[(rank - 1) % size].contiguous())


def test_a_view_leaves_its_neighbours_alone(rank, size):
    base = torch.full((10, 10), -1.0)
    view = base[2:5, 3:7]
    view.fill_(rank + 1)
    dist.all_reduce(view)
    expected = torch.full((10, 10), -1.0)
    expected[2:5, 3:7] = size * (size + 1) / 2
    same(base, expected)


def test_in_place_all_gather_and_reduce_scatter(rank, size):
    buffer = torch.zeros(size * 9)
    mine = buffer[9 * rank : 9 * rank + 9]
    mine.copy_(noise(torch.float32, 9, rank))
    dist.all_gather_into_tensor(buffer, mine)
    same(buffer, torch.cat([noise(torch.float32, 9, r) for r in range(size)]))
    dist.reduce_scatter_tensor(buffer[9 * rank : 9 * rank + 9], buffer)
    torch.testing.assert_close(buffer[9 * rank : 9 * rank + 9], size * noise(torch.float32, 9, rank))


@pytest.mark.algorithms
@pytest.mark.smoke
def test_barrier_waits_for_all_ranks(rank, size):
    """No rank leaves a barrier before the last has arrived, by the host's common clock."""

    def of_all(moment):
        moments = [None] * size
        dist.all_gather_object(moments, moment)
        return moments

    for late in range(size):
        if rank == late:
            time.sleep(0.05)
        came = time.monotonic_ns()
        dist.barrier()
        left = time.monotonic_ns()
        assert max(of_all(came)) <= min(of_all(left))


def test_barrier_async(size):
    works = [dist.barrier(async_op=True) for _ in range(20)]
    wait_all(*reversed(works))
    assert all(work.is_completed() for work in works)
