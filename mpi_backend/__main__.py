"""`python -m mpi_backend` is the command `mpi-gdr`."""

import sys

from .cli import main

sys.exit(main())
