"""Undocumented requirements of torch 2.11-2.15 on a backend. Each test names the trap that it pins.

Traps of registration (the default backend of "cpu:mpi-gdr,cuda:mpi-gdr", both entry-point groups, a list of
devices) are in test_autoload.py and test_zz_lifecycle.py; those of the build (torch's own pybind11, no build
isolation) in test_build.py.
"""

import copy
import datetime
import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from support.data import check_sum, same
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as fsdp

CPU = torch.device("cpu")


@pytest.fixture
def bound_to_a_device():
    """As after init_process_group(device_id=...), which a CPU-only torch rejects."""
    world = dist.group.WORLD
    world.bound_device_id = torch.device("cuda", 0)
    yield
    world.bound_device_id = None


def test_new_group_with_a_bound_device(rank, size, backend, bound_to_a_device):
    """supports_splitting makes torch call perform_nocolor_split() on ranks outside of a new group, else
    AttributeError. Without splitting, DeviceMesh fails instead: hence both."""
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


def test_the_future_of_a_work_holds_a_list_of_tensors(size):
    """DDP uses only getFuture(), and its fp16 hook asserts a list of tensors."""
    tensor = torch.ones(4)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    same(future.then(lambda f: f.value()[0].div(2)).wait(), torch.full((4,), size / 2))


def test_sequence_numbers_of_debug_detail(backend):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL sets it at construction and reads it at every collective."""
    backend._set_sequence_number_for_group()
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 1


def test_barrier_of_any_form(size):
    """A barrier arrives under the CPU key, with or without device_ids, and without its device."""
    dist.barrier()
    dist.barrier(device_ids=[0])
    assert dist.barrier(async_op=True).wait()


def test_unset_timeouts_mean_the_one_of_the_group(size, backend):
    """opts.timeout is -1 for "the group's": taken literally, it would end everything at once."""
    options = dist.AllreduceOptions()
    assert options.timeout.total_seconds() < 0
    tensor = torch.ones(2)
    backend.allreduce([tensor], options).wait()
    same(tensor, torch.full((2,), float(size)))


def test_coalescing_is_begun_without_asking(backend):
    """_coalescing_manager(device=...) does not check supports_coalescing; batch_isend_irecv does."""
    assert backend.supports_coalescing
    with dist._coalescing_manager(device=CPU):
        dist.all_reduce(torch.ones(1))


def test_tensors_arrive_as_they_are(rank, size, backend):
    """Strided tensors, views of complex ones, and scalars reach the backend unchanged."""
    complex_values = torch.full((4,), complex(rank, 1))
    dist.all_reduce(complex_values)
    same(complex_values, torch.full((4,), complex(sum(range(size)), size)))
    conjugated = torch.full((4,), complex(rank, 1)).conj()
    backend.broadcast([conjugated], dist.BroadcastOptions()).wait()  # torch's own broadcast rejects it
    same(conjugated.resolve_conj(), torch.full((4,), complex(0, -1)))
    column = torch.full((5, 5), float(rank))[:, 2]
    dist.all_reduce(column)
    same(column.contiguous(), torch.full((5,), float(sum(range(size)))))


def test_premul_sum_carries_a_number_or_a_tensor(rank, size):
    """FSDP2 with a divide factor sends PREMUL_SUM, whose supplement's class was renamed between releases."""
    make = getattr(torch._C._distributed_c10d, "_make_nccl_premul_sum", None) or dist._make_premul_sum
    for factor in (0.5, torch.tensor(0.5)):
        tensor = torch.full((3,), 4.0)
        dist.all_reduce(tensor, op=make(factor))
        same(tensor, torch.full((3,), 2.0 * size))


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


def test_memory_of_the_group_as_fsdp_asks(size, backend):
    """FSDP2 first checks supports_tensor_alloc(device) and falls back; the CPU device has no index."""
    allocator = fsdp.ProcessGroupAllocMixin(dist.group.WORLD)
    tensor = allocator.allocate(torch.Size([10, 3]), dtype=torch.bfloat16, device=CPU)
    assert tensor.dtype == torch.bfloat16 and tensor.numel() == 30


def test_multiprocess_checkpoints_use_the_group_from_another_thread(rank, size):
    """DCP's async_save gathers and scatters in a background thread during training, on its own group: two
    groups never wait for each other."""
    saving = dist.new_group()
    results = []

    def save():
        for _ in range(10):
            gathered = [None] * size if rank == 0 else None
            dist.gather_object({"rank": rank}, gathered, group=saving)
            plan, plans = [None], [f"plan {r}" for r in range(size)] if rank == 0 else None
            dist.scatter_object_list(plan, plans, group=saving)
            results.append((gathered, plan[0]))

    thread = threading.Thread(target=save)
    thread.start()
    for _ in range(50):
        check_sum(size)
    thread.join()
    assert len(results) == 10
    for gathered, plan in results:
        assert plan == f"plan {rank}"
        assert rank != 0 or gathered == [{"rank": r} for r in range(size)]
    dist.destroy_process_group(saving)
