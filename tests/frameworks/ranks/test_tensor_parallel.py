"""DTensor and tensor parallelism compared with full tensors."""

import itertools

import pytest
import torch
import torch.distributed as dist
from support.training import (
    TOLERANCE,
    assert_same_model,
    batch,
    descend,
    loss_of,
    new_model,
    sgd,
    train_alone,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

PLACEMENTS = [Replicate(), Shard(0), Shard(1)]


def full(shape=(7, 5)):  # odd, so that shards are uneven
    return torch.arange(shape[0] * shape[1], dtype=torch.float64).reshape(shape)


def transitions(mesh):
    """Every pair of placements on all dimensions of the mesh; Partial only as a source, as torch allows."""
    dimensions = mesh.ndim
    for source in itertools.product([*PLACEMENTS, Partial()], repeat=dimensions):
        for target in itertools.product(PLACEMENTS, repeat=dimensions):
            yield source, target


def check_transitions(mesh):
    count = 0
    for source, target in transitions(mesh):
        start = [Replicate() if p.is_partial() else p for p in source]
        tensor = distribute_tensor(full(), mesh, start)
        # A partial sum: this rank's addend is the tensor times 1, 2, ... along that mesh dimension.
        local, factor = tensor.to_local(), 1
        for dimension, placement in enumerate(source):
            if placement.is_partial():
                local = local * (mesh.get_local_rank(dimension) + 1)
                factor *= sum(range(1, mesh.size(dimension) + 1))
        tensor = DTensor.from_local(local, mesh, source, shape=full().shape, stride=full().stride())
        moved = tensor.redistribute(mesh, target)
        expected = distribute_tensor(full() * factor, mesh, target)
        assert moved.placements == tuple(target)
        torch.testing.assert_close(moved.to_local(), expected.to_local(), rtol=0, atol=0)
        torch.testing.assert_close(moved.full_tensor(), full() * factor, rtol=0, atol=0)
        count += 1
    assert count == 12**mesh.ndim


@pytest.mark.detail
def test_all_transitions(size):
    check_transitions(init_device_mesh("cpu", (size,)))


@pytest.mark.mesh
def test_all_transitions_of_a_2d_mesh():
    check_transitions(init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")))


@pytest.mark.parametrize("op, value", [("avg", 1.5), ("max", 2.0), ("min", 1.0)])
def test_partial_of_other_operations(rank, size, op, value):
    assert size == 2
    mesh = init_device_mesh("cpu", (size,))
    partial = DTensor.from_local(full((4, 2)) * (rank + 1), mesh, [Partial(op)])
    torch.testing.assert_close(partial.full_tensor(), full((4, 2)) * value, rtol=0, atol=0)
    shard = partial.redistribute(mesh, [Shard(0)]).to_local()
    torch.testing.assert_close(shard, full((4, 2))[2 * rank : 2 * rank + 2] * value, rtol=0, atol=0)


def test_products_and_their_gradients(size):
    mesh = init_device_mesh("cpu", (size,))
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(6, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    for left, right in itertools.product(PLACEMENTS, repeat=2):
        x = distribute_tensor(a, mesh, [left]).requires_grad_()
        y = distribute_tensor(b, mesh, [right]).requires_grad_()
        z = (x @ y).full_tensor()
        torch.testing.assert_close(z.detach(), a @ b)
        z.square().sum().backward()
        torch.testing.assert_close(x.grad.full_tensor(), 2 * (a @ b) @ b.T)
        torch.testing.assert_close(y.grad.full_tensor(), 2 * a.T @ (a @ b))


class Layers(nn.Module):
    """norm, up, gelu, down on (B, T, C), as in a transformer's MLP."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.double()

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(self.norm(x))))


PLANS = {
    "tensor": {"up": ColwiseParallel(), "down": RowwiseParallel()},
    "sequence": {  # norm on sequence shards; all_gather before up, reduce_scatter after down
        "norm": SequenceParallel(),
        "up": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    },
}


@pytest.mark.parametrize("plan", PLANS)
def test_tensor_parallel(size, plan):
    mesh = init_device_mesh("cpu", (size,))
    alone, model = Layers(), Layers()
    if plan == "sequence":
        parallelize_module(model, mesh, {"up": ColwiseParallel(use_local_output=True)})
    parallelize_module(model, mesh, PLANS[plan])
    torch.manual_seed(9)
    x = torch.randn(3, 4, 16, dtype=torch.float64)
    expected = alone(x)
    y = model(x)
    if plan == "sequence":
        y = DTensor.from_local(y, mesh, [Shard(1)]).full_tensor()
    torch.testing.assert_close(y, expected, **TOLERANCE)
    y.square().sum().backward()
    expected.square().sum().backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        gradient = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
        torch.testing.assert_close(gradient, alone.get_parameter(name).grad, **TOLERANCE)


@pytest.mark.mesh
def test_tensor_parallel_inside_fsdp2():
    """2 x 2: data parallel over rows, tensor parallel within a row."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = new_model()
    plan = {
        "branch": ColwiseParallel(output_layouts=Replicate()),
        "second": RowwiseParallel(input_layouts=Replicate()),
    }
    parallelize_module(model, mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    optimizer = sgd(model)
    for step in range(3):
        descend(optimizer, loss_of(model(batch(mesh.get_local_rank("data"), step))))
    assert_same_model(model, train_alone(2))
    assert dist.get_world_size() == 4
