"""DistributedDataParallel compared with one process and with Gloo."""

import copy

import pytest
import torch
import torch.distributed as dist
from support.training import (
    STEPS,
    Model,
    add_gradients,
    assert_equal_on_ranks,
    assert_same_model,
    batch,
    descend,
    loss_of,
    new_model,
    sgd,
    train,
    train_alone,
)
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

ddp_arguments = pytest.mark.parametrize(
    "arguments",
    [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}],
    ids=lambda a: "".join(a) or "plain",
)
TINY_BUCKETS = {"bucket_cap_mb": 0.002}  # several buckets even for this model


def different_on_each_rank():
    return new_model(seed=17 + dist.get_rank())  # DDP must use rank 0's parameters


@pytest.mark.detail
@ddp_arguments
def test_equals_one_process(size, arguments):
    model = DDP(different_on_each_rank(), **TINY_BUCKETS, **arguments)
    train(model, sgd(model))
    assert_same_model(model.module, train_alone(size))
    for parameter in model.parameters():
        assert_equal_on_ranks(parameter)


class WithComplexLayer(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.real, self.complex = nn.Linear(16, 8, dtype=torch.float64), nn.Linear(8, 4, dtype=dtype)

    def forward(self, x):
        return self.complex(self.real(x).to(self.complex.weight.dtype)).abs()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@ddp_arguments
def test_complex_parameters(rank, size, dtype, arguments):
    torch.manual_seed(5)
    alone = WithComplexLayer(dtype)
    model = DDP(copy.deepcopy(alone), **TINY_BUCKETS, **arguments)
    loss_of(model(batch(rank, 0))).backward()
    (sum(loss_of(alone(batch(r, 0))) for r in range(size)) / size).backward()
    assert alone.complex.weight.grad.imag.any()
    for ours, reference in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, reference.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.detail
def test_unused_parameters(rank, size):
    def used(rank, step):
        return (rank + step) % 2 == 0

    model = DDP(different_on_each_rank(), find_unused_parameters=True, **TINY_BUCKETS)
    optimizer = sgd(model)
    for step in range(STEPS):
        descend(optimizer, loss_of(model(batch(rank, step), branch=used(rank, step))))
    assert_same_model(model.module, train_alone(size, branch=used))


def test_accumulation_without_synchronisation(rank, size):
    """no_sync: gradients of two passes are summed once, as in one pass over both batches."""
    model = DDP(different_on_each_rank(), **TINY_BUCKETS)
    with model.no_sync():
        loss_of(model(batch(rank, 0))).backward()
    loss_of(model(batch(rank, 1))).backward()
    alone = new_model()
    for step in range(2):
        add_gradients(alone, size, step)
    for name, parameter in model.module.named_parameters():
        torch.testing.assert_close(parameter.grad, alone.get_parameter(name).grad, rtol=1e-10, atol=1e-12)


def bf16_hook(group, bucket):
    """torch rejects bf16_compress_hook by its name without NCCL; the hook itself runs anywhere."""
    return default_hooks.bf16_compress_hook(group, bucket)


HOOKS = [default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, bf16_hook]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda h: h.__name__)
def test_hooks_give_what_gloo_gives(gloo, size, hook):
    """Bit for bit with two ranks: a sum of two rounds once in any order."""
    trained = []
    for group in (None, gloo):
        model = DDP(new_model(), process_group=group, **TINY_BUCKETS)
        model.register_comm_hook(group, hook)
        train(model, sgd(model))
        trained.append(model.module)
    assert_same_model(trained[0], trained[1], rtol=0, atol=0)
    if hook is not default_hooks.allreduce_hook:
        assert_same_model(trained[0], train_alone(size), rtol=1e-2, atol=1e-3)


def test_bf16_hook_by_its_own_name_is_refused_by_a_torch_without_nccl():
    model = DDP(new_model())
    if dist.is_nccl_available():
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    else:
        with pytest.raises(TypeError, match="BF16 all reduce communication hook required"):
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)


def test_power_sgd(rank, size):
    """Its callback waits for a second allreduce. With one row per rank, a matrix's gradient has rank `size`,
    so an approximation of that rank is exact."""
    model = DDP(different_on_each_rank())
    limits = {"matrix_approximation_rank": size, "start_powerSGD_iter": 2, "min_compression_rate": 1}
    state = powerSGD_hook.PowerSGDState(None, **limits)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = sgd(model)
    for step in range(5):
        descend(optimizer, loss_of(model(batch(rank, step, rows=1))))
    before, after = state.total_numel_before_compression, state.total_numel_after_compression
    assert 0 < after < before / 2
    assert_same_model(model.module, train_alone(size, steps=5, rows=1), rtol=1e-6, atol=1e-8)


def test_join_with_uneven_inputs(rank, size):
    model = DDP(different_on_each_rank(), **TINY_BUCKETS)
    optimizer = sgd(model)
    with Join([model]):
        for step in range(2 + 2 * rank):
            descend(optimizer, loss_of(model(batch(rank, step))))
    alone = new_model()
    reference = sgd(alone)
    for step in range(2 * size):
        for other in range(size):
            if step < 2 + 2 * other:
                (loss_of(alone(batch(other, step))) / size).backward()
        reference.step()
        reference.zero_grad()
    assert_same_model(model.module, alone)


class WithStatistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm = Model().double(), nn.BatchNorm1d(8, dtype=torch.float64)

    def forward(self, x):
        return self.norm(self.body(x))


def test_buffers_are_those_of_rank_0(rank):
    """BatchNorm's running statistics follow rank 0's batches, up to the last pass."""
    torch.manual_seed(3 + rank)
    model = DDP(WithStatistics())
    torch.manual_seed(3)
    alone = WithStatistics()
    for step in range(3):
        model(batch(rank, step)).sum().backward()
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)
        alone(batch(0, step))
    for name, buffer in model.module.named_buffers():
        torch.testing.assert_close(buffer, alone.get_buffer(name))
    # Corrupted on rank 1: the next forward pass takes rank 0's before it adds its own batch.
    if rank == 1:
        model.module.norm.running_mean.fill_(1e6)
    model(batch(0, 3))
    alone(batch(0, 3))
    torch.testing.assert_close(model.module.norm.running_mean, alone.norm.running_mean)


def test_sync_batch_norm_is_refused_by_torch_on_cpus():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(WithStatistics())
    with pytest.raises(ValueError, match="expected input tensor to be on GPU"):
        model(batch(0, 0))
