"""Corrects an import by the name on the index."""

raise ImportError(
    "the package mpi-gdr is imported as mpi_backend: `import mpi_backend`; "
    'init_process_group("mpi-gdr") needs no import of it',
    name="mpi_gdr",
)
