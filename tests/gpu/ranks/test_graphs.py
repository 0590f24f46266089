"""Collectives inside graphs: torch.cuda.graph, and the simulated accelerator's.

Without shared device memory, only what cannot be captured is tested.
"""

import datetime
import os

import pytest
import torch
import torch.distributed as dist
from support.gpu import (
    COUNT,
    DEVICE,
    ON_CUDA,
    ON_SIMGPU,
    captured,
    check,
    full,
    late,
    new_graph,
    note,
    on_device,
    streams,
    synchronize,
    use,
)
from support.works import wait_all
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.streams
BLOCKING = os.environ.get("MPI_GDR_BLOCKING_WAIT") == "on"
SHARED = os.environ.get("MPI_GDR_IPC", "auto") != "off"


@pytest.fixture(autouse=True)
def warm_up(rank, size):
    """A group's first collective on a device blocks, which a capture does not allow."""
    dist.all_reduce(torch.ones(10, device=DEVICE))
    synchronize()


class Several:
    """Collectives of all kinds in one graph, with kernels before, between and after."""

    def __init__(self, size, count=COUNT):
        self.size, self.count = size, count
        self.given = torch.zeros(count, device=DEVICE)
        self.graph = new_graph()
        with captured(self.graph):
            self.record()

    def record(self):
        size, count = self.size, self.count
        self.total = self.given * 2
        dist.all_reduce(self.total)
        self.total += 1
        self.mean = self.total + self.given
        dist.all_reduce(self.mean, op=dist.ReduceOp.AVG)
        self.blocks = torch.zeros(size * count, device=DEVICE)
        dist.all_gather_into_tensor(self.blocks, self.given)
        self.part = torch.zeros(count, device=DEVICE)
        dist.reduce_scatter_tensor(self.part, self.blocks * 3)
        self.part *= 2
        self.swapped = torch.zeros(size * count, device=DEVICE)
        dist.all_to_all_single(self.swapped, self.blocks + 1)
        self.sent = self.given + 5
        dist.broadcast(self.sent, src=size - 1)
        self.parts = [(dist.get_rank() + r) % 3 for r in range(size)]  # to and from rank r
        self.routed = torch.zeros(sum(self.parts), device=DEVICE)
        dist.all_to_all_single(self.routed, self.given[: sum(self.parts)], self.parts, self.parts)
        self.result = self.sent + self.part

    def replay(self, values):
        """`values`: by rank."""
        self.given.fill_(values[dist.get_rank()])
        self.graph.replay()

    def check(self, values):
        rank, size, count = dist.get_rank(), self.size, self.count
        total = 2 * sum(values) + 1
        check(self.total, full(total, count))
        check(self.mean, full(total + sum(values) / size, count), rounds=True)
        by_rank = torch.tensor([float(v) for v in values])
        check(self.blocks, by_rank.repeat_interleave(count))
        check(self.swapped, full(values[rank] + 1, size * count))
        part = 2 * 3 * size * values[rank]
        check(self.part, full(part, count))
        check(self.routed, by_rank.repeat_interleave(torch.tensor(self.parts)))
        check(self.result, full(values[-1] + 5 + part, count))


def values_of(size, i):
    return [4 * r + i for r in range(size)]


def test_every_kind_among_kernels(rank, size):
    several = Several(size)
    for i in range(50):
        several.replay(values_of(size, i))
        several.check(values_of(size, i))
    note("collectives in a graph", "captured and replayed")


def test_replays_beside_what_is_not_captured(rank, size):
    several, eager = Several(size), []
    first, second = streams(2)
    for i in range(50):
        with use(first):
            if i % 3 == 0:
                eager.append((dist.all_reduce(tensor := late(500, i, 1), async_op=True), tensor, i))
            several.replay(values_of(size, i))
            if i % 3 == 1:
                with use(second):
                    eager.append((dist.all_reduce(tensor := late(700, i, 1), async_op=True), tensor, i))
            copies = [several.total.clone(), several.part.clone()]
            check(copies[0], full(2 * sum(values_of(size, i)) + 1))
            check(copies[1], full(6 * size * values_of(size, i)[rank]))
    for work, tensor, i in eager:
        work.wait()
        check(tensor, full(i * size, len(tensor)))


def test_replays_in_a_row(rank, size):
    total = on_device(0.0)
    graph = new_graph()
    with captured(graph):
        step = torch.ones(COUNT, device=DEVICE)
        dist.all_reduce(step)
        total += step
    synchronize()
    total.zero_()
    for _ in range(200):
        graph.replay()
    check(total, full(200 * size))


