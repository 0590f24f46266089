"""DDP and FSDP2 of a small model on device tensors, compared with one process."""

import pytest
import torch
import torch.distributed as dist
from support import training
from support.gpu import DEVICE, sleep
from support.gpu_training import TOLERANCE, check_model, train
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


@pytest.mark.parametrize("settings", [{}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.001}])
def test_ddp(size, settings):
    model = training.new_model().to(DEVICE)
    train(DistributedDataParallel(model, **settings))
    check_model(model, size)


def test_fsdp2(size):
    model = training.new_model().to(DEVICE)
    mesh = init_device_mesh(DEVICE.type, (size,))
    fully_shard(model.first, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model)
    check_model(model, size)


def test_losses_of_all_ranks(rank, size):
    """As between training steps: reduces a scalar, then reads it."""
    for step in range(20):
        loss = torch.tensor(float(rank + step), device=DEVICE)
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        assert loss.item() == pytest.approx(step + (size - 1) / 2)


def test_gradients_accumulated_over_two_batches(size):
    model = training.new_model().to(DEVICE)
    wrapped, optimizer = DistributedDataParallel(model), training.sgd(model)
    for step in range(training.STEPS):
        batch = training.batch(dist.get_rank(), step).to(DEVICE)
        with wrapped.no_sync():
            training.loss_of(wrapped(batch)).div(2).backward()
        training.descend(optimizer, training.loss_of(wrapped(batch)).div(2))
    check_model(model, size)


@pytest.mark.ranks(2)  # unused by all ranks: no gradient in the reference, zero here
def test_parameters_that_some_batches_leave_out(size):
    model = training.new_model().to(DEVICE)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = training.sgd(model)
    used = lambda rank, step: (rank + step) % 2 == 0  # noqa: E731
    for step in range(training.STEPS):
        rank = dist.get_rank()
        batch = training.batch(rank, step).to(DEVICE)
        training.loss_of(wrapped(batch, branch=used(rank, step))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    state = {name: p.detach().cpu() for name, p in model.named_parameters()}
    training.assert_same_model(state, training.train_alone(size, branch=used), **TOLERANCE)


@pytest.mark.parametrize("hook", [hooks.fp16_compress_hook, hooks.allreduce_hook])
def test_hooks_of_torch(size, hook):
    model = training.new_model().to(DEVICE)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.001)
    wrapped.register_comm_hook(None, hook)
    train(wrapped)
    state = {name: p.detach().cpu() for name, p in model.named_parameters()}
    rough = {"rtol": 0.05, "atol": 0.005}
    tolerance = TOLERANCE if hook is hooks.allreduce_hook else rough
    training.assert_same_model(state, training.train_alone(size), **tolerance)


def test_steps_in_a_row_without_a_look_at_the_result(size):
    model = training.new_model().to(DEVICE)
    wrapped, optimizer = DistributedDataParallel(model, bucket_cap_mb=0.001), training.sgd(model)
    batches = [training.batch(dist.get_rank(), step).to(DEVICE) for step in range(20)]
    sleep(50)
    for batch in batches:
        training.descend(optimizer, training.loss_of(wrapped(batch)))
    state = {name: p.detach().cpu() for name, p in model.named_parameters()}
    training.assert_same_model(state, training.train_alone(size, steps=20), **TOLERANCE)
