"""What runs at the end of every `import torch`: environment and registration, nothing else.

torch calls `autoload` through the entry-point group torch.backends. An exception here would break `import
torch` for every program on the machine, so nothing leaves this file. The hook never loads the extension,
never touches MPI or a GPU, and costs about a millisecond (more where MPI_GDR_RANKS_PER_GPU makes it
ask which GPUs there are). It runs in agents, compile workers and DataLoader workers too.
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

    from .rendezvous import Handler, Met

NAME = "mpi-gdr"
_warned = False

# By variable, why what it asks for could not be done. `import torch` must not fail, so init_process_group
# raises it.
problems: dict[str, str] = {}


def autoload() -> None:
    """Entry point of torch.backends."""
    try:
        _prepare()
        # From 2.14 on, torch asks the group torch.distributed.backends for a backend when a program names it.
        # Until then it must be there already, at a price: see docs/launch.md, "What autoloading changes".
        if _torch_minor() < (2, 14):
            _register()
    except Exception as error:
        _warn_once(error)


def register() -> None:
    """Entry point of torch.distributed.backends, and what `import mpi_backend` calls. Idempotent, never
    raises."""
    try:
        import torch.distributed  # noqa: F401  (imported by hand, we may come before torch)

        _prepare()
        _register()
    except Exception as error:
        _warn_once(error)


def _prepare() -> None:
    from . import gpu_share, hardware_queues, launchers, master_address, stand_in

    launchers.fill_environment(os.environ)
    hardware_queues.settle(os.environ)
    master_address.offer(os.environ)
    _wrap_env_rendezvous()
    _accept_other_spellings()
    settlers: dict[str, Callable[[], None]] = {
        gpu_share.VARIABLE: lambda: gpu_share.settle(os.environ),
        stand_in.VARIABLE: lambda: stand_in.settle(_torch_minor(), _create),
    }
    for variable, settle in settlers.items():
        if variable in problems:
            continue
        try:
            settle()
        except ValueError as error:
            problems[variable] = f"mpi-gdr: {error}"
            warnings.warn(problems[variable], stacklevel=4)


def check(*variables: str) -> None:
    """Raises RuntimeError if `import torch` could not do what one of these variables asks for."""
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
        # Up to 2.13 torch compares the key of the *first* plugin, upper case, with a lower-case backend name.
        # Without a lower-case key in front, "cpu:mpi-gdr,cuda:mpi-gdr" has no default backend.
        plugin = plugins[NAME.upper()]
        others = {key: value for key, value in plugins.items() if key not in (NAME, NAME.upper())}
        plugins.clear()
        plugins.update({NAME: plugin, NAME.upper(): plugin, **others})


def _devices(backend_class: type[dist.Backend]) -> list[str]:
    """Device types that a plain "mpi-gdr" serves. A list: a string would be read letter by letter."""
    import torch

    devices = ["cpu", "cuda"]
    # Compiled in or registered; asking for it does not start the device.
    accelerator = torch.accelerator.current_accelerator()
    # A type that torch has no default backend for is left out: registering it would make us that default.
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
    """torch looks a backend's name up among the attributes of this class, in capitals."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is not None:
        module.Backend.MPI_GDR = module.Backend.MPIGDR = NAME


def _wrap_env_rendezvous() -> None:
    """Puts ours in front of torch's handler of env://, which needs MASTER_ADDR and MASTER_PORT."""
    module = sys.modules.get("torch.distributed.rendezvous")
    if module is None:
        return
    original: Handler | None = module._rendezvous_handlers.get("env")
    if original is None or getattr(original, "_mpi_gdr", False):
        return

    def env_rendezvous(url: str, *args: Any, **kwargs: Any) -> Iterator[Met]:
        from . import descriptors, gpu_share, stand_in
        from .rendezvous import env_handler

        check(gpu_share.VARIABLE, stand_in.VARIABLE)
        descriptors.prepare(os.environ)
        return env_handler(original, url, *args, **kwargs)

    env_rendezvous._mpi_gdr = True  # type: ignore[attr-defined]
    module._rendezvous_handlers["env"] = env_rendezvous
