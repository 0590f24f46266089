"""Hooks into MPI calls of this process by a small library that overrides them and calls their PMPI_ versions.

build() compiles the library; load() must be called before the extension is loaded.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

/* Handles are ints in the ABI of MPICH. */
volatile int hold, held;
void (*on_comm_create_group)(void), (*on_query_thread)(void);

static void *real(const char *name) {
  void *library = dlopen("libmpi.so.12", RTLD_LAZY | RTLD_NOLOAD);
  return library ? dlsym(library, name) : 0;
}

static void stay(void) {
  while (hold) {
    held = 1;
    usleep(1000);
  }
}

int MPI_Comm_create_group(int comm, int group, int tag, int *made) {
  int (*call)(int, int, int, int *) = real("PMPI_Comm_create_group");
  if (on_comm_create_group) on_comm_create_group();
  return call(comm, group, tag, made);
}

int MPI_Query_thread(int *level) {
  int (*call)(int *) = real("PMPI_Query_thread");
  if (on_query_thread) on_query_thread();
  return call(level);
}

int MPI_Isend(const void *data, int count, int type, int peer, int tag, int comm, int *request) {
  int (*call)(const void *, int, int, int, int, int, int *) = real("PMPI_Isend");
  stay();
  return call(data, count, type, peer, tag, comm, request);
}
"""


def why_unavailable() -> str:
    return "" if shutil.which("cc") else "needs a C compiler, cc"


def build(folder: Path) -> Path:
    source, library = folder / "mpi_calls.c", folder / "mpi_calls.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=60)
    return library


_library: ctypes.CDLL | None = None
_kept: list[object] = []


def load(path: str) -> None:
    global _library
    _library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def hold() -> None:
    """Makes MPI_Isend block from now on."""
    ctypes.c_int.in_dll(_library, "hold").value = 1


def wait_until_held() -> None:
    while not ctypes.c_int.in_dll(_library, "held").value:
        time.sleep(0.01)


def on_comm_create_group(function: Callable[[], None]) -> None:
    """Called when this process enters MPI_Comm_create_group; the other ranks enter it, too."""
    _set("on_comm_create_group", function)


def on_query_thread(function: Callable[[], None]) -> None:
    """Called when this process enters MPI_Query_thread, the first call after MPI_Init."""
    _set("on_query_thread", function)


def _set(hook: str, function: Callable[[], None]) -> None:
    callback = ctypes.CFUNCTYPE(None)(function)
    _kept.append(callback)
    ctypes.c_void_p.in_dll(_library, hook).value = ctypes.cast(callback, ctypes.c_void_p).value
