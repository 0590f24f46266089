"""A run's processes: rank, device, and the collectives that training needs besides DDP's."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks:
    """This process's rank. A single process has no process group unless `always` is set."""

    def __init__(self, backend: str, device: str, always: bool = False) -> None:
        alone = "RANK" not in os.environ  # set by torchrun, or under an MPI launcher by `import torch`
        self.distributed = always or not alone
        self.rank = int(os.environ.get("RANK", 0))
        self.size = int(os.environ.get("WORLD_SIZE", 1))
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.backend = backend if self.distributed else "no backend"
        self.first = self.rank == 0
        if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
            # Modulo: ranks may share a GPU, or each may see only its own.
            self.device = torch.device("cuda", local_rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        else:
            self.device = torch.device("cpu")
            if "OMP_NUM_THREADS" not in os.environ:  # else every rank would start a thread per core
                neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
                torch.set_num_threads(max(1, (os.cpu_count() or 1) // neighbours))
        if self.distributed and alone:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        elif self.distributed:
            dist.init_process_group(backend)

    def gather(self, data: Tensor) -> list[Tensor]:
        """The equally long data of all ranks, on the CPU."""
        if not self.distributed:
            return [data]
        mine = data.to(self.device)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine)
        return [part.cpu() for part in parts]

    def mean(self, value: Tensor) -> float:
        value = value.detach().double()
        if self.distributed:
            dist.all_reduce(value)
        return value.item() / self.size

    def leave(self) -> None:
        """Collective. The barrier comes first: after a gather Gloo's thread may still hold a tensor, whose
        release while Python shuts down would abort the process."""
        if self.distributed:
            dist.barrier()
            dist.destroy_process_group()

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def autocast(self) -> contextlib.AbstractContextManager:
        if self.device.type == "cuda" and torch.cuda.is_bf16_supported():
            return torch.autocast("cuda", torch.bfloat16)
        return contextlib.nullcontext()

    def preserved_random_state(self) -> contextlib.AbstractContextManager:
        return torch.random.fork_rng([self.device.index] if self.device.type == "cuda" else [])
