"""send, recv and their asynchronous forms: tags, any source, batches, sizes beyond eager buffers. A rank as
its own peer: test_messages_to_oneself.py."""

import os

import pytest
import torch
import torch.distributed as dist
from support.data import COUNTS, DTYPES, same, sample
from support.works import wait_all


def neighbours(rank, size):
    return (rank + 1) % size, (rank - 1) % size


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
def test_blocking_pairs(rank, size, dtype):
    """Even ranks send first. An odd last rank does not take part."""
    partner = rank ^ 1
    if partner >= size:
        return
    for count in COUNTS:
        mine, theirs = sample(dtype, count, rank), torch.empty(count, dtype=dtype)
        if rank % 2 == 0:
            dist.send(mine, partner, tag=count)
            source = dist.recv(theirs, partner, tag=count)
        else:
            source = dist.recv(theirs, partner, tag=count)
            dist.send(mine, partner, tag=count)
        assert source == partner
        same(theirs, sample(dtype, count, partner))


@pytest.mark.smoke
@pytest.mark.algorithms
@pytest.mark.ranks(2)
def test_tags_are_matched_not_order(rank, size):
    right, left = neighbours(rank, size)
    sends = [dist.isend(torch.full((3,), 100 * rank + t), right, tag=t) for t in range(6)]
    for tag in reversed(range(6)):
        got = torch.empty(3, dtype=torch.int64)
        dist.recv(got, left, tag=tag)
        assert got.tolist() == [100 * left + tag] * 3
    wait_all(*sends)


@pytest.mark.algorithms
@pytest.mark.ranks(2)
def test_messages_inside_a_node_take_the_path_that_was_asked_for(size):
    by_mpi = os.environ.get("MPI_GDR_SHM") == "off" or os.environ.get("MPI_GDR_P2P") == "mpi"
    by_mpi |= 0 < int(os.environ.get("MPI_GDR_RANKS_PER_NODE", "0")) < size  # not inside a node at all
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.message_path == ("mpi" if by_mpi else "shm")


@pytest.mark.algorithms
@pytest.mark.ranks(2)
def test_same_tag_keeps_order(rank, size):
    right, left = neighbours(rank, size)
    received = [torch.empty(5, dtype=torch.int64) for _ in range(30)]
    receives = [dist.irecv(t, left, tag=3) for t in received]
    wait_all(*[dist.isend(torch.full((5,), i), right, tag=3) for i in range(30)], *receives)
    assert [t[0].item() for t in received] == list(range(30))


@pytest.mark.algorithms
@pytest.mark.parametrize("blocking", [True, False])
def test_any_source(rank, size, blocking):
    for collector in range(size):
        if rank == collector:
            seen = {}
            for _ in range(size - 1):
                got = torch.empty(4, dtype=torch.int64)
                if blocking:
                    source = dist.recv(got, tag=collector)
                else:
                    work = dist.irecv(got, tag=collector)
                    work.wait()
                    source = work._source_rank()
                seen[source] = got.tolist()
            assert seen == {r: [r * 7] * 4 for r in range(size) if r != rank}
        else:
            dist.send(torch.full((4,), rank * 7), collector, tag=collector)


@pytest.mark.ranks(3)
def test_any_source_in_a_subgroup_gives_the_global_rank(rank, size):
    """c10d's recv(src=None, group=...) translates the group's rank."""
    group = dist.new_group([1, 2])
    if rank == 1:
        got = torch.zeros(1)
        assert dist.recv(got, group=group) == 2
        assert got.item() == 42
    elif rank == 2:
        dist.send(torch.tensor([42.0]), 1, group=group)
    if rank in (1, 2):
        dist.destroy_process_group(group)


@pytest.mark.smoke
@pytest.mark.algorithms
@pytest.mark.ranks(2)
def test_batch_isend_irecv(rank, size):
    right, left = neighbours(rank, size)
    outgoing = [torch.full((n,), float(rank)) for n in (1, 1000, 100000)]
    incoming = [torch.empty(n) for n in (1, 1000, 100000)]
    batch = [dist.P2POp(dist.isend, t, right) for t in outgoing]
    batch += [dist.P2POp(dist.irecv, t, left) for t in incoming]
    wait_all(*dist.batch_isend_irecv(batch))
    for tensor in incoming:
        same(tensor, torch.full_like(tensor, float(left)))


@pytest.mark.smoke
@pytest.mark.algorithms
@pytest.mark.ranks(2)
def test_large_isends_to_each_other_do_not_block(rank, size):
    """64 MiB exceed any library's buffers: isend must return before the receive is posted."""
    right, left = neighbours(rank, size)
    outgoing = torch.full((16 << 20,), float(rank))
    send = dist.isend(outgoing, right)
    incoming = torch.empty_like(outgoing)
    dist.irecv(incoming, left).wait()
    send.wait()
    assert (incoming == left).all()


@pytest.mark.ranks(2)
def test_messages_pass_collectives(rank, size):
    """A pending receive blocks no collective, and neither matches the other's traffic."""
    right, left = neighbours(rank, size)
    incoming = torch.empty(9)
    receive = dist.irecv(incoming, left, tag=1)
    tensor = torch.ones(1000)
    for _ in range(5):
        dist.all_reduce(tensor)
    assert not receive.is_completed()
    dist.barrier()
    dist.send(torch.full((9,), float(rank)), right, tag=1)
    receive.wait()
    same(incoming, torch.full((9,), float(left)))
    same(tensor, torch.full((1000,), float(size) ** 5))
