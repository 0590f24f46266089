"""Every collective and message, over dtypes and sizes, compared with support/gpu.py's reference."""

import pytest
import torch
import torch.distributed as dist
from support.gpu import COUNTS, DEVICE, DTYPES, check, inputs, reduced, reductions
from support.works import wait_all

pytestmark = [
    pytest.mark.parametrize("count", COUNTS),
    pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:]),
]


def filled(count, dtype):
    """A buffer that must be overwritten."""
    return torch.ones(count, dtype=dtype, device=DEVICE)


def block_of(count, size):
    """Elements per block in a buffer with a block per rank; the large count is that of the whole buffer."""
    return count if count <= 1000 else count // size


def finish(work):
    """Waits for an asynchronous call's Work; a synchronous call returns None."""
    wait_all(work)


def test_reductions(rank, size, dtype, count):
    everyone = inputs(dtype, count, size)
    for number, op in enumerate(reductions(dtype)):
        expected, is_async = reduced(everyone, op), number % 2 == 0
        rounds = op == dist.ReduceOp.AVG
        tensor = everyone[rank].to(DEVICE, copy=True)
        finish(dist.all_reduce(tensor, op, async_op=is_async))
        check(tensor, expected, rounds)
        tensor = everyone[rank].to(DEVICE, copy=True)
        finish(dist.reduce(tensor, size - 1, op, async_op=not is_async))
        if rank == size - 1:
            check(tensor, expected, rounds)
        if number > 0 and count > 1000:
            continue  # large ones with the sum only
        block = block_of(count, size)
        wide = inputs(dtype, size * block, size)
        expected = reduced(wide, op)[rank * block :][:block]
        mine = wide[rank].to(DEVICE, copy=True)
        output = filled(block, dtype)
        finish(dist.reduce_scatter_tensor(output, mine, op, async_op=is_async))
        check(output, expected, rounds)
        output = filled(block, dtype)
        dist.reduce_scatter(output, list(mine.chunk(size)) if block else [mine] * size, op)
        check(output, expected, rounds)
        own = mine.narrow(0, rank * block, block)
        finish(dist.reduce_scatter_tensor(own, mine, op, async_op=not is_async))
        check(own, expected, rounds)


def test_movement(rank, size, dtype, count):
    everyone = inputs(dtype, count, size)
    mine, whole = everyone[rank].to(DEVICE), torch.cat(everyone)

    tensor = mine.clone()
    finish(dist.broadcast(tensor, size - 1, async_op=True))
    check(tensor, everyone[-1])
    outputs = [filled(count, dtype) for _ in range(size)]
    dist.all_gather(outputs, mine)
    for output, expected in zip(outputs, everyone, strict=True):
        check(output, expected)
    output = filled(size * count, dtype)
    finish(dist.all_gather_into_tensor(output, mine, async_op=True))
    check(output, whole)
    output = filled(size * count, dtype)
    own = output.narrow(0, rank * count, count)
    own.copy_(mine)
    dist.all_gather_into_tensor(output, own)
    check(output, whole)

    root = size // 2
    parts = [filled(count, dtype) for _ in range(size)] if rank == root else None
    finish(dist.gather(mine, parts, root, async_op=True))
    for part, expected in zip(parts or [], everyone, strict=False):
        check(part, expected)
    output = filled(count, dtype)
    dist.scatter(output, [t.to(DEVICE) for t in everyone] if rank == root else None, root)
    check(output, everyone[rank])


def test_exchange(rank, size, dtype, count):
    count = block_of(count, size)
    wide = inputs(dtype, size * count, size)
    blocks = [list(t.split(count)) if count else [t] * size for t in wide]  # [sender][receiver]
    expected = [blocks[sender][rank] for sender in range(size)]
    mine = wide[rank].to(DEVICE)

    output = filled(size * count, dtype)
    finish(dist.all_to_all_single(output, mine, async_op=True))
    check(output, torch.cat(expected))
    outputs = [filled(count, dtype) for _ in range(size)]
    dist.all_to_all(outputs, [block.to(DEVICE) for block in blocks[rank]])
    for output, block in zip(outputs, expected, strict=True):
        check(output, block)

    # Uneven: the part for rank r has r elements less.
    lengths = [max(count - r, 0) for r in range(size)]
    parts = [[t[:n] for t, n in zip(row, lengths, strict=True)] for row in blocks]
    output = filled(size * lengths[rank], dtype)
    dist.all_to_all_single(output, torch.cat(parts[rank]).to(DEVICE), [lengths[rank]] * size, lengths)
    check(output, torch.cat([row[rank] for row in parts]))
    outputs = [filled(n, dtype) for n in lengths]
    finish(dist.all_gather(outputs, mine[: lengths[rank]].clone(), async_op=True))
    for sender, output in enumerate(outputs):
        check(output, wide[sender][: lengths[sender]])
    output = filled(lengths[rank], dtype)
    dist.reduce_scatter(output, [part.to(DEVICE) for part in parts[rank]])
    check(output, reduced([row[rank] for row in parts], dist.ReduceOp.SUM))


@pytest.mark.ranks(2)
def test_messages(rank, size, dtype, count):
    everyone = inputs(dtype, count, size)
    mine, right, left = everyone[rank].to(DEVICE), (rank + 1) % size, (rank - 1) % size

    output = filled(count, dtype)
    wait_all(dist.isend(mine, right), dist.irecv(output, left))
    check(output, everyone[left])
    output = filled(count, dtype)
    calls = [dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, output, left)]
    wait_all(*dist.batch_isend_irecv(calls))
    check(output, everyone[left])
    output = filled(count, dtype)
    if rank % 2 == 0 and rank + 1 < size:
        dist.send(mine, rank + 1, tag=3)
        assert dist.recv(output, None, tag=4) == rank + 1
        check(output, everyone[rank + 1])
    elif rank % 2 == 1:
        dist.recv(output, rank - 1, tag=3)
        check(output, everyone[rank - 1])
        dist.send(mine, rank - 1, tag=4)


@pytest.mark.parametrize("order", ["send first", "receive first", "batch"])
def test_messages_to_oneself(rank, size, dtype, count, order):
    mine, output = inputs(dtype, count, size)[rank].to(DEVICE), filled(count, dtype)
    calls = [dist.P2POp(dist.isend, mine, rank), dist.P2POp(dist.irecv, output, rank)]
    if order == "receive first":
        calls.reverse()
    works = dist.batch_isend_irecv(calls) if order == "batch" else [c.op(c.tensor, rank) for c in calls]
    wait_all(*works)
    check(output, mine.cpu())
