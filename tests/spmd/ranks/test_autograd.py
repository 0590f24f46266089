"""Strided tensors that require gradients: results are copied to them outside of autograd, as contiguous
tensors' results are written."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as functional
from support.data import same

pytestmark = pytest.mark.smoke


def filters(value):
    """A leaf whose memory order differs from its element order."""
    weight = torch.full((4, 8, 3, 3), float(value)).to(memory_format=torch.channels_last)
    return torch.nn.Parameter(weight)


def transposed(value):
    return torch.nn.Parameter(torch.full((3, 4), float(value)).t())


def all_reduced(rank, size):
    weight = filters(rank)
    dist.all_reduce(weight)
    return [weight], [sum(range(size))]


def reduced_coalesced(rank, size):
    weights = [filters(rank), transposed(rank)]
    with dist._coalescing_manager(async_ops=True) as block:
        for weight in weights:
            dist.all_reduce(weight)
    block.wait()
    return weights, [sum(range(size))] * 2


def broadcast(rank, size):
    weight = filters(rank)
    dist.broadcast(weight, size - 1)
    return [weight], [size - 1]


def gathered(rank, size):
    weights = [transposed(-1) for _ in range(size)]
    dist.all_gather(weights, torch.full((4, 3), float(rank)))
    return weights, range(size)


def scattered(rank, size):
    weight = transposed(-1)
    dist.scatter(weight, [transposed(r) for r in range(size)] if rank == 0 else None)
    return [weight], [rank]


def exchanged(rank, size):
    weights = [transposed(-1) for _ in range(size)]
    dist.all_to_all(weights, [transposed(rank) for _ in range(size)])
    return weights, range(size)


def received(rank, size):
    if size == 1:
        return [], []
    weight = transposed(-1)
    receive = dist.irecv(weight, (rank - 1) % size)
    dist.send(transposed(rank), (rank + 1) % size)
    receive.wait()
    return [weight], [(rank - 1) % size]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    "operation", [all_reduced, reduced_coalesced, broadcast, gathered, scattered, exchanged, received]
)
def test_strided_leaves(rank, size, operation, enabled):
    with torch.set_grad_enabled(enabled):
        weights, values = operation(rank, size)
    for weight, value in zip(weights, values, strict=True):
        assert weight.is_leaf and weight.requires_grad
        same(weight.detach().contiguous(), torch.full(weight.shape, float(value)))


@pytest.mark.parametrize("waits", ["wait", "get_future"])
def test_a_strided_leaf_in_the_background(rank, size, waits):
    """The copy is made by the waiter or by a completer thread with its own modes."""
    weight = filters(rank)
    work = dist.all_reduce(weight, async_op=True)
    if waits == "get_future":
        work.get_future().wait()
    else:
        work.wait()
    assert work.is_success()
    same(weight.detach().contiguous(), torch.full(weight.shape, float(sum(range(size)))))


def test_a_sparse_leaf(rank, size):
    leaf = torch.eye(3).mul(rank + 1).to_sparse().requires_grad_()
    dist.all_reduce(leaf)
    assert leaf.is_leaf
    same(leaf.detach().to_dense(), torch.eye(3) * size * (size + 1) / 2)


def test_views_of_an_unbound_tensor(rank, size):
    whole = torch.zeros(size, 4, 6, requires_grad=True) * 1
    parts = [part.t() for part in whole.unbind(0)]
    nodes = [part.grad_fn for part in parts]
    dist.all_gather(parts, torch.full((6, 4), float(rank)))
    assert [part.grad_fn for part in parts] == nodes
    same(whole.detach(), torch.arange(float(size)).view(size, 1, 1).expand(size, 4, 6).contiguous())


def test_the_graph_stays_as_it_was(size):
    """The gradient is the multiplication's, and the version counts the tensor's changes."""
    leaf = torch.ones(6, 4, requires_grad=True)
    result = (leaf * 2).t()
    node, version = result.grad_fn, result._version
    for _ in range(5):
        dist.all_reduce(result, op=dist.ReduceOp.MAX)
    assert result.grad_fn is node and result._version > version
    result.sum().backward()
    same(leaf.grad, torch.full((6, 4), 2.0))


def test_tangents_stay_as_they_were(size):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(4, 6), torch.full((4, 6), 3.0)).t()
        dist.all_reduce(dual)
        primal, tangent = torch.autograd.forward_ad.unpack_dual(dual)
        same(primal.contiguous(), torch.full((6, 4), float(size)))
        same(tangent.contiguous(), torch.full((6, 4), 3.0))


def test_gradients_of_strided_pieces(rank, size):
    leaf = torch.full((2, 2), float(rank), requires_grad=True)
    sum(functional.all_gather(leaf.t())).sum().backward()
    same(leaf.grad, torch.full((2, 2), float(size)))
