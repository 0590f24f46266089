"""`mpi-gdr run --ranks-per-gpu` and `--mps`; shell scripts act as GPUs and daemon."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from support import processes

from mpi_backend import gpu_share, run

pytestmark = pytest.mark.long

SMI = """#!/bin/sh
echo "nvidia-smi $*" >> "$CALLS"
for i in {indices}; do echo "GPU $i: NVIDIA H100 (UUID: GPU-$i$i$i)"{slices}; done
"""
# Like the original it ends with the answer to `quit`; logs its input.
CONTROL = """#!/bin/sh
echo "control [$*] visible=${CUDA_VISIBLE_DEVICES-unset}" >> "$CALLS"
case "$1" in
  -d) [ -n "$REFUSE" ] && { echo "Cannot find  MPS"; exit 1; }
      [ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && [ -d "$CUDA_MPS_LOG_DIRECTORY" ] || exit 3
      sleep 300 & echo $! > "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid" ;;
  *)  read line; echo "said $line" >> "$CALLS"
      [ -n "$DEAF" ] && exit 1
      kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid")" ;;
esac
"""
# One write per rank, because print()'s pieces would mix.
RANK = """
import os, sys
import torch
words = [os.environ.get(name, "unset") for name in ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK")]
if "CHILD" in os.environ:
    import subprocess
    child = "import os, torch; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['LOCAL_RANK'])"
    words = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.split()
pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "unset")
sys.stdout.write(f"rank {os.environ['RANK']}: {' '.join(words)} pipe {pipe}\\n")
"""


@pytest.fixture
def machine(tmp_path):
    """Creates a node with `gpus` GPUs; returns the variables for its programs."""

    def make(gpus=2, slices=0, daemon=True):
        folder = tmp_path / "bin"
        folder.mkdir()
        lines = "".join(f'; echo "  MIG 1g.5gb Device {k}: (UUID: MIG-$i-{k})"' for k in range(slices))
        scripts = {"nvidia-smi": SMI.format(indices=" ".join(map(str, range(gpus))), slices=lines)}
        if daemon:
            scripts["nvidia-cuda-mps-control"] = CONTROL
        for name, text in scripts.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (tmp_path / "calls").touch()
        return {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}

    return make


def job(tmp_path, *options, body=RANK, **env):
    script = tmp_path / "rank.py"
    script.write_text(body)
    return processes.run([*processes.MPI_GDR_RUN, *options, script], timeout=120, **env)


def calls(env):
    with open(env["CALLS"]) as file:
        return file.read().splitlines()


# ---- which GPU --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "seen"),
    [
        ("3,1", ["3", "1"]),
        (" GPU-a , MIG-b/1/2", ["GPU-a", "MIG-b/1/2"]),
        ("0,-1,2", ["0"]),
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_that_cuda_would_see(listed, seen):
    assert gpu_share.visible_gpus({"CUDA_VISIBLE_DEVICES": listed}) == seen


def test_gpus_that_the_driver_lists(machine):
    assert gpu_share.visible_gpus({**os.environ, **machine(3)}) == ["0", "1", "2"]


def test_slices_of_gpus_go_by_their_names(machine):
    assert gpu_share.visible_gpus({**os.environ, **machine(1, slices=2)}) == ["MIG-0-0", "MIG-0-1"]


def test_without_nvidia_smi_the_driver_s_folders_count(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_share, "PROC", tmp_path)
    assert gpu_share.visible_gpus({"PATH": "/nowhere"}) == []
    (tmp_path / "0000:01:00.0").mkdir()
    assert gpu_share.visible_gpus({"PATH": "/nowhere"}) == ["0"]


@pytest.mark.parametrize(
    ("env", "gpu", "local_rank"),
    [
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, "GPU-a", "0"),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, "7", "0"),
        ({"LOCAL_RANK": "3"}, "7", "0"),
        ({"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0"}, "GPU-a", None),
    ],
)
def test_the_gpu_of_a_rank(env, gpu, local_rank):
    env = {"MPI_GDR_RANKS_PER_GPU": "2", "CUDA_VISIBLE_DEVICES": "GPU-a,7", **env}
    gpu_share.apply(env)
    assert (env["CUDA_VISIBLE_DEVICES"], env.get("LOCAL_RANK")) == (gpu, local_rank)
    once = dict(env)
    gpu_share.apply(env)
    assert env == once


@pytest.mark.parametrize(
    "env",
    [
        {"LOCAL_RANK": "1"},
        {"MPI_GDR_RANKS_PER_GPU": "0", "LOCAL_RANK": "1"},
        {"MPI_GDR_RANKS_PER_GPU": "2"},  # torchrun's agent
    ],
)
def test_who_is_left_alone(env):
    before = dict(env)
    gpu_share.apply(env)
    assert env == before


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"MPI_GDR_RANKS_PER_GPU": "two"}, "MPI_GDR_RANKS_PER_GPU=two: expected a number"),
        (
            {"LOCAL_RANK": "4"},
            r"5 ranks on a node do not fit on 2 visible GPUs \(1, 0\)",
        ),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "6"}, "6 ranks on a node .*: at most 4"),
        ({"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": ""}, "do not fit on 0 visible GPUs with"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, "does not set the rank on the node"),
    ],
)
def test_what_cannot_be_shared(env, message):
    with pytest.raises(ValueError, match=message):
        gpu_share.apply({"MPI_GDR_RANKS_PER_GPU": "2", "CUDA_VISIBLE_DEVICES": "1,0", **env})


# ---- jobs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "gpus", "more"),
    [(None, ["0", "0", "1", "1"], {}), ("GPU-b,5", ["GPU-b", "GPU-b", "5", "5"], {"CHILD": "1"})],
)
def test_ranks_of_a_job(tmp_path, machine, visible, gpus, more):
    """A rank's child runs `import torch`, too."""
    env = machine(2) | more | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    output = job(tmp_path, "-n", "4", "--ranks-per-gpu", "2", **env).expect(0)
    for rank, gpu in enumerate(gpus):
        assert f"rank {rank}: {gpu} 0 pipe unset\n" in output


