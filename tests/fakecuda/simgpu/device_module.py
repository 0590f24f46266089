"""torch.simgpu: the functions that torch requires of a device module."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import torch

Stream = torch.Stream
Event = torch.Event
_operators = torch.ops.simgpu


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return _operators.started()


def init() -> None:
    pass


_lazy_init = init


def device_count() -> int:
    return _operators.device_count()


def current_device() -> int:
    return torch.accelerator.current_device_index()


def set_device(device: torch.device | str | int) -> None:
    torch.accelerator.set_device_index(device)


def device(device: torch.device | str | int | None):
    return torch.accelerator.device_index(None if device is None else _index(device))


def synchronize(device: torch.device | str | int | None = None) -> None:
    """Waits for all submitted work. Unlike malloc_free(), other threads may submit meanwhile."""
    torch.accelerator.synchronize(device)


def current_stream(device: torch.device | str | int | None = None) -> torch.Stream:
    return torch.accelerator.current_stream(device)


def default_stream(device: torch.device | str | int | None = None) -> torch.Stream:
    device_type = torch._C._autograd.DeviceType.PrivateUse1.value
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=device_type)


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None):
    return contextlib.nullcontext() if stream is None else stream


def empty_cache() -> None:
    _operators.empty_cache()


def get_device_name(device: torch.device | str | int | None = None) -> str:
    return "simulated accelerator"


def get_device_properties(device: torch.device | str | int | None = None) -> SimpleNamespace:
    return SimpleNamespace(name=get_device_name(), uuid=_index(device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


# ---- random numbers: those of the CPU, whose kernels do the work -------------------------------------------


def manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


manual_seed_all = manual_seed


def get_rng_state(device: torch.device | str | int = "simgpu") -> torch.Tensor:
    return torch.default_generator.get_state()


def set_rng_state(state: torch.Tensor, device: torch.device | str | int = "simgpu") -> None:
    torch.default_generator.set_state(state)


def _is_in_bad_fork() -> bool:
    return _operators.in_bad_fork()


def _index(device: torch.device | str | int | None) -> int:
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return current_device() if index is None else index
