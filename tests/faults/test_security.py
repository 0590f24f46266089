"""A job's attack surface: its listeners, and its store, which torch serves to any client."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import processes
from support.cases import cases
from support.namespaces import Namespaces, why_unavailable

HERE = Path(__file__).parent
SECRET = "5e" * 32
PUBLIC = "10.231.77.1"
HOST = (
    "mount -t tmpfs -o size=1g tmpfs /dev/shm && ip link set lo up"
    f" && ip link add out0 type veth peer name out1 && ip link set out1 up"
    f" && ip addr add {PUBLIC}/24 dev out0 && ip link set out0 up"
)


def run_each(
    script: Path, prefixes: Sequence[Sequence[str]], secrets: Sequence[str]
) -> list[processes.Result]:
    """Runs a rank per prefix (words before its command), without a launcher; secret "": none."""
    port = str(processes.free_port())
    with contextlib.ExitStack() as stack:
        programs = []
        for rank, (prefix, secret) in enumerate(zip(prefixes, secrets, strict=True)):
            env = processes.clean_environment(
                RANK=str(rank), WORLD_SIZE=str(len(prefixes)), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                MPI_GDR_FLIGHT_LOG="0", **({"MPI_GDR_SECRET": secret} if secret else {}),
            )  # fmt: skip
            program = processes.Program([*prefix, sys.executable, str(script)], env)
            programs.append(stack.enter_context(program))
        return [program.finish(100) for program in programs]


OFI = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
NETWORKS = {"ucx": {}, "tcp": {**OFI, "FI_PROVIDER": "tcp"}, "sockets": {**OFI, "FI_PROVIDER": "sockets"}}


@cases("launcher, network", ("mpirun", "ucx"), ("none", "ucx"), ("mpirun", "tcp"), ("none", "sockets"))
def test_a_job_of_one_host_listens_on_the_loopback_only(launcher, network):
    """The host has a second interface. Ignores Hydra's listener and torch's store (the program's address)."""
    if reason := why_unavailable():
        pytest.skip(reason)
    program = str(HERE / "listeners.py")
    with Namespaces("onehost", HOST) as host:
        if launcher == "mpirun":
            words, env = [*processes.MPI_GDR_RUN, "-n", "2", program], {}
        else:
            words = ["sh", "-c", 'RANK=0 "$@" & RANK=1 "$@"; wait', "sh", sys.executable, program]
            env = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29411"}
        words = [*host.enter(), *words]
        output = processes.run(words, timeout=100, **env, **NETWORKS[network]).expect(0)
    found = [json.loads(line) for line in re.findall(r"listeners (\{.*?\})", output)]
    assert len(found) == 2, output
    addresses = [address for rank in found for address in rank["listeners"]]
    assert addresses, "MPI listens nowhere: this test shows nothing"
    assert [a for a in addresses if not a.startswith("127.0.0.1:")] == [], output
    assert not any(rank["inherited"] for rank in found), "programs that a rank starts may span hosts"


@pytest.mark.warm
@pytest.mark.parametrize("secret", ["", SECRET], ids=["no secret", "secret"])
def test_an_outsider_of_the_store_neither_ends_nor_steers_a_job(secret):
    """The outsider writes news of lost ranks, aborts and records of meetings, forged and replayed. One rank
    appears to be on another host, because ranks of one host do not read the list."""
    if reason := why_unavailable():
        pytest.skip(reason)
    elsewhere = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
    results = run_each(HERE / "outsider.py", [[], [], elsewhere], [secret] * 3)
    output = "\n".join(result.expect(0) for result in results)
    for rank in range(3):
        assert f"rank {rank} is well" in output, output
    warnings = re.findall("WARN ALIVE ignored a notice in the store that no rank has signed", output)
    assert 1 <= len(warnings) <= 2, output  # by one rank of each host
    assert secret == "" or secret not in output


@pytest.mark.warm
@pytest.mark.parametrize("secrets", [(SECRET, "", SECRET), ("", SECRET, ""), (SECRET, "77" * 32, SECRET)])
def test_ranks_with_different_secrets_get_an_error(secrets):
    results = run_each(HERE / "listeners.py", [[]] * 3, secrets)
    output = "\n".join(result.output for result in results)
    assert all(result.status not in (0, None) for result in results), output
    errors = re.findall(r"^\S*Error: .*is MPI_GDR_SECRET equal on all ranks\?", output, re.MULTILINE)
    assert len(errors) == 3, output
    assert SECRET not in output and "77" * 32 not in output


@pytest.mark.warm
def test_the_secret_is_not_shown(tmp_path):
    info = [sys.executable, "-m", "mpi_backend", "info"]
    output = processes.run(info, MPI_GDR_SECRET=SECRET).expect(0)
    assert re.search(r"MPI_GDR_SECRET\W+\(set\)", output) and SECRET not in output, output
    variables = {"MPI_GDR_SECRET": SECRET, "MPI_GDR_DEBUG": "TRACE", "MPI_GDR_TRACE": f"{tmp_path}/t%r.json"}
    first, _ = processes.run_apart(2, HERE / "listeners.py", **variables)
    assert "MPI_GDR_SECRET=(set)" in first.expect(0) and SECRET not in first.output
    assert SECRET not in "".join(path.read_text() for path in tmp_path.iterdir())
    bad = "x" + SECRET[1:]
    output = processes.run(info, MPI_GDR_SECRET=bad).output
    assert "MPI_GDR_SECRET is not valid: expected 64 hexadecimal digits" in output and bad not in output
