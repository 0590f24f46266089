"""torch.distributed.checkpoint: saved from shards, loaded into other shards and into one process."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from support.training import (
    STEPS,
    assert_same_model,
    new_model,
    sgd,
    train,
    train_alone,
)
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


def sharded(seed=17, mesh=None):
    model = new_model(seed)
    fully_shard(model.first, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def trained():
    model = sharded()
    optimizer = sgd(model)
    train(model, optimizer)
    return model, optimizer


def state_of(model, optimizer):
    parameters, moments = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": moments}


def loaded(model, folder):
    """The model with the saved parameters."""
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=folder / "saved")
    set_model_state_dict(model, state["model"])
    return model


def test_sharded_training_goes_on_where_it_stopped(size, folder):
    dcp.save(state_of(*trained()), checkpoint_id=folder / "saved")

    model = sharded(seed=99)
    optimizer = sgd(model)
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder / "saved")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(model, optimizer, first=STEPS)
    assert_same_model(model, train_alone(size, 2 * STEPS))

    # The same files in one process without a process group, and by DDP.
    alone = new_model(seed=99)
    dcp.load({"model": alone.state_dict()}, checkpoint_id=folder / "saved", no_dist=True)
    assert_same_model(alone, train_alone(size))
    assert_same_model(loaded(DDP(new_model(seed=99)), folder).module, alone)


@pytest.mark.mesh
def test_two_dimensional_shards_are_read_into_one_dimension(folder):
    model = sharded(mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    train(model, sgd(model))
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder / "saved")
    assert_same_model(loaded(sharded(seed=99), folder), train_alone(4))


def test_async_save_while_training_goes_on(size, folder):
    """The save runs its collectives in a thread, on a separate group, as any backend with one queue per group
    requires; training changes the parameters meanwhile."""
    model, optimizer = trained()
    saving = dist.new_group()
    response = dcp.async_save(
        state_of(model, optimizer), checkpoint_id=folder / "saved", process_group=saving
    )
    steps = 0
    while True:  # until all ranks agree, since their saves end at different times
        train(model, optimizer, first=STEPS + steps, steps=1)
        steps += 1
        more = torch.tensor([0 if response.done() else 1])  # all ranks must make the same number of steps
        dist.all_reduce(more, dist.ReduceOp.MAX)
        if not more and steps >= 3:
            break
    response.result()
    assert_same_model(model, train_alone(size, STEPS + steps), rtol=1e-8, atol=1e-10)

    # The parameters at the time of the call.
    assert_same_model(loaded(sharded(seed=99), folder), train_alone(size))
    dist.destroy_process_group(saving)


def test_full_state_dict(rank, size):
    """Rank 0 gathers everything on the CPU, and its state is broadcast into new shards."""
    model, _ = trained()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if rank == 0:
        assert_same_model(state, train_alone(size))
    else:
        assert not state
    other = sharded(seed=99)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, state, options=options)
    assert_same_model(other, train_alone(size))
