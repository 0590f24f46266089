"""MPI_GDR_AS=gloo: programs that name "gloo" run on this backend.

From torch 2.14 on a later registration replaces torch's own backend. Done at `import torch`, because torch
never queries entry points for a registered name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend

VARIABLE = "MPI_GDR_AS"
OLDEST_TORCH = (2, 14)


def apply(torch: tuple[int, int], create: Callable[..., Backend]) -> None:
    """Registers `create` under VARIABLE's name. Raises ValueError if that is impossible."""
    name = os.environ.get(VARIABLE, "").lower()
    if not name:
        return
    if name != "gloo":
        raise ValueError(f"{VARIABLE}={name}, expected gloo")
    if torch < OLDEST_TORCH:
        raise ValueError(
            f"{VARIABLE}=gloo needs torch {'.'.join(map(str, OLDEST_TORCH))} or newer, this is torch "
            f"{'.'.join(map(str, torch))}: let the program name the backend mpi-gdr, or unset the variable"
        )
    _replace_gloo(create)


def _replace_gloo(create: Callable[..., Backend]) -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    backend = dist.Backend
    backend.register_backend(
        backend.GLOO,
        create,
        extended_api=True,
        devices=backend.backend_capability[backend.GLOO],
        _backend_type=dist.ProcessGroup.BackendType.GLOO,
    )
    # torch 2.15 attaches its flight recorder to backends outside this set.
    getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).discard(backend.GLOO)


def are_gloo_options(pg_options: object) -> bool:
    """Whether these are Gloo's options while this backend replaces it; only their timeout applies."""
    if os.environ.get(VARIABLE, "").lower() != "gloo":
        return False
    import torch.distributed as dist

    return dist.is_gloo_available() and isinstance(pg_options, dist.ProcessGroupGloo._Options)
