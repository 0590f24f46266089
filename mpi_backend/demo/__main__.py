"""`python -m mpi_backend.demo` is `mpi-gdr demo`."""

import sys

from ..cli import main

sys.exit(main(["demo", *sys.argv[1:]]))
