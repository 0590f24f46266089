"""Starts ranks with only the variables of Open MPI 5's mpirun, from which no other MPI can start.

like_open_mpi.py SIZE HOSTS PROGRAM [arguments]
"""

import os
import subprocess
import sys
import time

size, hosts = int(sys.argv[1]), int(sys.argv[2])
job = f"prterun-host-{os.getpid()}"
ranks = []
for rank in range(size):
    here = size // hosts
    variables = {
        "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size, "OMPI_COMM_WORLD_LOCAL_RANK": rank % here,
        "OMPI_COMM_WORLD_LOCAL_SIZE": here, "PMIX_RANK": rank, "PMIX_NAMESPACE": f"{job}@1",
        "PMIX_SERVER_URI2": f"{job}@0.0;tcp4://127.0.0.1:{os.getpid()}",
        "PRTE_LAUNCHED": 1,
    }  # fmt: skip
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    ranks.append(subprocess.Popen([sys.executable, *sys.argv[3:]], env=environment))
while None in (ended := [rank.poll() for rank in ranks]) and not any(ended):
    time.sleep(0.05)
time.sleep(0.5)  # the others may be about to report the same
for rank in ranks:
    rank.kill()
    rank.wait()
sys.exit(max(ended, key=lambda status: status or 0) or 0)
