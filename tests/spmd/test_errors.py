"""Wrong use ends in an error that names argument, value and expectation, and harms no later call."""

import os

import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True)
def still_works(size):
    """An error of usage leaves the group as it was."""
    yield
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 3


@pytest.fixture
def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


@pytest.mark.parametrize("root", [-1, 4711])
def test_bad_root(backend, root, size):
    options = dist.BroadcastOptions()
    options.rootRank = root
    with pytest.raises(
        ValueError, match=rf"broadcast: root={root} is not a rank .* expected 0\.\.{size - 1}"
    ):
        backend.broadcast([torch.ones(2)], options)


def test_bad_peer(backend, rank, size):
    for peer in (-1, size):
        with pytest.raises(ValueError, match=rf"send: peer={peer} is not a rank"):
            backend.send([torch.ones(2)], peer, 0)
    with pytest.raises(ValueError, match="recv: peer="):
        backend.recv([torch.ones(2)], -1, 0)
    with pytest.raises(ValueError, match=r"send: peer=.* is this rank itself"):
        backend.send([torch.ones(2)], rank, 0)


def test_bad_tag(backend, rank, size):
    if size == 1:
        return
    with pytest.raises(ValueError, match=r"send: tag=-3 is out of range: expected 0\.\."):
        dist.send(torch.ones(2), (rank + 1) % size, tag=-3)
    with pytest.raises(ValueError, match="recv: tag=-3"):
        dist.recv(torch.ones(2), (rank + 1) % size, tag=-3)


def test_list_of_wrong_length(backend, size):
    outputs = [torch.empty(2)] * (size + 1)
    with pytest.raises(
        ValueError, match=rf"all_gather: tensor_list holds {size + 1} tensors, expected {size}"
    ):
        dist.all_gather(outputs, torch.ones(2))
    with pytest.raises(ValueError, match=rf"reduce_scatter: input_list holds {size + 1} tensors"):
        dist.reduce_scatter(torch.empty(2), outputs)


def test_dtypes_differ(backend, size):
    with pytest.raises(ValueError, match=r"all_gather: .*float64\[2\].*float32\[2\].*equal dtypes"):
        backend.allgather([[torch.empty(2, dtype=torch.float64)] * size], [torch.ones(2)])
    with pytest.raises(ValueError, match=r"float64.*float32"):
        backend._allgather_base(torch.empty(2 * size, dtype=torch.float64), torch.ones(2))


def test_sizes_differ(size):
    with pytest.raises(NotImplementedError, match=r"all_gather: .*float32\[3\].*float32\[2\]"):
        dist.all_gather([torch.empty(3)] * size, torch.ones(2))
    with pytest.raises(ValueError, match=rf"all_gather_into_tensor: output is .* expected {2 * size}"):
        dist.all_gather_into_tensor(torch.empty(2 * size + 1), torch.ones(2))
    with pytest.raises(ValueError, match=rf"reduce_scatter_tensor: input is .* expected {2 * size}"):
        dist.reduce_scatter_tensor(torch.empty(2), torch.ones(2 * size + 1))


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


def test_sparse_tensors_are_named():
    with pytest.raises(NotImplementedError, match=r"(sparse|Sparse)"):
        dist.all_reduce(torch.eye(3).to_sparse())


def test_what_is_not_implemented_is_named(rank, size):
    outputs = [torch.empty(2) for _ in range(size)]
    with pytest.raises(NotImplementedError, match="gather is not implemented"):
        dist.gather(torch.ones(2), outputs if rank == 0 else None)
    with pytest.raises(NotImplementedError, match="scatter is not implemented"):
        dist.scatter(torch.ones(2), outputs if rank == 0 else None)
    with pytest.raises(NotImplementedError, match="all_to_all of tensor lists is not implemented"):
        dist.all_to_all(outputs, outputs)


def test_group_that_was_destroyed(size):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    dist.destroy_process_group(group)
    with pytest.raises(ValueError, match=r"all_reduce: group \S+ has been destroyed"):
        backend.allreduce([torch.ones(2)], dist.AllreduceOptions())


def test_forked_child(size):
    """A child that touches the group gets an error, and the parent goes on."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
            text = "no error"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert text.startswith("DistBackendError") and "forked" in text, text


def test_dataloader_workers_are_unharmed(size):
    loader = torch.utils.data.DataLoader(
        list(range(8)), batch_size=2, num_workers=2, multiprocessing_context="fork"
    )
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