def test_two_graphs_in_turn(rank, size):
    small, large = Several(size, 2 * size + 1), Several(size, 40_000)
    for i in range(20):
        for several in (small, large) if i % 3 else (large, small):
            several.replay(values_of(size, i))
        dist.all_reduce(between := on_device(i))
        for several in (small, large):
            several.check(values_of(size, i))
        check(between, full(i * size))


@pytest.mark.parametrize("how", ["work", "future"])
def test_asynchronous_and_temporary(rank, size, how):
    """Results are awaited later; inputs and contiguous copies of strided tensors are freed by then."""

    def wait(work):
        (work if how == "work" else work.get_future()).wait()

    given = torch.zeros(COUNT, device=DEVICE)
    strided = torch.zeros(2 * COUNT, device=DEVICE)
    blocks = torch.zeros(size * COUNT, device=DEVICE)
    outputs = [torch.zeros(COUNT, device=DEVICE) for _ in range(size)]
    graph = new_graph()
    with captured(graph):
        strided[::2] = given
        works = [
            dist.all_gather_into_tensor(blocks, given + 1, async_op=True),
            dist.all_reduce(strided[::2], async_op=True),
        ]
        assert all(work.is_completed() for work in works)
        others = [torch.full((COUNT,), -7.0, device=DEVICE) for _ in range(4)]
        for work in works:
            wait(work)
        del works, work, others
        again = [torch.full((COUNT,), -8.0, device=DEVICE) for _ in range(4)]
        work = dist.all_gather(outputs, given * 3, async_op=True)
        doubled = blocks * 2
        wait(work)
        summed = strided + outputs[0].repeat(2)
    for i in range(20):
        strided.fill_(-1)
        given.fill_(rank + i)
        graph.replay()
        check(doubled, torch.arange(i + 1.0, size + i + 1).repeat_interleave(COUNT) * 2)
        expected = torch.full((2 * COUNT,), -1.0)
        expected[::2] = sum(values_of(size, 0)) / 4 + i * size
        check(summed, expected + 3 * i)
        for r, output in enumerate(outputs):
            check(output, full(3 * (r + i)))
    check(again[0], full(-8))


def test_a_block_in_a_graph(rank, size):
    first, second = torch.zeros(COUNT, device=DEVICE), torch.zeros(50, device=DEVICE)
    group = dist.group.WORLD
    graph = new_graph()
    with captured(graph):
        group._start_coalescing(DEVICE)
        dist.all_reduce(first, async_op=True)
        dist.all_reduce(second, async_op=True)
        group._end_coalescing(DEVICE).wait()
        result = first[:50] + second
    for i in range(5):
        first.fill_(i)
        second.fill_(rank)
        graph.replay()
        check(result, full(i * size + sum(range(size)), 50))


def test_groups_in_one_graph(rank, size):
    pair = dist.new_group()
    tensor = torch.ones(COUNT, device=DEVICE)
    dist.all_reduce(tensor, group=pair)
    graph = new_graph()
    with captured(graph):
        one, two = tensor * 1, tensor * 2
        works = [dist.all_reduce(one, async_op=True), dist.all_reduce(two, group=pair, async_op=True)]
        wait_all(*reversed(works))
        result = one + two
    for i in range(30):
        tensor.fill_(i)
        graph.replay()
        check(result, full(3 * i * size))
    dist.destroy_process_group(pair)


def test_a_step_of_ddp(rank, size):
    """Forward, backward with its all_reduces, optimizer: replayed, and compared with uncaptured steps."""
    side = torch.cuda.Stream() if ON_CUDA else streams(1)[0]  # torch.cuda.graph requires this kind
    side.wait_stream(torch.accelerator.current_stream())
    inputs, targets = torch.zeros(8, 20, device=DEVICE), torch.zeros(8, 5, device=DEVICE)

    def model():
        torch.manual_seed(3)
        layers = [torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5)]
        net = DistributedDataParallel(torch.nn.Sequential(*layers).to(DEVICE), bucket_cap_mb=0.01)
        return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(net, optimizer):
        optimizer.zero_grad(set_to_none=True)
        ((net(inputs) - targets) ** 2).mean().backward()
        optimizer.step()

    def batch(i):
        torch.manual_seed(100 * i + rank)
        inputs.copy_(torch.randn(8, 20))
        targets.copy_(torch.randn(8, 5))

    with use(side):
        replayed, plain = model(), model()
        for i in range(11):  # torch requires it
            batch(i)
            step(*replayed)
            step(*plain)
    graph = new_graph()
    with captured(graph, side):
        step(*replayed)
    with use(side):
        for i in range(11, 31):
            batch(i)
            graph.replay()
            step(*plain)
            for one, other in zip(replayed[0].parameters(), plain[0].parameters(), strict=True):
                torch.testing.assert_close(one, other)
    synchronize()
    parameter = next(replayed[0].parameters()).detach()
    everywhere = torch.zeros(size, *parameter.shape, device=DEVICE)
    dist.all_gather_into_tensor(everywhere, parameter)
    for other in everywhere:
        check(other, parameter.cpu())


