"""setup.py and other files as modules, and a CMake function that scripts under test call."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
# As in CMakeLists.txt, which also writes the sentence for setup.py.
GIVE_UP = 'function(give_up sentence)\n  message(FATAL_ERROR "GAVE UP: ${sentence}")\nendfunction()\n'


def load(path: Path) -> ModuleType:
    """A file that no package contains, as a module."""
    spec = importlib.util.spec_from_file_location(f"mpi_gdr_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def load_setup() -> ModuleType:
    """setup.py as a module, whose import builds nothing."""
    return load(ROOT / "setup.py")
