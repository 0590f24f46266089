"""Patterns of groups and handles in Megatron-like code."""

import datetime

import pytest
import torch
import torch.distributed as dist
from support.works import wait_all


def total(ranks):
    return float(sum(r + 1 for r in ranks))


@pytest.mark.mesh
@pytest.mark.detail
def test_grid_of_groups(rank, size):
    """Overlapping tensor, data and pipeline groups, a rank in one of each, all in flight together."""
    tensor, _ = dist.new_subgroups(group_size=2)
    data, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    pairs = [dist.new_group([a, b]) for a, b in ((0, 3), (1, 2))]
    pipeline = pairs[0] if rank in (0, 3) else pairs[1]
    members = [dist.get_process_group_ranks(g) for g in (tensor, data, pipeline, dist.group.WORLD)]
    assert members[0] == [rank // 2 * 2, rank // 2 * 2 + 1] and members[1] == [rank % 2, rank % 2 + 2]
    groups = [tensor, data, pipeline, dist.group.WORLD]
    # Every rank starts and waits in other orders.
    order = [(i + rank) % 4 for i in range(4)]
    tensors = [torch.full((5000,), float(rank + 1)) for _ in groups]
    works = {i: dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order}
    for i in reversed(order):
        works[i].wait()
    for values, ranks in zip(tensors, members, strict=True):
        assert (values == total(ranks)).all()
    for group in groups[:-1]:
        dist.destroy_process_group(group)


@pytest.mark.mesh
def test_local_synchronisation(rank, size):
    """use_local_synchronization: only the members call new_group."""
    if rank in (1, 3):
        group = dist.new_group([1, 3], use_local_synchronization=True)
        value = torch.tensor([float(rank + 1)])
        dist.all_reduce(value, group=group)
        assert value.item() == total([1, 3])
        assert dist.get_group_rank(group, 3) == 1
        dist.destroy_process_group(group)
    dist.barrier()


@pytest.mark.mesh
@pytest.mark.detail
def test_rings_of_messages(rank, size):
    """Ring attention: blocks circulate by batch_isend_irecv in both directions at once."""
    after, before = (rank + 1) % size, (rank - 1) % size
    forward, backward = (torch.full((3000,), float(rank)) for _ in range(2))
    for step in range(1, size + 1):
        from_before, from_after = torch.empty(3000), torch.empty(3000)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, forward, after),
            dist.P2POp(dist.irecv, from_before, before),
            dist.P2POp(dist.isend, backward, before),
            dist.P2POp(dist.irecv, from_after, after),
        ])  # fmt: skip
        wait_all(*works)
        forward, backward = from_before, from_after
        assert (forward == (rank - step) % size).all() and (backward == (rank + step) % size).all()


def test_monitored_barrier_is_refused_by_torch():
    with pytest.raises(ValueError, match="monitored_barrier is only implemented for GLOO"):
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=5))
