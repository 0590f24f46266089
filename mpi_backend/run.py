"""`mpi-gdr run`: replaces this process by the launcher of the MPI that the ranks will load.

The launcher thus receives signals and sets the exit status. With --mps this process remains as its parent, to
stop the MPS daemon. Does not import torch.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from . import gpu_share, mpi_library, mps
from .command_line import Parser
from .launchers import ALLOCATIONS

EPILOG = """\
PROGRAM is a Python script (*.py), `-m MODULE`, or an executable. All words after it are its own arguments.
Options of the launcher itself go before a `--`:
  mpi-gdr run -n 4 -genv UCX_TLS tcp,self -- train.py --lr 1e-3
"""
# Each option with the names that other launchers give it.
RANKS = ("-n", "-np", "--np")
RANKS_PER_NODE = (
    *("--ranks-per-node", "--nproc-per-node", "--nproc_per_node", "--ppn", "-ppn"),
    *("--npernode", "-npernode"),
)
OPTIONS_WITH_VALUE = (*RANKS, *RANKS_PER_NODE, "--hostfile", "--ranks-per-gpu", "--mpiexec")
HINTS = {
    "-N": "means nodes to srun and ranks per node to Open MPI: use --ranks-per-node K",
    "--nnodes": "is given by --hostfile, or by the batch system",
    "--nodes": "is given by --hostfile, or by the batch system",
}
SECRET = "MPI_GDR_SECRET"
ADDRESS = "MPI_GDR_MASTER_ADDR"
# Launcher options that place ranks: rank 0 may then be on another host than the host file's first.
HOST_OPTIONS = {"-hosts", "-host", "--host", "-H", "-map-by", "--map-by", ":"} | {
    f"{dashes}{name}"
    for dashes in ("-", "--")
    for name in ("f", "machinefile", "hostfile", "rankfile", "configfile")
}


class Host(NamedTuple):
    """A host file's node."""

    name: str
    slots: int


def main(argv: list[str]) -> int:
    """Returns only on failure or with --mps."""
    options, launcher_options, program = parse(argv)
    mpiexec = options.mpiexec or find_mpiexec()
    if mpiexec is None:
        return print_error("no mpiexec found beside an MPI library or on PATH: name one with --mpiexec", 127)
    if allocation_has_ended(job := os.environ.get("SLURM_JOB_ID", "")):
        return print_error(
            f"SLURM_JOB_ID={job} is left from a job that has ended: unset it, or use another shell", 2
        )
    hosts, first_host = None, ""
    if options.hostfile:
        try:
            hosts = read_hostfile(Path(options.hostfile).read_text())
        except OSError as error:
            return print_error(f"--hostfile {options.hostfile}: {error.strerror}", 2)
    if options.n is None:
        nodes = number_of_nodes(hosts, os.environ)
        if nodes is None:
            return print_error("-n is missing, and the number of nodes of this allocation is unknown", 2)
        options.n = nodes * options.ranks_per_node
    if hosts is None and any(name in os.environ for name in ALLOCATIONS):
        print(f"mpi-gdr run: {options.n} ranks, placed by the launcher in this allocation", file=sys.stderr)
    else:
        counts = place(options.n, hosts, options.ranks_per_node)
        for name, count in counts.items():  # stdout belongs to the program
            print(f"mpi-gdr run: {name}: {count} of {options.n} ranks", file=sys.stderr)
        if hosts and len(counts) > 1 and not HOST_OPTIONS.intersection(launcher_options):
            first_host = hosts[0].name
        # Checked before the start, because each rank would report it.
        if options.ranks_per_gpu and all(is_this_host(name) for name in counts):
            gpus = gpu_share.visible_gpus(os.environ)
            fullest = max(counts.values())
            if (sentence := gpu_share.shortage(gpus, options.ranks_per_gpu, fullest)) is not None:
                return print_error(f"--ranks-per-gpu {options.ranks_per_gpu}: {sentence}", 2)
    if options.mps and (sentence := other_nodes(options.n, hosts, options.ranks_per_node, os.environ)):
        return print_error(f"--mps is for jobs on this node, and {sentence}", 2)
    added = added_variables(os.environ, options.n)
    if options.ranks_per_gpu:
        added[gpu_share.VARIABLE] = str(options.ranks_per_gpu)
    if "MASTER_ADDR" not in os.environ and not os.environ.get(ADDRESS) and is_reachable_name(first_host):
        added[ADDRESS] = first_host
    # Authenticates the ranks' messages; with ADDRESS it identifies the job. Passed by the environment,
    # because all users can read command lines.
    if ADDRESS in added or not os.environ.get(SECRET):
        added[SECRET] = secrets.token_hex(32)
    if Path(mpiexec).name == "mpirun_rsh":
        placed = hosts is not None or any(name in os.environ for name in ALLOCATIONS)
        arguments = mpirun_rsh_arguments(options, launcher_options, placed)
    else:
        arguments = launcher_arguments(is_open_mpi(mpiexec), options, [*added, *os.environ])
        arguments += launcher_options
    command = [mpiexec, *arguments, *program_command(program)]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if options.mps:
            return mps.exit_like(mps.run(command, {**os.environ, **added}))
        os.execve(mpiexec, command, {**os.environ, **added})
    except mps.MpsError as error:
        return print_error(str(error), 1)
    except OSError as error:
        return print_error(f"cannot start {mpiexec}: {error.strerror}", 126)