def test_under_torchrun(tmp_path, machine):
    (tmp_path / "rank.py").write_text(RANK)
    command = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", tmp_path / "rank.py"]
    output = processes.run(command, MPI_GDR_RANKS_PER_GPU="1", **machine(2)).expect(0)
    assert "rank 0: 0 0 pipe" in output and "rank 1: 1 0 pipe" in output


def test_too_many_ranks_do_not_start(tmp_path, machine):
    output = job(tmp_path, "-n", "3", "--ranks-per-gpu=2", **machine(1)).expect(2)
    assert output == (
        "mpi-gdr run: HOST: 3 of 3 ranks\n"
        "mpi-gdr run: --ranks-per-gpu 2: 3 ranks on a node do not fit on 1 visible GPU (0) with 2 ranks per "
        "GPU: at most 2\n"
    ).replace("HOST", os.uname().nodename)


def test_ranks_that_detect_it_themselves_report_it(tmp_path, machine):
    """As on a node that the launcher cannot examine. A script may run until it needs the GPU."""
    body = "import torch, torch.distributed as dist\nprint('imported', flush=True)\n"
    body += "dist.init_process_group('gloo')\n"
    (tmp_path / "rank.py").write_text(body)
    command = [processes.mpiexec(), "-n", "2", sys.executable, tmp_path / "rank.py"]
    result = processes.run(command, MPI_GDR_RANKS_PER_GPU="1", **machine(1))
    assert result.status not in (0, None)
    text = "2 ranks on a node do not fit on 1 visible GPU"
    assert re.search(f"UserWarning: mpi-gdr: .*{text}", result.output)
    assert "imported" in result.output
    assert re.search(f"RuntimeError: mpi-gdr: .*{text}", result.output)


# ---- MPS --------------------------------------------------------------------------------------------------


def assert_ended(env, visible="unset"):
    """The daemon was started and stopped once, without remains."""
    expected = [f"control [-d] visible={visible}", f"control [] visible={visible}", "said quit"]
    assert [line for line in calls(env) if not line.startswith("nvidia-smi")] == expected


