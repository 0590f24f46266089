"""If MPI carries messages, a thread calls MPI while the program does not. libfabric's `sockets` moves data
only inside MPI: without such a thread not even the start completes."""

from __future__ import annotations

from support import processes
from support.cases import cases
from support.spmd import TESTS

PROGRAM = TESTS / "support" / "idle_program.py"
ONE_NODE = {"MPIR_CVAR_NOLOCAL": "0"}
# Each rank is a node for MPICH, and our shared memory is unused.
APART = {"MPIR_CVAR_NOLOCAL": "1", "MPI_GDR_P2P": "mpi", "MPIR_CVAR_CH4_NETMOD": "ofi"}
WEAK = {**APART, "FI_PROVIDER": "sockets"}


def job(folder, **variables: str) -> str:
    command = [*processes.MPI_GDR_RUN, "-n", "2", PROGRAM, folder]
    return processes.run(command, timeout=40, **variables).expect(0)


def test_start_and_lone_message_need_no_later_call(tmp_path):
    output = job(tmp_path, **WEAK)
    assert output.count("threads: 1 before, 1 after a message") == 2, output
    assert "received in time" in output, output


@cases(
    "variables, before, after",
    (ONE_NODE, 0, 0),
    ({**ONE_NODE, "MPI_GDR_P2P": "mpi", "MPI_GDR_IDLE_PROGRESS": "on"}, 0, 1),
    ({**APART, "MPIR_CVAR_CH4_NETMOD": "ucx"}, 0, 0),
    ({**APART, "FI_PROVIDER": "tcp", "MPI_GDR_IDLE_PROGRESS": "off"}, 0, 0),
    ({**WEAK, "MPIR_CVAR_CH4_OFI_ENABLE_DATA_AUTO_PROGRESS": "1"}, 0, 0),  # the provider has a thread
    ids=["shared memory", "messages by MPI", "UCX", "off", "provider"],
)
def test_thread_only_where_needed(tmp_path, variables, before, after):
    output = job(tmp_path, **variables)
    assert output.count(f"threads: {before} before, {after} after a message") == 2, output
    assert "received in time" in output, output
