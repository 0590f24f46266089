"""`mpi-gdr info`: all that a bug report needs, in one paste. MPI is not started, unless --init asks for
it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Literal, TypedDict, cast

from . import host, launchers
from ._version import __version__
from .build_info import BuildInfo, build_info
from .reports import EnvVariable, MpiInfo, SelectionRange

Table = Literal["table_on_one_node", "table_two_level", "table"]
# What is shown of the selection table: (nodes as the extension calls them, for people).
TABLES: dict[Table, tuple[str, str]] = {
    "table_on_one_node": ("one", "on one node"),
    "table_two_level": ("several", "on several nodes, several ranks each"),
    "table": ("one per rank", "on several nodes, one rank each"),
}
# Variables of others that change what this package does.
NEIGHBOURS = (
    "MPIR_CVAR_",
    "MVP_",
    "MV2_",
    "MPICH_",
    "OMPI_MCA_",
    "I_MPI_",
    "UCX_",
    "FI_",
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


class TorchInfo(TypedDict):
    """The torch of this environment."""

    version: str
    cuda: str | None
    hip: str | None
    built_for: str | None  # the version that the extension was built for


class LauncherInfo(TypedDict):
    """What has started this process; None: no launcher. `mpiexec`: what `mpi-gdr run` takes."""

    started_by: str | None
    rank: int | None
    size: int | None
    mpiexec: str | None


class ExtensionInfo(TypedDict, total=False):
    """`error`: it cannot be loaded; then without `path`."""

    mpicc: str | None
    compiler: str | None
    path: str
    error: str


class Accelerator(TypedDict):
    """The devices that torch sees; without any, the type is None."""

    type: str | None
    count: int
    path: str | None  # of their tensors


class Kernels(TypedDict, total=False):
    """The instruction set of the reduction kernels."""

    selected: str
    available: list[str]


class CudaPart(TypedDict):
    """Of our CUDA library."""

    built: str | None
    devices: list[str]
    problem: str | None


class Algorithms(TypedDict):
    """Of groups of `size` ranks."""

    size: int
    table_on_one_node: list[SelectionRange]
    table_two_level: list[SelectionRange]
    table: list[SelectionRange]


class Report(TypedDict):
    """What --json prints. What only the extension knows is empty without it."""

    mpi_gdr: str
    commit: str | None
    errors: list[str]
    warnings: list[str]
    python: str
    platform: str
    host: host.HostFacts
    torch: TorchInfo
    launcher: LauncherInfo
    extension: ExtensionInfo
    accelerator: Accelerator
    kernels: Kernels
    cuda: CudaPart
    mpi: MpiInfo
    network: str | None
    messages: dict[str, str]
    variables: list[EnvVariable]
    environment: dict[str, str]
    algorithms: Algorithms


def main(argv: list[str]) -> int:
    """Prints on rank 0 only. Status 1 where the extension cannot be loaded or a value is bad; the rest is
    shown all the same."""
    parser = argparse.ArgumentParser(prog="mpi-gdr info", description="Show what a bug report needs.")
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
    options = parser.parse_args(argv)
    if options.size is not None and options.size < 1:
        parser.error(f"--size {options.size} is less than 1")
    placement = launchers.detect(os.environ)
    if options.table:
        return show_table(first=placement is None or placement.rank == 0)
    report = collect(placement, options.init, options.size)
    if placement is None or placement.rank == 0:
        shown = as_text(report, options.all, options.all or options.size is not None)
        print(json.dumps(report, indent=2) if options.json else shown, flush=True)
    return 1 if report["errors"] or "error" in report["extension"] else 0


def collect(placement: launchers.Placement | None, init: bool, size: int | None) -> Report:
    """The report. Its keys are documented in docs/launch.md; --json prints it as it is."""
    import torch

    from .run import find_mpiexec

    record = build_info()
    size = size or (placement.size if placement else 2)
    report: Report = {
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
            "built_for": record.get("torch_version"),
        },
        "launcher": {
            "started_by": placement.launcher if placement else None,
            "rank": placement.rank if placement else None,
            "size": placement.size if placement else None,
            "mpiexec": find_mpiexec(record),
        },
        "extension": {"mpicc": record.get("mpicc"), "compiler": record.get("compiler")},
        "accelerator": accelerator(bool(record.get("cuda"))),
        "kernels": {},
        "cuda": cuda_build(record),
        "mpi": cast(MpiInfo, {}),
        "network": None,
        "messages": {},
        "variables": [],
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(NEIGHBOURS)},
        "algorithms": {"size": size, "table_on_one_node": [], "table_two_level": [], "table": []},
    }
    try:
        from .extension import _C
    except ImportError as error:
        report["extension"]["error"] = str(error)
        return report
    report["extension"]["path"] = _C.__file__
    for problem in _C.env_problems():
        if problem["bad"]:  # taken out, or no other could be read
            del os.environ[problem["name"]]
            report["errors"].append(f"{problem['message']}; below as if it were not set")
        else:
            report["warnings"].append(problem["message"])

    def part(ask: Callable[[], None]) -> None:
        try:
            ask()
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
        report["cuda"]["devices"], report["cuda"]["problem"] = found["devices"], found["problem"]

    def algorithms() -> None:
        for name, (nodes, _) in TABLES.items():
            report["algorithms"][name] = _C.selection_table(size, nodes)

    if init:
        rank_and_size = (placement.rank, placement.size) if placement else (0, 1)
        part(lambda: _C.init_mpi_from_launcher(*rank_and_size, 60.0))
    mpi = report["mpi"] = _C.mpi_info()
    report["network"] = network(mpi["device"], os.environ)
    part(kernels)
    part(cuda)
    part(variables)
    part(algorithms)
    return report


def network(device: str, env: Mapping[str, str]) -> str | None:
    """The module of MPICH that talks to the network. `device`: what the library says it was built with, such
    as "ch4:ucx ofi"; the first is taken unless the variable names another. None: not known."""
    modules = device.partition(":")[2].replace(",", " ").split()
    asked = env.get("MPIR_CVAR_CH4_NETMOD")
    if asked:
        return f"{asked} (MPIR_CVAR_CH4_NETMOD)"
    if not modules:
        return None
    return modules[0] if len(modules) == 1 else f"{modules[0]} (the first of {', '.join(modules)})"


def show_table(first: bool) -> int:
    """Prints every row in the order in which it is tried, with a comment where it does not come from the
    built-in table. That table alone is printed as it was written, comments and all."""
    try:
        from .extension import _C

        rows = _C.selection_rows()
    except (ImportError, ValueError) as error:
        print(f"mpi-gdr info: {error}", file=sys.stderr)
        return 1
    if first and all(origin == "built-in" for _, origin in rows):
        print(_C.schedule.default_table(), end="")
    elif first:
        for row, origin in rows:
            print(row if origin == "built-in" else f"{row:<90}  # {origin}")
    return 0


def accelerator(cuda_built: bool) -> Accelerator:
    """The devices that torch sees, without starting one, and what becomes of their tensors."""
    import torch

    if not torch.accelerator.is_available():
        return {"type": None, "count": 0, "path": None}
    kind = torch.accelerator.current_accelerator().type
    served = kind == "cuda" and cuda_built
    path = "on streams of the device" if served else "copies through host memory, blocking"
    return {"type": kind, "count": torch.accelerator.device_count(), "path": path}


def cuda_build(record: BuildInfo) -> CudaPart:
    """What the build says of our CUDA library. `built`: "with 13.0 for sm_80, sm_90, PTX"."""
    cuda = record.get("cuda")
    built = f"with {cuda['version']} for {', '.join(cuda['architectures'])}" if cuda else None
    return {"built": built, "devices": [], "problem": None}


def message_paths(variables: list[EnvVariable]) -> dict[str, str]:
    """How send and recv travel, in a group on one node and in one on several."""
    value = {row["name"]: row["value"].lower() for row in variables}
    by_mpi = value["MPI_GDR_SHM"] == "off" or value["MPI_GDR_P2P"] == "mpi"
    return {"on_one_node": "MPI" if by_mpi else "shared memory", "on_several": "MPI"}


def as_text(report: Report, everything: bool = False, algorithms: bool = False) -> str:
    """Fits a screen, unless `everything` shows variables at their defaults, and `algorithms` the tables."""
    lines = [f"mpi-gdr {report['mpi_gdr']}, commit {report['commit'] or 'unknown'}"]
    error = report["extension"].get("error")
    lines += [f"ERROR: {text}" for text in ([error] if error else []) + report["errors"]]
    lines += [f"warning: {text}" for text in report["warnings"]]
    lines += [f"{name:<13}{text}" for name, text in rows_of(report) if text]
    shown = [row for row in report["variables"] if everything or row["source"] != "default"]
    if shown:
        lines.append(
            "variables (* = set by the user)" if everything else "variables that are set (--all: all of them)"
        )
    for row in shown:
        mark = "*" if everything and row["source"] != "default" else " "
        lines.append(f" {mark}{row['name']:<32} {variable_text(row)}")
    if report["environment"]:
        lines.append("environment")
    lines += [f"  {name}={value}" for name, value in report["environment"].items()]
    lines += algorithm_lines(report["algorithms"]) if algorithms else []
    return "\n".join(lines)


def rows_of(report: Report) -> list[tuple[str, str | None]]:
    """(name, text) of each line; without text there is nothing to say."""
    of_host, torch, mpi = report["host"], report["torch"], report["mpi"]
    limits = {name: host.size_text(size) for name, size in of_host["limits"].items()}
    files = of_host["limits"]["open_files"]
    shared = of_host["shared_memory"]
    kernels = ""
    if found := report["kernels"]:
        kernels = f"; kernels {found['selected']} (of {', '.join(found['available'])})"
    rows = [
        ("python", report["python"]),
        ("platform", report["platform"]),
        ("cpu", f"{of_host['cpu']}, {of_host['cores']} cores{kernels}"),
        (
            "memory",
            f"{host.size_text(of_host['memory'])}; /dev/shm {host.size_text(shared['size'])}, "
            f"{host.size_text(shared['free'])} of it free",
        ),
        (
            "limits",
            f"open files {'unlimited' if files is None else files}, locked memory {limits['locked_memory']}, "
            f"core files {limits['core_files']}",
        ),
        ("torch", torch_text(torch)),
        ("extension", report["extension"].get("path")),
        ("compiler", report["extension"]["compiler"]),
        ("mpicc", report["extension"]["mpicc"]),
        ("launcher", launcher_text(report["launcher"])),
    ]
    if mpi:
        rows += [
            ("mpi", f"{' '.join(mpi['library'].split())} ({mpi['abi']}, MPI {mpi['mpi_version']})"),
            ("libmpi", mpi["library_path"]),
            ("network", report["network"] or "not known"),
            ("started mpi", started_text(mpi)),
        ]
    if messages := report["messages"]:
        rows.append(
            ("messages", f"{messages['on_one_node']} on one node, {messages['on_several']} on several")
        )
    accelerator, cuda = report["accelerator"], report["cuda"]
    if accelerator["type"]:
        text = f"{accelerator['count']} x {accelerator['type']}: {accelerator['path']}"
        rows.append(("accelerator", text))
    library = f"built {cuda['built']}" if cuda["built"] else "not built"
    rows.append(("cuda", "; ".join(filter(None, [library, *cuda["devices"], cuda["problem"]]))))
    origins = {row["origin"] for name in TABLES for row in report["algorithms"][name]}
    if origins:
        rows.append(("algorithms", f"{', '.join(sorted(origins))} table (--size N shows them for N ranks)"))
    return rows


def torch_text(torch: TorchInfo) -> str:
    """Versions, in a line."""
    devices = [f"{name} {found}" for name, found in (("cuda", torch["cuda"]), ("hip", torch["hip"])) if found]
    return f"{torch['version']} (built for {torch['built_for']}), {', '.join(devices) or 'no accelerator'}"


def launcher_text(launcher: LauncherInfo) -> str:
    """Who started this process, in a line."""
    by = launcher["started_by"]
    started = f"{by}, rank {launcher['rank']} of {launcher['size']}" if by else "none started this process"
    return f"{started}; `mpi-gdr run` takes {launcher['mpiexec']}"


def started_text(mpi: MpiInfo) -> str | None:
    """What is known once MPI has started (--init)."""
    if not mpi["thread_level"]:
        return None
    return (
        f"thread level {mpi['thread_level']}, by {mpi['bootstrap'] or mpi['initialized_by']}, "
        f"node {mpi['node']} of {mpi['nodes']} ({mpi['processor']}), {mpi['ranks_on_node']} ranks there"
    )


def variable_text(row: EnvVariable) -> str:
    """The value; bytes also in units."""
    value = row["value"]
    if row["name"].endswith(("_BYTES", "_MEMORY")) and value.isdecimal() and int(value) >= 1024:
        return f"{value} ({host.size_text(int(value))})"
    return value or "-"


def algorithm_lines(algorithms: Algorithms) -> list[str]:
    """The tables, a line per range."""
    lines = []
    for name, (_, where) in TABLES.items():
        lines += [f"algorithms for {algorithms['size']} ranks {where}"]
        for row in algorithms[name]:
            upper = row["to_bytes"]
            upto = f"to {host.size_text(upper)}" if upper is not None and upper < 2**63 - 1 else "and more"
            sizes = f"from {host.size_text(row['from_bytes'])} {upto}"
            text = f"  {row['collective']:<24} {sizes}: {row['algorithm']}"
            if leaders := row.get("leaders"):  # what the row asks for; a smaller node has fewer
                text += f", {leaders} leader{'s' if leaders > 1 else ''}"
            source = row.get("origin", "built-in")
            lines.append(text if source == "built-in" else f"{text} ({source})")
    return lines