def test_what_cannot_be_captured(rank, size):
    tensor = on_device(rank)
    earlier = dist.all_reduce(on_device(1), async_op=True)
    graph = new_graph()
    with captured(graph):
        kept = tensor + 1
        with pytest.raises(ValueError, match=r"barrier: the current stream is being captured"):
            dist.barrier()
        with pytest.raises(ValueError, match=r"wait: the current stream is being captured.*outside of it"):
            earlier.wait()
        if size > 1:
            with pytest.raises(ValueError, match=r"send: the current stream is being captured.*messages"):
                dist.isend(tensor, (rank + 1) % size)
            with pytest.raises(ValueError, match=r"recv: the current stream is being captured.*messages"):
                dist.irecv(tensor, (rank - 1) % size)
            if not SHARED and not BLOCKING:
                with pytest.raises(ValueError, match=r"all_reduce: .*cannot replay.*uses messages"):
                    dist.all_reduce(tensor)
                with pytest.raises(ValueError, match=r"all_to_all.*: .*cannot replay.*uses messages"):
                    splits = [0] * (size - 1) + [COUNT]
                    dist.all_to_all_single(torch.zeros_like(tensor), tensor, splits, splits)
        if BLOCKING:
            with pytest.raises(ValueError, match=r"all_reduce: .*BLOCKING_WAIT"):
                dist.all_reduce(tensor)
    earlier.wait()
    graph.replay()
    check(kept, full(rank + 1))
    dist.barrier()
    dist.all_reduce(tensor)
    check(tensor, full(sum(range(size))))


def test_what_cannot_be_waited_for(rank, size):
    tensor = on_device(1)
    graph = new_graph()
    with captured(graph):
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(ValueError, match=r"CPU cannot wait.*timeout"):
            work.wait(datetime.timedelta(seconds=1))
        work.wait()
    with pytest.raises(ValueError, match="wait inside the capture"):
        work.wait()
    graph.replay()
    check(tensor, full(size))


def test_a_group_that_has_not_been_used(rank, size):
    group, other = dist.new_group(), dist.new_group()
    tensor = on_device(1)
    if size > 1:  # on the device, but not a collective
        send = dist.isend(tensor, (rank + 1) % size, group=other)
        wait_all(send, dist.irecv(on_device(0), (rank - 1) % size, group=other))
    with captured(new_graph()):
        tensor * 2
        with pytest.raises(ValueError, match=r"has not been used on .*: run one collective of it"):
            dist.all_reduce(tensor, group=group)
        if size > 1:
            with pytest.raises(ValueError, match=r"first collective of group .*: run one of it before"):
                dist.all_reduce(tensor, group=other)
    dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor, group=other)
    check(tensor, full(size * size))
    dist.destroy_process_group(group)
    dist.destroy_process_group(other)


def test_a_result_without_a_waiter(rank, size):
    if not ON_SIMGPU or size == 1:  # it leaves a failed capture behind; a single rank captures nothing
        return
    tensor = on_device(1)
    with pytest.raises(RuntimeError, match="unjoined work"), captured(new_graph()):
        dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(tensor)
    check(tensor, full(size))


@pytest.mark.ranks(2)
def test_a_replay_that_hangs_ends_with_its_group(rank, size):
    """Only rank 0 replays."""
    group = dist.new_group()
    tensor = on_device(1)
    dist.all_reduce(tensor, group=group)
    graph = new_graph()
    with captured(graph):
        dist.all_reduce(tensor, group=group)
    tensor.fill_(1)
    graph.replay()
    check(tensor, full(size))
    synchronize()
    dist.barrier()
    if rank == 0:
        graph.replay()
        group._get_backend(DEVICE).abort()
        synchronize()
        with pytest.raises(RuntimeError, match="aborted"):
            dist.all_reduce(tensor, group=group)
    dist.barrier()
    dist.all_reduce(tensor.fill_(1))
    check(tensor, full(size))
