"""examples/deepspeed_zero.py: compared with Gloo, under DeepSpeed's launchers, on two emulated nodes."""

import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
from support import namespaces, processes

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS / "faults"))
import testbed  # noqa: E402

EXAMPLE = TESTS.parent / "examples" / "deepspeed_zero.py"
SMALL = ["--num_iterations", "4", "--sequence", "16", "--h_dim", "32", "--ff_dim", "64", "--device", "cpu"]
LAUNCHER = [sys.executable, "-m", "deepspeed.launcher.runner"]
PATH = f"{processes.BIN}:{os.environ['PATH']}"

# ssh HOST COMMAND among the emulated nodes; hosts are addresses.
SSH = """while [ "$1" != "${1#-}" ]; do
  case "$1" in -[op]) shift;; esac
  shift
done
host=$1; shift
case "$host" in
  %s) exec sh -c "$*";;
  %s) exec %s sh -c "$*";;
esac
echo "no such node: $host" >&2; exit 1
"""


def losses(folder, stages=4):
    found = json.loads((folder / "result.json").read_text())["losses"]
    assert list(found) == [str(stage) for stage in range(stages)]
    assert all(len(curve) == 4 for curve in found.values())
    return found


@pytest.fixture(scope="module")
def over_gloo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    command = [*processes.MPI_GDR_RUN, "-n", "2", EXAMPLE, "--backend", "gloo", "--out", folder, *SMALL]
    processes.run(command, timeout=300).expect(0)
    return losses(folder)


def same(found, expected):
    for stage, curve in found.items():
        assert curve == pytest.approx(expected["0"], abs=1e-5), stage


def test_every_stage_has_the_losses_of_gloo(over_gloo, tmp_path):
    command = [*processes.MPI_GDR_RUN, "-n", "2", EXAMPLE, "--out", tmp_path, *SMALL]
    output = processes.run(command, timeout=300).expect(0)
    same(losses(tmp_path), over_gloo)
    same(over_gloo, over_gloo)
    held = {int(row[0]): float(row[2]) for row in map(str.split, output.splitlines()) if row[3:4] == ["MB"]}
    assert set(held) == {0, 1, 2, 3}
    assert all(held[stage] == pytest.approx(held[0] / 2, abs=0.02) for stage in (1, 2, 3)), held


def test_deepspeed_s_own_launcher_on_one_host(over_gloo, tmp_path):
    command = [*LAUNCHER, "--num_accelerators", "2", EXAMPLE, "--out", tmp_path, "--stage", "0", "1", *SMALL]
    command[3:3] = ["--master_port", str(processes.free_port())]
    processes.run(command, timeout=300, PATH=PATH, DS_ACCELERATOR="cpu").expect(0)
    same(losses(tmp_path, stages=2), over_gloo)


@pytest.mark.skipif(namespaces.why_unavailable() != "", reason=namespaces.why_unavailable())
def test_deepspeed_s_mpich_launcher_on_two_nodes(over_gloo, tmp_path):
    """The launcher starts ranks by mpirun and ssh; this ssh is a script that enters a node's namespaces."""
    with contextlib.ExitStack() as stack:
        bed = testbed.Testbed(stack)
        first, second = (testbed.address(node) for node in range(2))
        ssh = tmp_path / "bin" / "ssh"
        ssh.parent.mkdir()
        processes.write_script(ssh, SSH % (first, second, " ".join(bed.nodes[1].enter())))
        hosts = tmp_path / "hosts"
        hosts.write_text(f"{first} slots=1\n{second} slots=1\n")
        command = [*LAUNCHER, "--hostfile", hosts, "--launcher", "mpich"]
        command += ["--launcher_args", f"-launcher-exec {ssh} -localhost {first}"]
        command += ["--master_port", str(processes.free_port())]
        command += [EXAMPLE, "--out", tmp_path, "--stage", "0", "1", *SMALL]
        network = dict(testbed.OFI) | {"FI_TCP_IFACE": "eth0"}
        inside = bed.nodes[0].enter("-n", "-u")
        environment = {"PATH": f"{ssh.parent}:{PATH}", "DS_ACCELERATOR": "cpu", "MPI_GDR_DEBUG": "INFO"}
        output = processes.run([*inside, *command], timeout=300, **environment, **network).expect(0)
    same(losses(tmp_path, stages=2), over_gloo)
    assert "node0" in output and "2 node" in output, output
