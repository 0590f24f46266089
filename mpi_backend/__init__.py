"""mpi-gdr: torch.distributed over MPI, beside a stock torch wheel.

torch loads the backend by its entry points, so `dist.init_process_group("mpi-gdr")` needs no import of this
package. An import registers it as well (for TORCH_DEVICE_BACKEND_AUTOLOAD=0) and offers `Options`, `empty`,
`mpi4py_comm` and `dump_flight_log`. The extension and MPI are loaded with the first process group or the
first use of one of those.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from ._C import Options
    from ._creator import dump_flight_log, empty, mpi4py_comm

__all__ = ["Options", "__version__", "dump_flight_log", "empty", "mpi4py_comm"]


def _register_now() -> bool:
    """Whether this import must register the backend. False while torch's autoload imports us, because it
    then calls the entry point; false without torch and with autoload on: commands start without torch."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return not getattr(torch.__spec__, "_initializing", False)
    return os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1"


if _register_now():
    from . import _autoload

    _autoload.register()


def __dir__() -> list[str]:
    """Includes the names that are loaded at their first use."""
    return list(__all__)


def __getattr__(name: str) -> object:
    if name == "Options":
        from .extension import _C

        return _C.Options
    if name in ("dump_flight_log", "empty", "mpi4py_comm"):
        from . import _creator

        found: object = getattr(_creator, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
