"""Runs at the end of every `import torch`, also in agents, compile workers and DataLoader workers.

torch calls `autoload` through the entry-point group torch.backends. An exception would break `import torch`
for every program, so none leaves this file. The hook sets environment variables and registers the backend; it
never loads the extension or MPI and never starts a GPU. It takes about 1 ms, more if MPI_GDR_RANKS_PER_GPU
makes it list the GPUs.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch.distributed as dist
    from torch._C._distributed_c10d import Backend, _DistributedBackendOptions

    from .rendezvous import Handler, RendezvousResult

NAME = "mpi-gdr"
_warned = False

# {variable: why its value could not be applied}. Raised by init_process_group: `import torch` must not fail.
problems: dict[str, str] = {}


def autoload() -> None:
    """Entry point of torch.backends."""
    try:
        _prepare()
        # From 2.14 on, torch looks in the group torch.distributed.backends when a program names a backend.
        # Earlier releases need it registered, at a price: docs/launch.md, "What autoloading changes".
        if _torch_minor() < (2, 14):
            _register()
    except Exception as error:
        _warn_once(error)


def register() -> None:
    """Entry point of torch.distributed.backends; `import mpi_backend` calls it. Idempotent, never raises."""
    try:
        import torch.distributed  # noqa: F401  (imported by hand, we may come before torch)

        _prepare()
        _register()
    except Exception as error:
        _warn_once(error)


def _prepare() -> None:
    from . import gpu_share, hardware_queues, launchers, master_address, stand_in

    launchers.fill_environment(os.environ)
    hardware_queues.apply(os.environ)
    master_address.set_endpoint(os.environ)
    _wrap_env_rendezvous()
    _accept_other_spellings()
    appliers: dict[str, Callable[[], None]] = {
        gpu_share.VARIABLE: lambda: gpu_share.apply(os.environ),
        stand_in.VARIABLE: lambda: stand_in.apply(_torch_minor(), _create),
    }
    for variable, apply in appliers.items():
        if variable in problems:
            continue
        try:
            apply()
        except ValueError as error:
            problems[variable] = f"mpi-gdr: {error}"
            warnings.warn(problems[variable], stacklevel=4)


def check(*variables: str) -> None:
    """Raises RuntimeError if a problem of one of these variables was recorded at `import torch`."""
    for variable in variables:
        if variable in problems:
            raise RuntimeError(problems[variable])


def _warn_once(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"mpi-gdr is not available in this process: {error!r}", stacklevel=3)


def _torch_minor() -> tuple[int, int]:
    major, minor = sys.modules["torch"].__version__.split(".")[:2]
    return int(major), int(minor)


def _register() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    plugins = dist.Backend._plugins
    if NAME.upper() in plugins:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=_devices(dist.Backend))
    if _torch_minor() < (2, 14):
        # torch below 2.14 compares the key of the *first* plugin, in upper case, with a lower-case backend
        # name: without a lower-case key in front, "cpu:mpi-gdr,cuda:mpi-gdr" has no default backend.
        plugin = plugins[NAME.upper()]
        others = {key: value for key, value in plugins.items() if key not in (NAME, NAME.upper())}
        plugins.clear()
        plugins.update({NAME: plugin, NAME.upper(): plugin, **others})


def _devices(backend_class: type[dist.Backend]) -> list[str]:
    """Device types that a plain "mpi-gdr" serves. A list, because torch would iterate over a string."""
    import torch

    devices = ["cpu", "cuda"]
    # Compiled in or registered; the query does not start the device.
    accelerator = torch.accelerator.current_accelerator()
    # Registration for a type without a default backend in torch would make mpi-gdr that default.
    if (
        accelerator is not None
        and accelerator.type not in devices
        and accelerator.type in backend_class.default_device_backend_map
    ):
        devices.append(accelerator.type)
    return devices


def _create(dist_backend_opts: _DistributedBackendOptions, pg_options: object) -> Backend:
    from ._creator import create

    return create(dist_backend_opts, pg_options)


def _accept_other_spellings() -> None:
    """Accepts mpi_gdr and mpigdr: torch looks up upper-case names among the attributes of dist.Backend."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is not None:
        module.Backend.MPI_GDR = module.Backend.MPIGDR = NAME


def _wrap_env_rendezvous() -> None:
    """Calls our handler of env:// before torch's, which needs MASTER_ADDR and MASTER_PORT."""
    module = sys.modules.get("torch.distributed.rendezvous")
    if module is None:
        return
    original: Handler | None = module._rendezvous_handlers.get("env")
    if original is None or getattr(original, "_mpi_gdr", False):
        return

    def env_rendezvous(url: str, *args: Any, **kwargs: Any) -> Iterator[RendezvousResult]:
        from . import descriptors, gpu_share, stand_in
        from .rendezvous import env_handler

        check(gpu_share.VARIABLE, stand_in.VARIABLE)
        descriptors.prepare(os.environ)
        return env_handler(original, url, *args, **kwargs)

    env_rendezvous._mpi_gdr = True  # type: ignore[attr-defined]
    module._rendezvous_handlers["env"] = env_rendezvous
