"""Wrong use raises an error with argument, value and expectation, and affects no later call."""

import contextlib
import os
import re

import pytest
import torch
import torch.distributed as dist
from support.data import check_sum

pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True)
def still_works(size):
    """Checks that an error of usage leaves the group intact."""
    yield
    check_sum(size)


# ---- the table: (call, exception, message) -----------------------------------------------------------------
#
# `b`: backend, `n`: number of ranks, `me`: this rank. No call may send anything: each rank errs alone, and
# the fixture above checks the group afterwards.


def floats(*sizes):
    return [torch.ones(size) for size in sizes]


def options(kind, root):
    made = kind()
    made.rootRank = root
    return made


META = torch.empty(3, device="meta")
DOUBLE = torch.ones(3, dtype=torch.float64)
EXPANDED = torch.ones(1).expand(3)
SUM = dist.ReduceOp.SUM
GATHER, SCATTER, PARTS = dist.GatherOptions, dist.ScatterOptions, dist.ReduceScatterOptions
EVERY_TAG = "OMPI_COMM_WORLD_SIZE" in os.environ  # Open MPI allows 2**31 - 1

WRONG = {
    # numbers of tensors
    "all_reduce of none": (lambda b, n, me: b.allreduce([]),
         "all_reduce: tensors holds 0 tensors, expected 1"),
    "all_reduce of two": (lambda b, n, me: b.allreduce(floats(3, 3)), "all_reduce: tensors holds 2 tensors"),
    "broadcast of none": (lambda b, n, me: b.broadcast([], dist.BroadcastOptions()),
         "broadcast: tensors holds 0 tensors, expected 1"),
    "coalesced of none": (lambda b, n, me: b.allreduce_coalesced([]),
         "allreduce_coalesced: tensors is empty, expected at least one"),
    "send of two": (lambda b, n, me: b.send(floats(1, 1), (me + 1) % n, 0), "send: tensor holds 2 tensors"),
    "all_gather: long list": (lambda b, n, me: b.allgather([floats(*[2] * (n + 1))], floats(2)),
         r"all_gather: tensor_list holds {m} tensors, expected {n}, one per rank"),
    "all_gather: no list": (lambda b, n, me: b.allgather([], floats(2)),
         "output_tensors holds 0 lists, expected 1"),
    "reduce_scatter: long list": (
        lambda b, n, me: b.reduce_scatter(floats(2), [floats(*[2] * (n + 1))], PARTS()),
        "reduce_scatter: input_list holds {m} tensors, expected {n}"),
    "all_to_all: long output": (lambda b, n, me: b.alltoall(floats(*[2] * (n + 1)), floats(*[2] * n)),
         "all_to_all: output_tensor_list holds {m} tensors, expected {n}"),
    "all_to_all: empty input": (lambda b, n, me: b.alltoall(floats(*[2] * n), []),
         "all_to_all: input_tensor_list holds 0 tensors, expected {n}"),
    "all_gather_coalesced: lists": (lambda b, n, me: b.allgather_coalesced([floats(2)] * (n + 1), floats(2)),
         "output_tensor_lists holds {m} lists, expected {n}, one per rank"),
    "all_gather_coalesced: tensors": (lambda b, n, me: b.allgather_coalesced([floats(2, 2)] * n, floats(2)),
         "a list of output_tensor_lists holds 2 tensors, expected 1"),
    # roots
    "broadcast: root": (lambda b, n, me: b.broadcast(floats(3), options(dist.BroadcastOptions, -1)),
         r"broadcast: root=-1 is not a rank .*: expected 0\.\.{l}"),
    "reduce: root": (lambda b, n, me: b.reduce(floats(3), options(dist.ReduceOptions, 4711)),
         r"reduce: root=4711 is not a rank .*: expected 0\.\.{l}"),
    "gather: root": (lambda b, n, me: b.gather([], floats(3), options(GATHER, n)),
         r"gather: root={n} is not a rank .*: expected 0\.\.{l}"),
    "scatter: root": (lambda b, n, me: b.scatter(floats(3), [], options(SCATTER, -2)),
         r"scatter: root=-2 is not a rank .*: expected 0\.\.{l}"),
    "gather: no list on the root": (lambda b, n, me: b.gather([], floats(3), options(GATHER, me)),
         "gather: gather_list is missing on the root"),
    "gather: list elsewhere": (
        lambda b, n, me: n == 1 or b.gather([floats(*[3] * n)], floats(3), options(GATHER, (me + 1) % n)),
        "gather: gather_list holds {n} tensors on a rank that is not the root, expected none"),
    "scatter: no list on the root": (lambda b, n, me: b.scatter(floats(3), [], options(SCATTER, me)),
         "scatter: scatter_list is missing on the root"),
    "scatter: short list": (
        lambda b, n, me: b.scatter(floats(3), [floats(*[3] * (n - 1))], options(SCATTER, me)),
        "scatter: scatter_list holds {l} tensors, expected {n}"),
    # dtypes
    "all_gather: dtypes": (lambda b, n, me: b.allgather([[DOUBLE] * n], floats(3)),
         r"all_gather: tensor_list is float64\[3\] and tensor is float32\[3\], expected equal dtypes"),
    "all_gather_into_tensor: dtypes": (lambda b, n, me: b._allgather_base(torch.ones(3 * n), DOUBLE),
         "all_gather_into_tensor: output is float32.* and input is float64.*equal dtypes"),
    "gather: dtypes": (lambda b, n, me: b.gather([[DOUBLE] * n], floats(3), options(GATHER, me)),
         "gather: gather_list is float64.* and tensor is float32.*equal dtypes"),
    "all_to_all: dtypes": (lambda b, n, me: b.alltoall(floats(*[3] * n), [DOUBLE] * n),
         "all_to_all: input_tensor_list is float64.*equal dtypes"),
    "reduce_scatter_tensor: dtypes": (
        lambda b, n, me: b._reduce_scatter_base(DOUBLE, torch.ones(3 * n), PARTS()),
        "reduce_scatter_tensor: output is float64.* and input is float32"),
    # shapes
    "all_gather: own part": (lambda b, n, me: b.allgather([floats(*[3] * n)], floats(2)),
         r"all_gather: tensor_list\[{me}\], this rank's, is float32\[3\] and tensor is float32\[2\]"),
    "all_gather_into_tensor: size": (
        lambda b, n, me: b._allgather_base(torch.empty(2 * n + 1), torch.ones(2)),
        r"all_gather_into_tensor: output is float32\[\d+\] with \d+ elements, expected \d+"),
    "reduce_scatter_tensor: size": (
        lambda b, n, me: b._reduce_scatter_base(torch.empty(2), torch.empty(2 * n + 1), PARTS()),
        r"reduce_scatter_tensor: input is float32\[\d+\] with \d+ elements, expected \d+"),
    "reduce_scatter: own part": (
        lambda b, n, me: b.reduce_scatter(floats(2), [floats(*[3] * n)], PARTS()),
        r"reduce_scatter: input_list\[{me}\], this rank's, is float32\[3\] and output is float32\[2\]"),
    "gather: sizes": (lambda b, n, me: b.gather([floats(*[2] * n)], floats(3), options(GATHER, me)),
         r"gather: gather_list holds float32\[2\] where tensor is float32\[3\], expected as many elements"),
    "scatter: sizes": (lambda b, n, me: b.scatter(floats(3), [floats(*[2] * n)], options(SCATTER, me)),
         r"scatter: scatter_list holds float32\[2\] where tensor is float32\[3\]"),
    "all_to_all: own part": (lambda b, n, me: b.alltoall(floats(*[3] * n), floats(*[2] * n)),
         "all_to_all: this rank sends itself 8 bytes and receives 12 from itself, expected equal ones"),
    "expanded output": (lambda b, n, me: b.allreduce([EXPANDED]),
         r"all_reduce: a tensor to write to is float32\[3\] with strides .*share memory"),
    # devices and layouts
    "all_reduce: meta": (lambda b, n, me: b.allreduce([META]),
         r"all_reduce: tensors is float32\[3\] on the device meta, expected a tensor that holds data"),
    "send: meta": (lambda b, n, me: b.send([META], (me + 1) % n, 0), "send: tensor is .* on the device meta"),
    "all_gather: two devices": (lambda b, n, me: b.allgather([[META] * n], floats(3)),
         "all_gather: tensor_list is .*meta"),
    "coalesced: two devices": (lambda b, n, me: b.allreduce_coalesced([torch.ones(3), META]),
         "allreduce_coalesced: tensors is .*meta"),
    "broadcast: sparse": (lambda b, n, me: b.broadcast([torch.eye(3).to_sparse()], dist.BroadcastOptions()),
         "broadcast: tensors is a Sparse tensor, expected a strided one"),
    "all_reduce: compressed": (lambda b, n, me: b.allreduce([torch.eye(3).to_sparse_csr()]),
         "all_reduce: tensors is a SparseCsr tensor"),
    # peers and tags
    "send: negative peer": (lambda b, n, me: b.send(floats(1), -1, 0), "send: peer=-1 is not a rank"),
    "send: peer": (lambda b, n, me: b.send(floats(1), n, 0), r"send: peer={n} is not a rank .* 0\.\.{l}"),
    "recv: peer": (lambda b, n, me: b.recv(floats(1), n + 3, 0), "recv: peer=.* is not a rank"),
    "recv: negative peer": (lambda b, n, me: b.recv(floats(1), -1, 0), "recv: peer=-1 is not a rank"),
    "send: tag": (lambda b, n, me: n == 1 or b.send(floats(1), (me + 1) % n, -3),
         r"send: tag=-3 is out of range: expected 0\.\."),
    "recv: tag": (
        lambda b, n, me: n == 1 or EVERY_TAG or b.recv(floats(1), (me + 1) % n, 2**31 - 1),
        r"recv: tag=2147483647 is out of range: expected 0\.\."),
    "recv_anysource: tag": (lambda b, n, me: b.recv_anysource(floats(1), -1),
         r"recv: tag=-1 is out of range: expected 0\.\."),
    # blocks
    "end without a begin": (lambda b, n, me: b._end_coalescing(),
         "end_coalescing: no coalescing block is open"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use(backend, rank, size, case):
    call, message = WRONG[case]
    for name, value in (("{n}", size), ("{m}", size + 1), ("{l}", size - 1), ("{me}", rank)):
        message = message.replace(name, str(value))
    before = backend._get_sequence_number_for_group()
    try:
        if call(backend, size, rank) is True:
            return  # not applicable to one rank
    except ValueError as error:
        assert re.search(message, str(error)), f"{message!r} is not in: {error}"
        assert str(error).startswith("mpi-gdr: ")
    else:
        pytest.fail("no exception")
    assert backend._get_sequence_number_for_group() == before  # nothing was issued


def test_mistakes_of_one_rank_only(backend, rank, size):
    """Nothing was sent, so the other ranks are unaffected."""
    if rank == size - 1:
        for call, _ in WRONG.values():
            with contextlib.suppress(ValueError):
                call(backend, size, rank)
    gathered = torch.empty(size)
    dist.all_gather_into_tensor(gathered, torch.tensor([float(rank)]))
    assert gathered.tolist() == list(range(size))


def test_a_work_of_an_open_block_cannot_be_waited_for(backend, size):
    asynchronous = dist.AllreduceOptions()
    asynchronous.asyncOp = True
    tensor = torch.ones(2)
    backend._start_coalescing()
    work = backend.allreduce([tensor], asynchronous)
    with pytest.raises(ValueError, match=r"wait: .* coalesced block that has not ended; end the block first"):
        work.wait()
    backend._end_coalescing().wait()
    assert work.wait() and tensor.tolist() == [size] * 2


def test_split_sizes(rank, size):
    def call(output_splits, input_splits):
        dist.all_to_all_single(torch.empty(size), torch.ones(size), output_splits, input_splits)

    with pytest.raises(ValueError, match=rf"input_split_sizes has {size + 1} entries, expected {size}"):
        call([1] * size, [1] * (size + 1))
    with pytest.raises(ValueError, match=r"add up to"):
        call([1] * size, [2] * size)
    with pytest.raises(ValueError, match=r"holds -1"):
        call([1] * size, [-1] + [1] * (size - 1))
    if size > 1:
        with pytest.raises(ValueError, match="sends itself"):
            splits = [1] * size
            splits[rank], splits[rank - 1] = 0, 2
            call([1] * size, splits)
        with pytest.raises(ValueError, match=rf"divisible by {size}"):
            dist.all_to_all_single(torch.empty(size + 1), torch.ones(size + 1))


def test_a_destroyed_group_raises(size):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    dist.destroy_process_group(group)
    single = dist.AllreduceOptions()
    for call in (
        lambda: backend.allreduce([torch.ones(2)], single),
        lambda: backend.barrier(dist.BarrierOptions()),
        lambda: backend.send([torch.ones(2)], 0, 0),
        lambda: backend.allreduce([torch.eye(2).to_sparse()], single),
        lambda: backend.gather([], [torch.ones(2)], dist.GatherOptions()) if size > 1 else backend.barrier(),
    ):
        with pytest.raises(ValueError, match=r"\w+: (group \S+ has been destroyed|.*is missing on the root)"):
            call()
