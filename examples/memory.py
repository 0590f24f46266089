"""This process's memory: a limit and the peak, in MiB. On a CPU the limit is the address space's and the peak
the resident memory's; on a GPU both are of torch's allocator."""

import ctypes
import re
import resource
from pathlib import Path

import torch

MIB = 2**20
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # malloc.h


def return_what_is_freed() -> None:
    """Call it before threads start. Otherwise glibc keeps freed pieces and 64 MiB of addresses per thread."""
    for option, value in ((M_MMAP_THRESHOLD, MIB), (M_ARENA_MAX, 1)):
        ctypes.CDLL(None).mallopt(option, value)


def status(field: str) -> float:
    """A field of the kernel's status of this process, in MiB."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{field}:\s*(\d+) kB", text, re.MULTILINE)[1]) / 1024


def limit(device: torch.device, mib: int) -> None:
    """Limits this process to `mib` beyond its present memory; 0 lifts the limit."""
    if device.type == "cuda":
        whole = torch.cuda.get_device_properties(device).total_memory
        most = torch.cuda.memory_reserved() + mib * MIB if mib else whole
        torch.cuda.set_per_process_memory_fraction(min(1.0, most / whole))
    else:
        most = int((status("VmSize") + mib) * MIB) if mib else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


class Peak:
    """The peak of memory beyond that at construction."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated() / MIB
        else:
            Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
            self._before = status("VmRSS")

    def __call__(self) -> float:
        return (torch.cuda.max_memory_allocated() / MIB if self._cuda else status("VmHWM")) - self._before
