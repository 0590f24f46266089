"""Object collectives, functional collectives, and their differentiable forms."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as autograd_form

# ---- objects -----------------------------------------------------------------------------------------------


def thing(rank):
    """An object whose size differs between ranks."""
    return {"rank": rank, "text": "x" * 1000 * rank, "tensor": torch.arange(3 + rank)}


def same(actual, rank):
    expected = thing(rank)
    assert torch.equal(actual.pop("tensor"), expected.pop("tensor"))
    assert actual == expected


@pytest.mark.detail
def test_object_collectives(rank, size):
    everyone = [None] * size
    dist.all_gather_object(everyone, thing(rank))
    for other in range(size):
        same(everyone[other], other)
    for root in range(size):
        gathered = [None] * size if rank == root else None
        dist.gather_object(thing(rank), gathered, dst=root)
        if rank == root:
            for other in range(size):
                same(gathered[other], other)
        objects = [thing(root), "second", None] if rank == root else [None] * 3
        dist.broadcast_object_list(objects, src=root)
        same(objects[0], root)
        assert objects[1:] == ["second", None]
        received, sent = [None], [thing(r) for r in range(size)] if rank == root else None
        dist.scatter_object_list(received, sent, src=root)
        same(received[0], rank)
    if rank == 0:
        dist.send_object_list([thing(0), 5], dst=1)
    elif rank == 1:
        objects = [None, None]
        assert dist.recv_object_list(objects, src=0) == 0
        same(objects[0], 0)
        assert objects[1] == 5


# ---- functional collectives --------------------------------------------------------------------------------


def mine(rank, shape=(4, 2), seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(-9, 9, shape, generator=generator).double()


def assert_exact(actual, expected):
    torch.testing.assert_close(funcol.wait_tensor(actual), expected, rtol=0, atol=0)


@pytest.mark.detail
def test_functional_collectives(rank, size):
    group = dist.group.WORLD
    every = [mine(r) for r in range(size)]
    x = mine(rank)
    total = sum(every)
    assert_exact(funcol.all_reduce(x, "sum", group), total)
    assert_exact(funcol.all_reduce(x, "avg", group), total / size)
    assert_exact(funcol.all_reduce(x, "max", group), torch.stack(every).amax(0))
    assert_exact(funcol.broadcast(x, size - 1, group), every[-1])
    for dimension in (0, 1):
        assert_exact(funcol.all_gather_tensor(x, dimension, group), torch.cat(every, dimension))
        part = total.chunk(size, dimension)[rank]
        assert_exact(funcol.reduce_scatter_tensor(x, "sum", dimension, group), part)
        assert_exact(funcol.reduce_scatter_tensor(x, "avg", dimension, group), part / size)
    several = [x, mine(rank, (6,), 1)]
    totals = [total, sum(mine(r, (6,), 1) for r in range(size))]
    for actual, expected in zip(funcol.all_reduce_coalesced(several, "sum", group), totals, strict=True):
        assert_exact(actual, expected)
    gathered = funcol.all_gather_into_tensor_coalesced(several, group)
    assert_exact(gathered[0], torch.cat(every))
    assert_exact(gathered[1], torch.cat([mine(r, (6,), 1) for r in range(size)]))
    parts = funcol.reduce_scatter_tensor_coalesced(several, "sum", [0, 0], group)
    for actual, expected in zip(parts, totals, strict=True):
        assert_exact(actual, expected.chunk(size)[rank])
    swapped = funcol.all_to_all_single(x, None, None, group)
    assert_exact(swapped, torch.cat([e.chunk(size)[rank] for e in every]))
    # rank r sends r + d rows to rank d
    sends, receives = [rank + d for d in range(size)], [r + rank for r in range(size)]
    rows = [[torch.full((r + d,), 10.0 * r + d) for d in range(size)] for r in range(size)]
    received = funcol.all_to_all_single(torch.cat(rows[rank]), receives, sends, group)
    assert_exact(received, torch.cat([rows[r][rank] for r in range(size)]))
    moved = funcol.permute_tensor(x.flatten(), [(d + 1) % size for d in range(size)], group)  # 1-D only
    assert_exact(moved, every[rank - 1].flatten())


def test_functional_collectives_in_place(rank, size):
    """torch.compile's replacements of dist.*, called like dist.*."""
    every = [mine(r) for r in range(size)]
    tensor = mine(rank)
    funcol.all_reduce_inplace(tensor)
    assert_exact(tensor, sum(every))
    out = torch.empty(4 * size, 2, dtype=torch.float64)
    funcol.all_gather_tensor_inplace(out, mine(rank))
    assert_exact(out, torch.cat(every))
    part = torch.empty(4 // size, 2, dtype=torch.float64)
    funcol.reduce_scatter_tensor_inplace(part, mine(rank))
    assert_exact(part, sum(every).chunk(size)[rank])
    swapped = torch.empty(4, 2, dtype=torch.float64)
    funcol.all_to_all_inplace(swapped, mine(rank))
    assert_exact(swapped, torch.cat([e.chunk(size)[rank] for e in every]))
    tensors = [torch.empty(4, 2, dtype=torch.float64) for _ in range(size)]
    funcol.all_gather_inplace(tensors, mine(rank))
    assert_exact(torch.stack(tensors), torch.stack(every))


# ---- with gradients ----------------------------------------------------------------------------------------


def gradient(function, rank):
    """This rank's gradient of sum(w * function(x)) over all ranks, with w = 1 + rank."""
    x = mine(rank).requires_grad_()
    (sum(t.sum() for t in function(x)) * (1 + rank)).backward()
    return x.grad


@pytest.mark.detail
def test_gradients_of_functional_collectives(rank, size):
    group = dist.group.WORLD
    weights = sum(range(1, size + 1))
    ones = torch.ones(4, 2, dtype=torch.float64)
    assert_exact(gradient(lambda x: [funcol.all_gather_tensor_autograd(x, 0, group)], rank), ones * weights)
    expected = torch.cat([torch.full((4 // size, 2), 1.0 + r, dtype=torch.float64) for r in range(size)])
    scattered = gradient(lambda x: [funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group)], rank)
    assert_exact(scattered, expected)
    swapped = gradient(lambda x: [funcol.all_to_all_single_autograd(x, None, None, group)], rank)
    assert_exact(swapped, expected)


@pytest.mark.detail
def test_gradients_of_distributed_nn(rank, size):
    """torch.distributed.nn.functional: gradients only, since values are checked above."""
    weights = sum(range(1, size + 1))
    ones = torch.ones(4, 2, dtype=torch.float64)
    zeros = torch.zeros(4, 2, dtype=torch.float64)
    f = autograd_form
    assert_exact(gradient(lambda x: [f.all_reduce(x.clone())], rank), ones * weights)
    broadcast = gradient(lambda x: [f.broadcast(x.clone(), 0)], rank)
    assert_exact(broadcast, ones * weights if rank == 0 else zeros)
    assert_exact(gradient(lambda x: [f.reduce(x.clone(), 0) * (rank == 0)], rank), ones)
    assert_exact(gradient(lambda x: f.all_gather(x), rank), ones * weights)
    rows = torch.cat([torch.full((4 // size, 2), 1.0 + r, dtype=torch.float64) for r in range(size)])

    def chunks(x):
        return list(x.chunk(size))

    part = torch.empty(4 // size, 2, dtype=torch.float64)
    assert_exact(gradient(lambda x: [f.reduce_scatter(part.clone(), chunks(x))], rank), rows)
    assert_exact(gradient(lambda x: f.all_to_all([part.clone() for _ in range(size)], chunks(x)), rank), rows)
    assert_exact(gradient(lambda x: [f.all_to_all_single(torch.empty_like(x), x)], rank), rows)
    gathered = gradient(lambda x: f.gather(x, 0) if rank == 0 else [t * 0 for t in f.gather(x, 0)], rank)
    assert_exact(gathered, ones)
    scattered = gradient(lambda x: [f.scatter([x * (r + 1) for r in range(size)], 0)], rank)
    if rank == 0:  # rank r gets x * (r + 1) and weighs it by 1 + r
        assert_exact(scattered, ones * sum((r + 1) ** 2 for r in range(size)))


def test_gradient_of_all_gather_base_is_refused_by_torch(rank, size):
    """torch requires NCCL by name; all_gather and the functional collectives have gradients everywhere."""
    x = mine(rank).requires_grad_()
    gathered = autograd_form._all_gather_base(torch.empty(4 * size, 2, dtype=torch.float64), x)
    with pytest.raises(RuntimeError, match="Backend not supported"):
        gathered.sum().backward()
