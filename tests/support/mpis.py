"""Exposes tools/mpi.py."""

from .building import ROOT, load

_MODULE = load(ROOT / "tools" / "mpi.py")
LIBRARIES = _MODULE.LIBRARIES
install = _MODULE.install
