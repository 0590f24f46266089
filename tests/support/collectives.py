"""Collectives with their expected results, for test_grid.py and the soak.

Each function issues its collective on a Call. It returns a list of works, which may be None, and a list of
(result, expected).
"""

import torch
import torch.distributed as dist

WHOLE = ["all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "send_recv"]  # without blocks per rank


class Call:
    """One call on this rank. Its subclass sets group, rank, size, count, dtype, root, shift, in_place,
    asynchronous and reduce_op.

    `rank`, `root`: in the group. `count`: elements of a block, or of a tensor without blocks.
    """

    parts = 2  # of a coalesced call
    FILL = 4  # a value that no input has
    keeps_inputs = True  # c10d leaves it open whether reduce() changes those of ranks other than the root

    def expected(self, rank, block=0):
        """`rank`'s contribution (for `block`). A view: tensor() copies it."""
        raise NotImplementedError

    def reduced(self, block=0):
        """The reduction of all contributions."""
        raise NotImplementedError

    def tensor(self, rank, block=0):
        return self.expected(rank, block).clone()

    def empty(self, blocks=1):
        """An output buffer."""
        return torch.full((blocks * self.count,), self.FILL).to(self.dtype)

    def keywords(self):
        return {"group": self.group, "async_op": self.asynchronous}


def all_reduce(c):
    tensor = c.tensor(c.rank)
    work = dist.all_reduce(tensor, c.reduce_op, **c.keywords())
    return [work], [(tensor, c.reduced())]


def all_reduce_coalesced(c):
    tensors = [c.tensor(c.rank, block) for block in range(c.parts)]
    with dist._coalescing_manager(c.group, async_ops=c.asynchronous) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, c.reduce_op, c.group)
    works = [manager] if c.asynchronous else []
    return works, [(tensor, c.reduced(block)) for block, tensor in enumerate(tensors)]


def reduce(c):
    tensor = c.tensor(c.rank)
    work = dist.reduce(tensor, op=c.reduce_op, group_dst=c.root, **c.keywords())
    if c.rank == c.root:
        return [work], [(tensor, c.reduced())]
    return [work], [(tensor, c.expected(c.rank))] if c.keeps_inputs else []


def reduce_scatter(c):
    inputs = [c.tensor(c.rank, block) for block in range(c.size)]
    output = c.empty()
    work = dist.reduce_scatter(output, inputs, c.reduce_op, **c.keywords())
    return [work], [(output, c.reduced(c.rank))]


def reduce_scatter_tensor(c):
    data = torch.cat([c.expected(c.rank, block) for block in range(c.size)])
    output = data[c.rank * c.count : (c.rank + 1) * c.count] if c.in_place else c.empty()
    work = dist.reduce_scatter_tensor(output, data, c.reduce_op, **c.keywords())
    return [work], [(output, c.reduced(c.rank))]


def broadcast(c):
    tensor = c.tensor(c.root) if c.rank == c.root else c.empty()
    work = dist.broadcast(tensor, group_src=c.root, **c.keywords())
    return [work], [(tensor, c.expected(c.root))]


def all_gather(c):
    outputs = [c.empty() for _ in range(c.size)]
    own = outputs[c.rank].copy_(c.expected(c.rank)) if c.in_place else c.tensor(c.rank)
    work = dist.all_gather(outputs, own, **c.keywords())
    return [work], [(output, c.expected(rank)) for rank, output in enumerate(outputs)]


def all_gather_into_tensor(c):
    output, own = c.empty(c.size), c.tensor(c.rank)
    if c.in_place:
        own = output[c.rank * c.count : (c.rank + 1) * c.count].copy_(own)
    work = dist.all_gather_into_tensor(output, own, **c.keywords())
    return [work], [(output, torch.cat([c.expected(rank) for rank in range(c.size)]))]


def gather(c):
    outputs = [c.empty() for _ in range(c.size)] if c.rank == c.root else None
    work = dist.gather(c.tensor(c.rank), outputs, group_dst=c.root, **c.keywords())
    return [work], [(output, c.expected(rank)) for rank, output in enumerate(outputs or [])]


def scatter(c):
    inputs = [c.tensor(c.rank, block) for block in range(c.size)] if c.rank == c.root else None
    output = c.empty()
    work = dist.scatter(output, inputs, group_src=c.root, **c.keywords())
    return [work], [(output, c.expected(c.root, c.rank))]


def all_to_all(c):
    outputs = [c.empty() for _ in range(c.size)]
    work = dist.all_to_all(outputs, [c.tensor(c.rank, b) for b in range(c.size)], **c.keywords())
    return [work], [(output, c.expected(rank, c.rank)) for rank, output in enumerate(outputs)]


def all_to_all_single(c):
    data = torch.cat([c.expected(c.rank, block) for block in range(c.size)])
    output = c.empty(c.size)
    work = dist.all_to_all_single(output, data, **c.keywords())
    return [work], [(output, torch.cat([c.expected(rank, c.rank) for rank in range(c.size)]))]


def send_recv(c):
    to, source = (c.rank + c.shift) % c.size, (c.rank - c.shift) % c.size
    if to == c.rank:
        return [], []
    received = c.empty()
    if c.asynchronous:
        works = [dist.irecv(received, group=c.group, group_src=source)]
        works.append(dist.isend(c.tensor(c.rank), group=c.group, group_dst=to))
    else:
        works = [dist.isend(c.tensor(c.rank), group=c.group, group_dst=to)]
        dist.recv(received, group=c.group, group_src=source)
    return works, [(received, c.expected(source))]


FUNCTIONS = {f.__name__: f for f in (
    all_reduce, all_reduce_coalesced, reduce, reduce_scatter, reduce_scatter_tensor,
    broadcast, all_gather, all_gather_into_tensor, gather, scatter, all_to_all, all_to_all_single, send_recv,
)}  # fmt: skip
