"""`mpi-gdr info`: all facts for a bug report. Does not start MPI without --init."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import cast

from . import host, launchers
from ._version import __version__
from .build_info import BuildInfo, build_info, extensions
from .command_line import Parser
from .info_text import TABLES, as_text, choices_text
from .reports import AcceleratorInfo, CudaBuild, EnvProblem, EnvVariable, InfoReport, MpiInfo

# Variables of other packages that change this one's behaviour.
NEIGHBOURS = (
    "MPIR_CVAR_",
    "MVP_",
    "MV2_",
    "MPICH_",
    "OMPI_MCA_",
    "I_MPI_",
    "UCX_",
    "FI_",
    "DDP_DISABLE_COMM_MEM",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "HIP_VISIBLE_DEVICES",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "LD_LIBRARY_PATH",
)


def main(argv: list[str]) -> int:
    """Prints on rank 0 only. Exit status: 1 if the extension cannot be loaded or a value is invalid; the rest
    is printed nevertheless."""
    parser = Parser(prog="mpi-gdr info", description="Show what a bug report needs.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument(
        "--init", action="store_true", help="start MPI, to show the thread level that it grants"
    )
    parser.add_argument("--all", action="store_true", help="also variables at their defaults, and algorithms")
    parser.add_argument("--size", type=int, metavar="N", help="also the algorithms for N ranks")
    parser.add_argument(
        "--table",
        action="store_true",
        help="only the selection table in force, in the format of MPI_GDR_TUNING",
    )
    parser.add_argument(
        "--choices", action="store_true", help="only what earlier jobs of this user have measured"
    )
    options = parser.parse_args(argv)
    if options.size is not None and options.size < 1:
        parser.error(f"--size {options.size} is less than 1")
    placement = launchers.detect(os.environ)
    if options.table:
        return show_table(first=placement is None or placement.rank == 0)
    if options.choices:
        return show_choices(placement is None or placement.rank == 0, options.json)
    report = collect(placement, options.init, options.size)
    if placement is None or placement.rank == 0:
        shown = as_text(report, options.all, options.all or options.size is not None)
        print(json.dumps(report, indent=2) if options.json else shown, flush=True)
    return 1 if report["errors"] or "error" in report["extension"] else 0


def collect(placement: launchers.Placement | None, init: bool, size: int | None) -> InfoReport:
    """The report for --json; docs/launch.md documents its keys."""
    import torch

    from .run import find_mpiexec

    record = build_info()
    size = size or (placement.size if placement else 2)
    report: InfoReport = {
        "mpi_gdr": __version__,
        "commit": record.get("commit"),
        "errors": [],
        "warnings": [],
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "host": host.facts(),
        "torch": {
            "version": str(torch.__version__),
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "built_for": list(extensions()),
        },
        "launcher": {
            "started_by": placement.launcher if placement else None,
            "rank": placement.rank if placement else None,
            "size": placement.size if placement else None,
            "mpiexec": find_mpiexec(),
        },
        "extension": {"mpi_abis": record.get("mpi_abis"), "compiler": record.get("compiler")},
        "accelerator": accelerator(bool(record.get("cuda"))),
        "kernels": {},
        "cuda": cuda_build(record),
        "mpi": cast(MpiInfo, {}),
        "mpi_library_is": None,
        "network": None,
        "messages": {},
        "variables": [],
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(NEIGHBOURS)},
        "algorithms": {"size": size, "table_on_one_node": [], "table_two_level": [], "table": []},
    }
    try:
        from .extension import _C, MPI
    except ImportError as error:
        report["extension"]["error"] = str(error)
        return report
    report["extension"]["path"] = _C.__file__
    bad, report["warnings"] = remove_invalid_variables(_C.env_problems(), os.environ)
    report["errors"] = [f"{text}; treated as not set below" for text in bad]

    def collect_part(query: Callable[[], None]) -> None:
        try:
            query()
        except (RuntimeError, ValueError) as error:
            report["errors"].append(str(error))

    def kernels() -> None:
        selected, available = _C.kernels()
        report["kernels"] = {"selected": selected, "available": available}

    def variables() -> None:
        report["variables"] = _C.env_table()
        report["messages"] = message_paths(report["variables"])

    def cuda() -> None:
        found = _C.cuda_info()
        report["cuda"]["devices"] = found["devices"]
        report["cuda"]["nccl"] = found["nccl"]
        report["cuda"]["problem"] = report["cuda"]["problem"] or found["problem"]

    def algorithms() -> None:
        for name, (nodes, _) in TABLES.items():
            report["algorithms"][name] = _C.selection_table(size, nodes)

    if init:
        rank_and_size = (placement.rank, placement.size) if placement else (0, 1)
        collect_part(lambda: _C.init_mpi_from_launcher(*rank_and_size, 60.0))
    mpi = report["mpi"] = _C.mpi_info()
    report["mpi_library_is"] = MPI.origin
    report["network"] = network(mpi, os.environ, init)
    collect_part(kernels)
    collect_part(cuda)
    collect_part(variables)
    collect_part(algorithms)
    return report


def remove_invalid_variables(
    problems: list[EnvProblem], env: MutableMapping[str, str]
) -> tuple[list[str], list[str]]:
    """(messages on invalid values, messages on unknown names). Removes invalid values from `env`, because the
    extension reads no variable while one is invalid."""
    bad = [problem for problem in problems if problem["bad"]]
    for problem in bad:
        del env[problem["name"]]
    return [problem["message"] for problem in bad], [
        problem["message"] for problem in problems if not problem["bad"]
    ]


def network(mpi: MpiInfo, env: Mapping[str, str], started: bool) -> str | None:
    """The carrier of MPI's messages between nodes: "ucx", "ofi (tcp)". None: unknown. `started`: MPI may be
    started to query libfabric's provider."""
    module = network_module(mpi, env)
    if module == "ucx" and "UCX_TLS" in env:
        return f"ucx (UCX_TLS={env['UCX_TLS']})"
    if module != "ofi":
        return module or None
    allowed = env.get("FI_PROVIDER", "")
    # A single name leaves no choice; "^udp" and "tcp,sockets" do.
    provider = allowed if re.fullmatch(r"[\w;]+", allowed) else ""
    if not provider and started:
        provider = provider_in_use(mpi["library_path"], env)
    if not provider:
        asked = f"FI_PROVIDER={allowed}" if allowed else "FI_PROVIDER is not set"
        provider = f"provider not known; {asked}" + ("" if started else "; --init asks")
    return f"ofi ({provider})"


