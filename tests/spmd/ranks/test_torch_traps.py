"""Undocumented requirements of torch 2.11-2.15 on a backend. Each test names the trap that it pins.

Traps of registration (the default backend of "cpu:mpi-gdr,cuda:mpi-gdr", both entry-point groups, a list of
devices) are in test_autoload.py and test_zz_lifecycle.py; those of the build (torch's own pybind11, no build
isolation) in test_build.py.
"""

import copy
import datetime

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from support.data import check_sum, same

CPU = torch.device("cpu")


@pytest.fixture
def bound_to_a_device():
    """As after init_process_group(device_id=...), which a CPU-only torch rejects."""
    world = dist.group.WORLD
    world.bound_device_id = torch.device("cuda", 0)
    yield
    world.bound_device_id = None


def test_new_group_with_a_bound_device(rank, size, backend, bound_to_a_device):
    """supports_splitting makes torch call perform_nocolor_split() on ranks outside of a new group; a backend
    without that method raises AttributeError. Without supports_splitting, DeviceMesh fails."""
    assert backend.supports_splitting
    members = list(range(max(1, size - 1)))  # excludes the last rank if there are several
    group = dist.new_group(members)
    if rank in members:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.full((3,), float(len(members))))
        dist.destroy_process_group(group)
    else:
        assert group == dist.GroupMember.NON_GROUP_MEMBER
    backend.perform_nocolor_split(torch.device("cuda", 0))
    backend.eager_connect_single_device(torch.device("cuda", 0))


def test_the_steps_of_split_group(rank, size, backend, bound_to_a_device):
    """torch.distributed.split_group() needs an accelerator up to 2.14. Its steps on a backend: a deep copy of
    `options`, a split per device type, setting the child's sequence number."""
    if torch.__version__ < "2.15":
        with pytest.raises(RuntimeError, match="No backend for the parent process group"):
            dist.split_group(split_ranks=[[0]])
    options = copy.deepcopy(backend.options)
    child = dist.group.WORLD.split_group(
        list(range(size)), timeout=datetime.timedelta(seconds=30), opts=options, group_name="steps-of-split"
    )
    assert child.group_name == "steps-of-split"
    child_backend = child._get_backend(CPU)
    child_backend._set_sequence_number_for_group()
    assert child_backend._get_sequence_number_for_group() == 0
    tensor = torch.ones(3)
    child.allreduce([tensor]).wait()
    same(tensor, torch.full((3,), float(size)))
    child.shutdown()


def test_functional_collectives_arrive_coalesced(rank, size):
    """all_gather_tensor and reduce_scatter_tensor arrive as *_coalesced with one tensor; wait is called once
    per output on one Work."""
    mine = torch.full((3,), float(rank))
    group = list(range(size))
    gathered = fc.all_gather_tensor(mine, 0, group)
    same(gathered.clone(), torch.arange(float(size)).repeat_interleave(3))
    outputs = fc.all_gather_into_tensor_coalesced([mine, mine, mine], group)
    for output in outputs:
        same(fc.wait_tensor(output).clone(), torch.arange(float(size)).repeat_interleave(3))
        fc.wait_tensor(output)
    same(fc.reduce_scatter_tensor(torch.ones(size), "avg", 0, group).clone(), torch.ones(1))


def test_barrier_of_any_form(size):
    """A barrier arrives under the CPU key, with or without device_ids, and without its device."""
    dist.barrier()
    dist.barrier(device_ids=[0])
    assert dist.barrier(async_op=True).wait()


def test_conjugated_tensors_arrive_as_they_are(rank, backend):
    """With the conjugation unresolved. test_dtypes.py has other layouts."""
    conjugated = torch.full((4,), complex(rank, 1)).conj()
    backend.broadcast([conjugated], dist.BroadcastOptions()).wait()  # torch's own broadcast rejects it
    same(conjugated.resolve_conj(), torch.full((4,), complex(0, -1)))


def test_default_backend_is_registered(size):
    """Hooks, sequence numbers and destroy fail silently on a pg with an undefined default backend."""
    assert dist.group.WORLD.name() == "custom"
    assert not dist.group.WORLD._has_hooks()
    group = dist.new_group(backend="cpu:mpi-gdr,cuda:mpi-gdr")
    assert group.name() == "custom"
    dist.destroy_process_group(group)


def test_one_backend_serves_all_devices(backend):
    """Names, timing and the like are set once per device on the same object; shutdown is called once."""
    assert dist.group.WORLD._get_backend(torch.device("cuda")) is backend


@pytest.mark.ranks(2)
def test_group_ids_that_differ_between_ranks(rank, size):
    """use_local_synchronization after unequal numbers of groups: ids differ, members are the same."""
    mine = [dist.new_group([rank], use_local_synchronization=True) for _ in range(rank)]
    group = dist.new_group(list(range(size)), use_local_synchronization=True)
    check_sum(size, group)
    for made in [*mine, group]:
        dist.destroy_process_group(made)
