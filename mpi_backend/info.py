"""`mpi-gdr info`: all that a bug report needs, in one paste. MPI is not started, unless --init asks for
it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from typing import Any

from . import launch
from ._version import __version__

# What is shown of the selection table: (nodes as the extension calls them, for people).
TABLES = {
    "table_on_one_node": ("one", "on one node"),
    "table_two_level": ("several", "on several nodes, several ranks each"),
    "table": ("one per rank", "on several nodes, one rank each"),
}
# Variables of others that change what this package does.
NEIGHBOURS = (
    "MPIR_CVAR_",
    "MVP_",
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


def main(argv: list[str]) -> int:
    """Prints on rank 0 only. Status 1 where the extension cannot be loaded; the rest is shown all the
    same."""
    parser = argparse.ArgumentParser(prog="mpi-gdr info", description="Show what a bug report needs.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument(
        "--init", action="store_true", help="start MPI, to show the thread level that it grants"
    )
    parser.add_argument("--size", type=int, metavar="N", help="show the algorithms for N ranks")
    parser.add_argument(
        "--table",
        action="store_true",
        help="only the selection table in force, in the format of MPI_GDR_TUNING",
    )
    options = parser.parse_args(argv)
    if options.size is not None and options.size < 1:
        parser.error(f"--size {options.size} is less than 1")
    placement = launch.detect(os.environ)
    if options.table:
        return show_table(first=placement is None or placement.rank == 0)
    report = collect(placement, options.init, options.size)
    if placement is None or placement.rank == 0:
        print(json.dumps(report, indent=2) if options.json else as_text(report), flush=True)
    return 1 if "error" in report["extension"] else 0


def collect(placement: launch.Placement | None, init: bool, size: int | None) -> dict[str, Any]:
    """The report. Its keys are documented in docs/launch.md; --json prints it as it is."""
    import torch

    from ._creator import build_info, load_extension
    from .run import find_mpiexec

    record = build_info()
    size = size or (placement.size if placement else 2)
    report: dict[str, Any] = {
        "mpi_gdr": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": f"{platform.platform()}, {len(os.sched_getaffinity(0))} cores",
        "torch": {
            "version": torch.__version__,
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
        "extension": {"mpicc": record.get("mpicc")},
        "accelerator": accelerator(torch, bool(record.get("cuda"))),
        "kernels": {},
        "cuda": cuda_build(record),
        "mpi": {},
        "messages": {},
        "variables": [],
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(NEIGHBOURS)},
        "algorithms": {"size": size} | {name: [] for name in TABLES},
    }
    try:
        extension = load_extension()
        report["extension"]["path"] = extension.__file__
        if init:
            rank_and_size = (placement.rank, placement.size) if placement else (0, 1)
            extension.init_mpi_from_launcher(*rank_and_size, 60.0)
        report["mpi"] = dict(extension.mpi_info())
        selected, available = extension.kernels()
        report["kernels"] = {"selected": selected, "available": available}
        report["cuda"] |= cuda_found(extension.cuda_info())
        report["variables"] = [dict(row) for row in extension.env_table()]
        report["messages"] = message_paths(report["variables"])
        for name, (nodes, _) in TABLES.items():
            report["algorithms"][name] = [dict(row) for row in extension.selection_table(size, nodes)]
    except (ImportError, RuntimeError, ValueError) as error:
        report["extension"]["error"] = str(error)
    return report


def show_table(first: bool) -> int:
    """Prints every row in the order in which it is tried, with a comment where it does not come from the
    built-in table. That table alone is printed as it was written, comments and all."""
    from ._creator import load_extension

    try:
        extension = load_extension()
        rows = extension.selection_rows()
    except (ImportError, ValueError) as error:
        print(f"mpi-gdr info: {error}", file=sys.stderr)
        return 1
    if first and all(origin == "built-in" for _, origin in rows):
        print(extension.schedule.default_table(), end="")
    elif first:
        for row, origin in rows:
            print(row if origin == "built-in" else f"{row:<90}  # {origin}")
    return 0


def accelerator(torch: Any, cuda_built: bool) -> dict[str, Any]:
    """The devices that torch sees, without starting one, and what becomes of their tensors."""
    if not torch.accelerator.is_available():
        return {"type": None, "count": 0, "path": None}
    kind = torch.accelerator.current_accelerator().type
    served = kind == "cuda" and cuda_built
    path = "on streams of the device" if served else "copies through host memory, blocking"
    return {"type": kind, "count": torch.accelerator.device_count(), "path": path}


def cuda_build(record: dict[str, Any]) -> dict[str, Any]:
    """What the build says of our CUDA library. `built`: "with 13.0 for sm_80, sm_90, PTX"."""
    cuda = record.get("cuda")
    built = f"with {cuda['version']} for {', '.join(cuda['architectures'])}" if cuda else None
    return {"built": built, "devices": [], "problem": None}


def cuda_found(found: dict[str, Any]) -> dict[str, Any]:
    """What came of loading it."""
    return {name: found[name] for name in ("devices", "problem")}


def message_paths(variables: list[dict[str, Any]]) -> dict[str, str]:
    """How send and recv travel, in a group on one node and in one on several."""
    value = {row["name"]: row["value"].lower() for row in variables}
    by_mpi = value["MPI_GDR_SHM"] == "off" or value["MPI_GDR_P2P"] == "mpi"
    return {"on_one_node": "MPI" if by_mpi else "shared memory", "on_several": "MPI"}


def as_text(report: dict[str, Any]) -> str:
    lines: list[str] = []
    for key, value in report.items():
        if key in ("variables", "environment", "algorithms"):
            continue
        if isinstance(value, dict):
            lines.append(f"{key}:")
            known = {name: "-" if item in (None, "", -1, []) else item for name, item in value.items()}
            known = {n: ", ".join(item) if isinstance(item, list) else item for n, item in known.items()}
            lines += [f"  {name:<16} {item}" for name, item in known.items()]
        else:
            lines.append(f"{key}: {value}")
    lines += ["variables in force (* = set by the user):"]
    for row in report["variables"]:
        mark = " " if row["source"] == "default" else "*"
        lines.append(f" {mark}{row['name']:<32} {row['value'] or '-'}")
    lines += ["environment:"]
    lines += [f"  {name}={value}" for name, value in report["environment"].items()]
    for name, (_, where) in TABLES.items():
        lines += [f"algorithms for {report['algorithms']['size']} ranks {where}:"]
        for row in report["algorithms"][name]:
            upper = row["to_bytes"]
            upto = f"to {upper} B" if upper is not None and 0 <= upper < 2**63 - 1 else "and more"
            text = f"  {row['collective']:<24} from {row['from_bytes']} B {upto}: {row['algorithm']}"
            if leaders := row.get("leaders"):  # what the row asks for; a smaller node has fewer
                text += f", {leaders} leader{'s' if leaders > 1 else ''}"
            source = row.get("origin", "built-in")
            lines.append(text if source == "built-in" else f"{text} ({source})")
    return "\n".join(lines)
