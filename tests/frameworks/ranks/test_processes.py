"""DataLoader workers beside the group: forked with MPI's state in their memory, and spawned."""

import pytest
import torch
import torch.distributed as dist
from support.training import assert_same_model, batch, descend, loss_of, new_model, sgd, train_alone
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ROWS, STEPS = 4, 3


class Rows(Dataset):
    """Row i of step s of rank r has number (s * ROWS + i) * ranks + r: DistributedSampler's order."""

    def __init__(self, ranks):
        self.ranks = ranks

    def __len__(self):
        return STEPS * ROWS * self.ranks

    def __getitem__(self, number):
        position, rank = divmod(number, self.ranks)
        return batch(rank, position // ROWS, ROWS)[position % ROWS]


# One spawned worker, because each imports torch.
@pytest.mark.parametrize("method, workers", [("fork", 2), ("spawn", 1)])
def test_training_with_workers(rank, size, method, workers):
    model = DDP(new_model())
    optimizer = sgd(model)
    sampler = DistributedSampler(Rows(size), shuffle=False)
    work = dist.all_reduce(torch.ones(1 << 16), async_op=True)  # in flight while the workers start
    how = {"num_workers": workers, "multiprocessing_context": method}
    loader = DataLoader(Rows(size), ROWS, sampler=sampler, **how)
    steps = 0
    for x in loader:
        descend(optimizer, loss_of(model(x)))
        steps += 1
    work.wait()
    assert steps == STEPS
    assert_same_model(model.module, train_alone(size))
    # The ended workers left the group intact.
    check = torch.tensor([float(rank)])
    dist.all_reduce(check)
    assert check.item() == sum(range(size))
