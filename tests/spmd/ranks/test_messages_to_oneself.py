"""isend, irecv and batches with the rank itself as peer, as in pipelines with two stages on a rank. torch's
send and recv reject it."""

import pytest
import torch
import torch.distributed as dist
from support.works import wait_all

SIZES = (0, 1, 1000, 50_000, 3_000_000)  # float32: up to 128 KiB are buffered inside a node


def expect(tensor, value):
    assert bool((tensor == value).all()), (tensor.numel(), value)


@pytest.mark.smoke
@pytest.mark.algorithms
@pytest.mark.parametrize("order", ["send first", "receive first", "batch"])
def test_every_size_and_order(rank, order):
    for count in SIZES:
        sent, got = torch.full((count,), rank + 1.0), torch.zeros(count)
        send = dist.P2POp(dist.isend, sent, rank, tag=count % 7)
        receive = dist.P2POp(dist.irecv, got, rank, tag=count % 7)
        if order == "batch":
            works = dist.batch_isend_irecv([send, receive])
        else:
            calls = [send, receive] if order == "send first" else [receive, send]
            works = [call.op(call.tensor, rank, tag=call.tag) for call in calls]
        wait_all(*reversed(works))
        expect(got, rank + 1)


@pytest.mark.algorithms
def test_order_within_a_tag_and_any_source(rank):
    values = [torch.full((1000 * (1 + i % 50),), float(i)) for i in range(100)]
    got = [torch.zeros_like(value) for value in values]
    sends = [dist.isend(value, rank, tag=i % 2) for i, value in enumerate(values)]
    receives = [dist.irecv(g, None if i % 3 == 0 else rank, tag=i % 2) for i, g in enumerate(got)]
    wait_all(*reversed(sends + receives))
    for i, g in enumerate(got):
        expect(g, i)
        assert i % 3 or receives[i]._source_rank() == rank


@pytest.mark.algorithms
def test_all_to_all_by_messages(rank, size):
    for scale in (1, 20_000):
        sent = [torch.full(((rank + 2 * to) % 5 * scale,), 10.0 * rank + to) for to in range(size)]
        got = [torch.zeros((source + 2 * rank) % 5 * scale) for source in range(size)]
        calls = [dist.P2POp(dist.isend, t, to) for to, t in enumerate(sent)]
        calls += [dist.P2POp(dist.irecv, got[source], source) for source in reversed(range(size))]
        wait_all(*dist.batch_isend_irecv(calls))
        for source in range(size):
            expect(got[source], 10 * source + rank)


def test_groups(rank, size):
    """A group of this rank alone, and of all in reverse order: the rank in the group differs."""
    groups = [dist.new_group([r]) for r in range(size)]
    reverse = dist.new_group(list(reversed(range(size))), sort_ranks=False) if size > 1 else None
    for group in filter(None, (groups[rank], reverse)):
        got = torch.zeros(70_000)
        wait_all(dist.isend(torch.full_like(got, rank + 5.0), rank, group), dist.irecv(got, rank, group))
        expect(got, rank + 5)
