"""Creates the c10d backend. Imported for a process group, `Options`, `mpi4py_comm` or a flight log."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from . import _autoload, gpu_share, stand_in

if TYPE_CHECKING:
    import torch
    from mpi4py import MPI
    from torch._C._distributed_c10d import Backend, _DistributedBackendOptions
    from torch.distributed import ProcessGroup

    from ._C import Options


def create(dist_backend_opts: _DistributedBackendOptions, pg_options: object) -> Backend:
    """Creator that c10d calls for each new process group (extended API)."""
    from .extension import _C

    options = checked_options(pg_options)
    _autoload.check(gpu_share.VARIABLE)
    select_accelerator(os.environ)
    import torch.distributed as dist

    if not dist.is_initialized():  # the default group
        return _C.create_backend(dist_backend_opts, options)
    # MPI spans all ranks, even if only this group uses it and the default group has another backend.
    store = dist.distributed_c10d._get_default_store()
    return _C.create_backend(dist_backend_opts, options, dist.get_rank(), dist.get_world_size(), store)


def checked_options(pg_options: object) -> Options | None:
    """None or our own Options. Raises TypeError for the options of another backend."""
    from torch._C._distributed_c10d import Backend

    from .extension import _C

    if pg_options is None or isinstance(pg_options, _C.Options):
        return pg_options
    # Generic code passes these to set the timeout only.
    if type(pg_options) is Backend.Options or stand_in.are_gloo_options(pg_options):
        options = _C.Options()
        options._timeout = cast(Backend.Options, pg_options)._timeout
        return options
    raise TypeError(
        f"pg_options is a {type(pg_options).__module__}.{type(pg_options).__qualname__}; "
        'backend "mpi-gdr" expects mpi_backend.Options'
    )


def select_accelerator(env: Mapping[str, str]) -> None:
    """Selects device LOCAL_RANK modulo the visible ones, unless the program has chosen one.

    Must run before MPI starts: a GPU-aware MPI opens the current device, and scripts call set_device only
    later. Without LOCAL_RANK it selects nothing.
    """
    import torch

    local_rank = env.get("LOCAL_RANK", "")
    if not local_rank.isdecimal() or not torch.accelerator.is_available():
        return
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    is_initialized = getattr(module, "is_initialized", lambda: False)
    if not is_initialized() and torch.accelerator.current_device_index() == 0:
        torch.accelerator.set_device_index(int(local_rank) % torch.accelerator.device_count())


def empty(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Returns an uninitialised tensor in group memory, which the other ranks of the node map: collectives on
    CPU tensors there need no copy by the kernel.

    Takes sizes as `torch.empty` does. `device`: the CPU or a device with group memory, else ValueError.
    Raises torch.OutOfMemoryError if none is left. The memory lives as long as the tensor, also beyond its
    process group; see MPI_GDR_GROUP_MEMORY and MPI_GDR_DEVICE_GROUP_MEMORY. Without a process group of this
    backend it acts as ordinary memory.
    """
    import torch

    from .extension import _C

    shape = torch.Size(size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size)
    if any(n < 0 for n in shape):
        raise ValueError(f"mpi_backend.empty: size={tuple(shape)}, expected none below 0")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"mpi_backend.empty: dtype={dtype!r}, expected a torch.dtype")
    flat = _C.allocate_tensor(shape.numel(), dtype or torch.get_default_dtype(), torch.device(device))
    return flat.view(shape)


def mpi4py_comm(group: ProcessGroup | None = None) -> MPI.Comm:
    """Returns an mpi4py communicator over the ranks of `group` (default: the world).

    The group owns it: do not free it, and do not use it after destroy_process_group. Raises ValueError if
    there is no group or it does not use "mpi-gdr", ImportError if mpi4py is missing or cannot use this
    process's MPI library.
    """
    import torch
    import torch.distributed as dist

    from .extension import _C
    from .extension import MPI as library

    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("mpi4py_comm: there is no process group yet; call init_process_group first")
    for device in group._device_types:
        backend = group._get_backend(torch.device(device.type))
        if backend.name() == "mpi-gdr":
            break
    else:
        raise ValueError(f'mpi4py_comm: the group uses {dist.get_backend(group)!r}, expected "mpi-gdr"')
    import mpi4py

    from . import mpi_library

    mpi4py.rc.initialize = False  # done by the process group, with the thread level that it needs
    mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            f"this mpi4py ({mpi4py.__file__}) cannot use {library.path}, the MPI library of this process "
            f"({library.origin}): {error}. Build mpi4py for it, or let {mpi_library.VARIABLE} name one that "
            f"both can use"
        ) from error
    handle = _C.mpi4py_handle(backend)
    if not MPI.Is_initialized():
        raise ImportError(
            f"mpi4py uses another MPI library than mpi-gdr, {library.path}; this process has loaded "
            f"{' and '.join(mpi_library.loaded_libraries())}. Set {mpi_library.VARIABLE} to mpi4py's, or "
            f"MPI4PY_LIBMPI to mpi-gdr's"
        )
    return MPI.Comm.f2py(handle)


def dump_flight_log(path: str | os.PathLike[str] | None = None) -> str:
    """Writes this process's last operations for `mpi-gdr diagnose` and torch's analyzer; returns the path.

    `path`: by default the file in MPI_GDR_FLIGHT_DIR that a timeout writes, too. Does not communicate. Raises
    ValueError without a flight log, RuntimeError if the file cannot be written. Thread-safe.
    """
    from .extension import _C

    return _C.dump_flight_log("" if path is None else os.fspath(path))