def print_error(sentence: str, status: int) -> int:
    """Prints why nothing is started; returns the status."""
    print(f"mpi-gdr run: {sentence}", file=sys.stderr)
    return status


# ---- command line -----------------------------------------------------------------------------------------


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """(our options, options for the launcher, the program with its arguments)."""
    parser = Parser(
        prog="mpi-gdr run",
        usage="mpi-gdr run -n N [options] [launcher options --] PROGRAM [arguments]",
        description="Start PROGRAM on N ranks over MPI.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(*RANKS, dest="n", type=positive, metavar="N", help="number of ranks")
    parser.add_argument(
        "--hostfile", metavar="FILE", help="nodes, one per line: `node`, `node:4`, `node slots=4`"
    )
    parser.add_argument(
        *RANKS_PER_NODE,
        dest="ranks_per_node",
        type=positive,
        metavar="K",
        help="ranks on each node; without -n, on all nodes",
    )
    parser.add_argument("--ranks-per-gpu", type=positive, metavar="K", help="ranks that share each GPU")
    parser.add_argument("--mps", action="store_true", help="start an MPS daemon for these GPUs, on one node")
    parser.add_argument("--mpiexec", metavar="PATH", type=executable, help="use this launcher instead")
    ours, rest = split_own_options(argv)
    options = parser.parse_args(ours)
    launcher_options: list[str] = []
    if rest and rest[0] == "--":
        rest = rest[1:]
    elif rest and rest[0].startswith("-") and rest[0] != "-m":
        if "--" not in rest and (hint := HINTS.get(re.sub(r"[=\d].*", "", rest[0]))) is not None:
            parser.error(f"{rest[0]} {hint}")
        if "--" not in rest:
            parser.error(
                f"{rest[0]} is none of its options{parser.suggest_option(rest[0])}; options for the launcher "
                "itself need a -- after them"
            )
        cut = rest.index("--")
        launcher_options, rest = rest[:cut], rest[cut + 1 :]
    if not rest or rest == ["-m"]:
        parser.error("PROGRAM is missing")
    if options.n is None and options.ranks_per_node is None:
        parser.error("-n is missing")
    return options, launcher_options, rest


def split_own_options(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits argv after our own options: argparse would also consume the program's."""
    i = 0
    while i < len(argv):
        word = argv[i]
        if word in OPTIONS_WITH_VALUE:
            i += 2
        elif word in ("-h", "--help", "--mps") or re.match(
            rf"-n\d+$|({'|'.join(OPTIONS_WITH_VALUE)})=", word
        ):
            i += 1
        else:
            break
    return argv[:i], argv[i:]


def positive(text: str) -> int:
    """Parses a count, or seconds within timedelta's range; for argparse."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {10**9}")
    return int(text)


def executable(text: str) -> str:
    """Parses a program's name into its full path; for argparse."""
    path = shutil.which(text)
    if path is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an executable file")
    return os.path.abspath(path)


def program_command(program: list[str]) -> list[str]:
    """Scripts and modules run in unbuffered Python: when a rank is killed, lines buffered for a pipe are
    lost."""
    if program[0] == "-m":
        return [sys.executable, "-u", *program]
    is_script = program[0].endswith(".py") or (
        os.path.isfile(program[0]) and not os.access(program[0], os.X_OK)
    )
    return [sys.executable, "-u", *program] if is_script else program


# ---- launcher ---------------------------------------------------------------------------------------------


def find_mpiexec() -> str | None:
    """The launcher of the MPI library that ranks find; else the one on PATH."""
    try:
        beside = mpi_library.launchers_of(mpi_library.find().path)
    except mpi_library.MpiLibraryError:
        beside = iter(())
    return next(beside, None) or shutil.which("mpiexec") or shutil.which("mpirun")


def version_of(mpiexec: str, seconds: float = 60) -> str | None:
    """Output of --version; None: none in time."""
    try:
        result = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout + result.stderr


def is_open_mpi(mpiexec: str, version_text: str | None = None) -> bool:
    """Whether the launcher is Open MPI's, which spells some options its own way; all others follow Hydra."""
    version_text = version_text or version_of(mpiexec) or ""
    return bool(re.search(r"Open ?MPI|OpenRTE|PRRTE|prterun", version_text, re.IGNORECASE))


def launcher_arguments(open_mpi: bool, options: argparse.Namespace, variables: list[str]) -> list[str]:
    """Our options in the launcher's spelling. Hydra forwards the environment, Open MPI named variables
    only."""
    arguments = ["-n", str(options.n)]
    if options.hostfile:
        arguments += ["--hostfile" if open_mpi else "-f", options.hostfile]
    if options.ranks_per_node:
        k = options.ranks_per_node
        arguments += ["--map-by", f"ppr:{k}:node"] if open_mpi else ["-ppn", str(k)]
    if open_mpi:
        arguments.append("--oversubscribe")
        forwarded = [name for name in variables if name.startswith("MPI_GDR_") or name == "OMP_NUM_THREADS"]
        for name in dict.fromkeys(forwarded):
            arguments += ["-x", name]
    return arguments


def mpirun_rsh_arguments(options: argparse.Namespace, launcher_options: list[str], placed: bool) -> list[str]:
    """MVAPICH's mpirun_rsh takes remaining words for host names, unless it has a host file or the first word
    assigns a variable. `placed`: a host file or a batch system places ranks."""
    arguments = ["-export-all", "-np", str(options.n)]
    if options.hostfile:
        arguments += ["-hostfile", options.hostfile]
    if options.ranks_per_node and placed:
        arguments += ["-ppn", str(options.ranks_per_node)]
    arguments += launcher_options
    if not placed:
        arguments += ["localhost"] * options.n
    return [*arguments, "PYTHONUNBUFFERED=1"]


def added_variables(env: Mapping[str, str], size: int) -> dict[str, str]:
    """Variables that ranks need and the user has not set."""
    added = {}
    # As torchrun: N ranks with a thread per core each would compete for the cores.
    if "OMP_NUM_THREADS" not in env and size > 1:
        added["OMP_NUM_THREADS"] = "1"
    return added


# ---- placement --------------------------------------------------------------------------------------------


def read_hostfile(text: str) -> list[Host]:
    """Nodes of a host file in Hydra's (`node:4`) or Open MPI's (`node slots=4`) spelling."""
    hosts = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        name, _, slots = words[0].partition(":")
        match = re.search(r"\bslots\s*=\s*(\d+)", " ".join(words[1:]))
        hosts.append(Host(name, int(match.group(1)) if match else int(slots) if slots.isdecimal() else 1))
    return hosts


def place(size: int, hosts: list[Host] | None, ranks_per_node: int | None) -> dict[str, int]:
    """{node: ranks}. Launchers fill the nodes in turn and start again when all are full."""
    if not hosts:
        return {socket.gethostname(): size}
    counts = dict.fromkeys((host.name for host in hosts), 0)
    left = size
    while left > 0:
        for host in hosts:
            taken = min(left, ranks_per_node or max(host.slots, 1))
            counts[host.name] += taken
            left -= taken
    return {name: count for name, count in counts.items() if count}


def number_of_nodes(hosts: list[Host] | None, env: Mapping[str, str]) -> int | None:
    """The number of nodes; None in an allocation that does not set it."""
    if hosts:
        return len({host.name for host in hosts})
    if not any(name in env for name in ALLOCATIONS):
        return 1
    nodes = env.get("SLURM_JOB_NUM_NODES", env.get("SLURM_NNODES", ""))
    return int(nodes) if nodes.isdecimal() and int(nodes) > 0 else None


def allocation_has_ended(job: str) -> bool:
    """Whether Slurm reports the job as ended: Hydra would start its daemons in it and wait for ever."""
    if not job or (squeue := shutil.which("squeue")) is None:
        return False
    try:
        command = [squeue, "--noheader", "--jobs", job, "--format", "%T"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
        result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return not result.stdout.strip() and (result.returncode == 0 or "Invalid job id" in result.stderr)


def average_per_node(size: int, env: Mapping[str, str]) -> int:
    """Ranks per node of an allocation, rounded up; 1 if its size is unknown, which disables tuning for it."""
    nodes = number_of_nodes(None, env) if any(name in env for name in ALLOCATIONS) else None
    return -(-size // nodes) if nodes else 1


def other_nodes(
    size: int, hosts: list[Host] | None, ranks_per_node: int | None, env: Mapping[str, str]
) -> str | None:
    """A sentence if the job may have ranks on other nodes."""
    if hosts is None and any(name in env for name in ALLOCATIONS):
        nodes = env.get("SLURM_JOB_NUM_NODES", env.get("SLURM_NNODES", "an unknown number of"))
        return None if nodes == "1" else f"this allocation has {nodes} nodes"
    others = [name for name in place(size, hosts, ranks_per_node) if not is_this_host(name)]
    return f"the host file names {', '.join(others)}" if others else None


def is_reachable_name(name: str) -> bool:
    """Whether other hosts can use a host file's name: not an alias of ssh's, no loopback."""
    with contextlib.suppress(OSError, UnicodeError):
        found = {str(info[4][0]) for info in socket.getaddrinfo(name, None)} if name else {"::1"}
        return not any(address.startswith("127.") or address == "::1" for address in found)
    return False


def is_this_host(name: str) -> bool:
    """Whether a host file's name means this host."""
    own = socket.gethostname()
    return name in ("localhost", "127.0.0.1", own) or name.split(".")[0] == own.split(".")[0]
