# ruff: noqa: F403, F405  # how Spack's packages get their names

import glob
import os

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMpiGdr(PythonPackage):
    """A torch.distributed backend over MPI, from the wheel in the current folder (`make wheel` writes it
    to dist/), on Spack's torch and MPI."""

    manual_download = True  # no index has the wheel, and its checksum is that of the build

    license("BSD-3-Clause")

    version("0.1.0", expand=False)

    depends_on("python@3.11", type=("build", "run"))
    depends_on("py-torch@2.11:2.15+distributed", type="run")
    depends_on("mpi", type="run")

    def url_for_version(self, version):
        pattern = f"{os.getcwd()}/mpi_gdr-{version}-*.whl"
        return f"file://{next(iter(glob.glob(pattern)), pattern)}"

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        library = next(
            lib for lib in self.spec["mpi"].libs if os.path.basename(lib) in ("libmpi.so", "libmpich.so")
        )
        env.set("MPI_GDR_MPI_LIBRARY", library)