@pytest.mark.parametrize(
    ("visible", "of_daemon"), [(None, "unset"), ("1,0", "unset"), ("GPU-b,GPU-a", "GPU-b,GPU-a")]
)
def test_a_daemon_for_the_job(tmp_path, machine, visible, of_daemon):
    env = machine(2) | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    output = job(tmp_path, "-n", "2", "--mps", "--ranks-per-gpu", "2", **env).expect(0)
    pipes = set(re.findall(r"rank \d: \S+ 0 pipe (/tmp/mpi-gdr-mps-\w+)", output))
    assert len(pipes) == 1 and not os.path.exists(pipes.pop())
    assert_ended(env, of_daemon)


def test_it_ends_with_a_job_that_fails(tmp_path, machine):
    env = machine(1)
    job(tmp_path, "-n", "2", "--mps", body="import sys; sys.exit(5)", **env).expect(5)
    assert_ended(env)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_a_job_that_is_interrupted(tmp_path, machine, signum):
    env = machine(1)
    (tmp_path / "rank.py").write_text("import time; print('ready', flush=True); time.sleep(100)")
    command = [*processes.MPI_GDR_RUN, "-n", "2", "--mps", str(tmp_path / "rank.py")]
    with processes.Program(command, processes.clean_environment(**env)) as program:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and os.pread(program._log.fileno(), 10000, 0).count(b"ready") < 2:
            time.sleep(0.05)
        program.process.send_signal(signum)
        result = program.finish(60)
    assert result.status not in (0, None), result.output
    assert_ended(env)


def test_signals_and_status_are_the_launcher_s(tmp_path, machine):
    env, launcher = machine(1), tmp_path / "mpiexec"
    launcher.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho ready; exec sleep 60\n')
    launcher.chmod(0o755)
    command = [*processes.MPI_GDR_RUN, "-n", "2", "--mps", "--mpiexec", str(launcher), "/bin/true"]
    for signum in (signal.SIGTERM, signal.SIGUSR1):
        open(env["CALLS"], "w").close()
        with processes.Program(command, processes.clean_environment(**env)) as program:
            while len(calls(env)) < 1:
                time.sleep(0.05)
            time.sleep(0.2)
            program.process.send_signal(signum)
            assert program.finish(60).status == -signum
        assert_ended(env)


def test_a_daemon_that_does_not_listen_is_killed(tmp_path, machine):
    env = machine(1)
    body = "import os; print('folder', os.environ['CUDA_MPS_PIPE_DIRECTORY'], 'pid',"
    body += "open(os.environ['CUDA_MPS_PIPE_DIRECTORY'] + '/nvidia-cuda-mps-control.pid').read())"
    output = job(tmp_path, "-n", "1", "--mps", body=body, DEAF="1", **env).expect(0)
    folder, pid = re.search(r"folder (\S+) pid (\d+)", output).groups()
    assert not os.path.exists(folder)
    for _ in range(100):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            break  # a zombie without a waiting parent
        time.sleep(0.05)
    else:
        raise AssertionError("the daemon lives")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"daemon": False}, "--mps: nvidia-cuda-mps-control is not on PATH"),
        ({"REFUSE": "1"}, "--mps: `nvidia-cuda-mps-control -d` ended with 1: Cannot find MPS"),
    ],
)
def test_no_daemon_no_job(tmp_path, machine, given, message):
    env = machine(1, daemon=given.get("daemon", True))
    if "daemon" in given:
        env["PATH"] = str(tmp_path / "bin") + ":/usr/bin:/bin"
    env |= {name: value for name, value in given.items() if name != "daemon"}
    output = job(tmp_path, "-n", "1", "--mps", body="print('started')", **env).expect(1)
    assert f"mpi-gdr run: {message}" in output and "started" not in output


@pytest.mark.parametrize(
    ("hosts", "env", "sentence"),
    [
        (None, {}, None),
        ([run.Host("localhost", 4)], {}, None),
        ([run.Host("localhost", 1), run.Host("b", 1)], {}, "the host file names b"),
        (None, {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}, None),
        (None, {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}, "this allocation has 2 nodes"),
        (None, {"PBS_JOBID": "7"}, "this allocation has an unknown number of nodes"),
    ],
)
def test_mps_is_for_one_node(hosts, env, sentence):
    assert run.other_nodes(4, hosts, None, env) == sentence
