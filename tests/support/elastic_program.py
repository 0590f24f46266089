"""Under torchrun --max-restarts=1: rank 1 of the first attempt dies in mid-training, the second one trains
from the checkpoint to the end. Prints one line when it has passed all its checks. Argument: a folder."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from support.training import assert_same_model, batch, descend, loss_of, new_model, sgd, train_alone

STEPS, FAILS_AT = 6, 3


def main(folder):
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("mpi-gdr")
    rank, size = dist.get_rank(), dist.get_world_size()
    # Has the same name and keys in the store as the previous attempt's.
    pair = dist.new_group(list(range(size)))
    alive = torch.ones(1)
    dist.all_reduce(alive, group=pair)
    assert alive.item() == size

    checkpoint = Path(folder) / "checkpoint.pt"
    model = DDP(new_model(seed=17 + rank))
    optimizer = sgd(model)
    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["steps"]
    assert first == FAILS_AT * attempt
    for step in range(first, STEPS):
        if attempt == 0 and step == FAILS_AT:
            if rank == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state | {"steps": step}, checkpoint)
            dist.barrier()
            if rank == 1:
                print("rank 1 dies", flush=True)
                os._exit(7)
        descend(optimizer, loss_of(model(batch(rank, step))))
    assert_same_model(model.module, train_alone(size, STEPS))
    dist.destroy_process_group()
    print(f"attempt {attempt}: rank {rank} of {size} has trained to the end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
