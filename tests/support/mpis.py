"""The table of tools/mpi.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("mpi", Path(__file__).parents[2] / "tools" / "mpi.py")
assert _SPEC is not None and _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
LIBRARIES = _MODULE.LIBRARIES
install = _MODULE.install