def network_module(mpi: MpiInfo, env: Mapping[str, str]) -> str:
    """MPICH's network module: the user's choice, else the first of "ch4:ucx ofi", as the library reports its
    build. Intel MPI reports none and has only one. "": unknown."""
    for prefix in ("MPIR_CVAR", "MPIR_PARAM", "MPICH", "MVP", "MV2"):
        if asked := env.get(f"{prefix}_CH4_NETMOD"):
            return asked
    built = re.split("[ ,]+", mpi["device"].partition(":")[2])
    return built[0] or ("ofi" if mpi["library"].startswith("Intel") else "")


def provider_in_use(library: str, env: Mapping[str, str]) -> str:
    """Starts MPI in a child process without a launcher: MPICH and its derivatives only print the provider at
    start, Intel MPI only with shared memory off. "": none printed."""
    start = "import ctypes, sys; mpi = ctypes.CDLL(sys.argv[1]); mpi.MPI_Init(None, None); mpi.MPI_Finalize()"
    alone = {name: value for name, value in env.items() if not name.startswith(("PMI", "HYD", "MPI_LOCAL"))}
    debug_variables = {"MPIR_CVAR_DEBUG_SUMMARY": "1", "I_MPI_DEBUG": "2", "I_MPI_FABRICS": "ofi"}
    try:
        result = subprocess.run(
            [sys.executable, "-I", "-c", start, library],
            env={**alone, **debug_variables}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    found = re.search(r"libfabric provider: (\S+)", result.stdout)
    return found.group(1) if found else ""


def show_table(first: bool) -> int:
    """Prints all rows in the order of matching, with a comment on those that are not built in. The built-in
    table alone is printed as written, with its comments."""
    try:
        from .extension import _C
        from .tools import schedule

        rows = _C.selection_rows()
    except (ImportError, ValueError) as error:
        print(f"mpi-gdr info: {error}", file=sys.stderr)
        return 1
    if first and all(origin == "built-in" for _, origin in rows):
        print(schedule.default_table(), end="")
    elif first:
        for row, origin in rows:
            print(row if origin == "built-in" else f"{row:<90}  # {origin}")
    return 0


def show_choices(first: bool, as_json: bool) -> int:
    """Prints the cache folder's files, and what groups ignore of them and why."""
    try:
        from .extension import _C

        folder, files = _C.remembered_choices()
    except (ImportError, ValueError) as error:
        print(f"mpi-gdr info: {error}", file=sys.stderr)
        return 1
    if first:
        print(json.dumps(files, indent=2) if as_json else choices_text(folder, files))
    return 0


def accelerator(cuda_built: bool) -> AcceleratorInfo:
    """The devices that torch sees, without starting one, and the path of their tensors."""
    import torch

    if not torch.accelerator.is_available():
        return {"type": None, "count": 0, "path": None}
    kind = torch.accelerator.current_accelerator().type
    served = kind == "cuda" and cuda_built
    path = "on streams of the device" if served else "copies through host memory, blocking"
    return {"type": kind, "count": torch.accelerator.device_count(), "path": path}


def cuda_build(record: BuildInfo) -> CudaBuild:
    """The build's record of our CUDA library. `built`: "with 13.0 for sm_80, sm_90, PTX"; None: not built,
    for the reason in `problem`."""
    cuda = record.get("cuda")
    built = f"with {cuda['version']} for {', '.join(cuda['architectures'])}" if cuda else None
    return {"built": built, "devices": [], "problem": None if built else record.get("no_cuda"), "nccl": None}


def message_paths(variables: list[EnvVariable]) -> dict[str, str]:
    """How send and recv travel in a group on one node, and on several."""
    value = {row["name"]: row["value"].lower() for row in variables}
    by_mpi = value["MPI_GDR_SHM"] == "off" or value["MPI_GDR_P2P"] == "mpi"
    return {"on_one_node": "MPI" if by_mpi else "shared memory", "on_several": "MPI"}
