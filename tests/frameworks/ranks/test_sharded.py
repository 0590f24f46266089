"""FSDP1, FSDP2 and ZeroRedundancyOptimizer compared with one process."""

import pytest
import torch
import torch.distributed as dist
from support.training import (
    TOLERANCE,
    add_gradients,
    assert_same_model,
    batch,
    loss_of,
    new_model,
    sgd,
    train,
    train_alone,
)
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FullStateDictConfig,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import Linear
from torch.nn.parallel import DistributedDataParallel as DDP


def shard(model, **arguments):
    """FSDP2: two layers and the rest form a parameter group each."""
    for layer in (model.first, model.branch):
        fully_shard(layer, **arguments)
    return fully_shard(model, **arguments)


# ---- FSDP2 -------------------------------------------------------------------------------------------------

SETTINGS = {
    "plain": lambda model: None,  # reduce_scatter with AVG
    "force_sum": lambda model: model.set_force_sum_reduction_for_comms(True),
    "group_memory": lambda model: model.set_allocate_memory_from_process_group_for_comm(True),
    "kept_unsharded": lambda model: model.set_reshard_after_forward(False),
}


@pytest.mark.detail
@pytest.mark.parametrize("setting", SETTINGS)
def test_fsdp2(size, setting):
    model = shard(new_model())
    SETTINGS[setting](model)
    train(model, sgd(model))
    assert_same_model(model, train_alone(size))


def test_fsdp2_divide_factor_is_premul_sum(size):
    model = shard(new_model())
    for module in (model, model.first, model.branch):
        module.set_gradient_divide_factor(5.0)
    train(model, sgd(model))
    assert_same_model(model, train_alone(size, scale=1 / 5))


def test_fsdp2_bf16_is_that_of_one_process_bit_for_bit(rank, size):
    """Parameters in bf16; bf16 gradients are averaged in float32 and rounded once."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)
    model = shard(new_model(dtype=torch.float32), mp_policy=policy)
    loss_of(model(batch(rank, 0).float())).backward()
    gradients = []
    for other in range(size):
        alone = new_model(dtype=torch.float32).to(torch.bfloat16)
        loss_of(alone(batch(other, 0).bfloat16())).backward()
        gradients.append({name: p.grad.float() for name, p in alone.named_parameters()})
    for name, parameter in model.named_parameters():
        mean = (sum(g[name] for g in gradients) / size).bfloat16().float()
        torch.testing.assert_close(parameter.grad.full_tensor(), mean, rtol=0, atol=0)


def test_fsdp2_fp16_gradients_are_those_of_gloo(gloo):
    """Float16 gradients are divided, then summed; equal bit for bit with two ranks."""
    trained = []
    for mesh in (init_device_mesh("cpu", (dist.get_world_size(),)), DeviceMesh.from_group(gloo, "cpu")):
        policy = MixedPrecisionPolicy(reduce_dtype=torch.float16)
        model = shard(new_model(), mesh=mesh, mp_policy=policy)
        train(model, sgd(model))
        trained.append({name: p.full_tensor().detach() for name, p in model.named_parameters()})
    for name, tensor in trained[0].items():
        torch.testing.assert_close(tensor, trained[1][name], rtol=0, atol=0)


def test_fsdp2_accumulation_and_gradient_norm(rank, size):
    model, alone = shard(new_model()), new_model()
    model.set_requires_gradient_sync(False)
    loss_of(model(batch(rank, 0))).backward()
    model.set_requires_gradient_sync(True)
    loss_of(model(batch(rank, 1))).backward()
    for step in range(2):
        add_gradients(alone, size, step)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).full_tensor()
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.1))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad.full_tensor(), alone.get_parameter(name).grad, **TOLERANCE)


@pytest.mark.mesh
def test_hsdp():
    """2 x 2: shards within a row, gradients averaged over columns."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = shard(new_model(), mesh=mesh)
    train(model, sgd(model))
    assert_same_model(model, train_alone(4))


# ---- FSDP1 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP])
@pytest.mark.parametrize("original", [True, False], ids=["original", "flat"])
def test_fsdp1(size, strategy, original):
    wraps = {"auto_wrap_policy": ModuleWrapPolicy({Linear}), "device_id": torch.device("cpu")}
    model = FSDP(new_model(), sharding_strategy=strategy, use_orig_params=original, **wraps)
    train(model, sgd(model))
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
        assert_same_model(model.state_dict(), train_alone(size))


@pytest.mark.mesh
def test_fsdp1_hybrid():
    where = {"device_mesh": init_device_mesh("cpu", (2, 2)), "device_id": torch.device("cpu")}
    strategy = ShardingStrategy.HYBRID_SHARD
    model = FSDP(new_model(), sharding_strategy=strategy, use_orig_params=True, **where)
    train(model, sgd(model))
    with FSDP.summon_full_params(model):
        assert_same_model({n.removeprefix("_fsdp_wrapped_module."): p for n, p in model.named_parameters()},
                          train_alone(4))  # fmt: skip


# ---- ZeroRedundancyOptimizer -------------------------------------------------------------------------------


def test_zero_redundancy_optimizer(rank, size):
    model = DDP(new_model())
    settings = {"lr": 0.1, "momentum": 0.9, "parameters_as_bucket_view": True}
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, **settings)
    train(model, optimizer)
    alone = train_alone(size)
    assert_same_model(model.module, alone)
    held = sum(len(group["params"]) for group in optimizer.optim.param_groups)
    assert 0 < held < len(list(model.parameters()))
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


def test_zero_step_inside_the_hook(rank, size):
    """Each rank updates its share when a bucket's gradients are ready, and broadcasts it."""
    model = DDP(new_model(), bucket_cap_mb=0.002)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
    model.register_comm_hook(None, hook_with_zero_step(allreduce_hook, model, optimizer, shard_buckets=True))
    for step in range(4):  # the first two only lay out the buckets
        loss_of(model(batch(rank, step))).backward()
        optimizer.step()
        model.zero_grad()
    alone = new_model()
    reference = torch.optim.SGD(alone.parameters(), 0.1)
    for step in range(2, 4):
        add_gradients(alone, size, step)
        reference.step()
        reference.zero_grad()
    assert_same_model(model.module, alone)
