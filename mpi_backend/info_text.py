"""`mpi-gdr info` as text."""

from __future__ import annotations

from typing import Literal

from . import host
from .reports import (
    AlgorithmTables,
    ChoiceFile,
    EnvVariable,
    InfoReport,
    LauncherInfo,
    MeasuredChoice,
    MpiInfo,
    TorchInfo,
)

Table = Literal["table_on_one_node", "table_two_level", "table"]
# {key in the report: (argument of _C.selection_table(), text)}
TABLES: dict[Table, tuple[str, str]] = {
    "table_on_one_node": ("one", "on one node"),
    "table_two_level": ("several", "on several nodes, several ranks each"),
    "table": ("one per rank", "on several nodes, one rank each"),
}


def as_text(report: InfoReport, everything: bool = False, algorithms: bool = False) -> str:
    """Fits a screen, except with `everything` (variables at their defaults) or `algorithms` (the tables)."""
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


def rows_of(report: InfoReport) -> list[tuple[str, str | None]]:
    """(name, text) of each line; None: the line is left out."""
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
        ("built for", ", ".join(report["extension"]["mpi_abis"] or ["no MPI"])),
        ("launcher", launcher_text(report["launcher"])),
    ]
    if mpi:
        rows += [
            ("mpi", f"{' '.join(mpi['library'].split())} ({mpi['abi']}, MPI {mpi['mpi_version']})"),
            ("libmpi", f"{mpi['library_path']}, {report['mpi_library_is']}"),
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
    if cuda["devices"]:
        rows.append(("nccl", f"inside a node: {cuda['nccl']}"))
    origins = {row["origin"] for name in TABLES for row in report["algorithms"][name]}
    if origins:
        rows.append(("algorithms", f"{', '.join(sorted(origins))} table (--size N shows them for N ranks)"))
    return rows


def torch_text(torch: TorchInfo) -> str:
    """torch's versions, in a line."""
    devices = [f"{name} {found}" for name, found in (("cuda", torch["cuda"]), ("hip", torch["hip"])) if found]
    served = ", ".join(torch["built_for"]) or "none"
    return f"{torch['version']} (built for {served}), {', '.join(devices) or 'no accelerator'}"


def launcher_text(launcher: LauncherInfo) -> str:
    """The launcher of this process, in a line."""
    by = launcher["started_by"]
    started = f"{by}, rank {launcher['rank']} of {launcher['size']}" if by else "none started this process"
    return f"{started}; `mpi-gdr run` takes {launcher['mpiexec']}"


def started_text(mpi: MpiInfo) -> str | None:
    """Facts that only a started MPI has (--init), else None."""
    if not mpi["thread_level"]:
        return None
    return (
        f"thread level {mpi['thread_level']}, by {mpi['bootstrap'] or mpi['initialized_by']}, "
        f"node {mpi['node']} of {mpi['nodes']} ({mpi['processor']}), {mpi['ranks_on_node']} ranks there"
    )


def variable_text(row: EnvVariable) -> str:
    """The value; sizes also in units."""
    value = row["value"]
    if row["name"].endswith(("_BYTES", "_MEMORY")) and value.isdecimal() and int(value) >= 1024:
        return f"{value} ({host.size_text(int(value))})"
    return value or "-"


def algorithm_lines(algorithms: AlgorithmTables) -> list[str]:
    """The tables, a line per range."""
    lines = []
    for name, (_, where) in TABLES.items():
        lines += [f"algorithms for {algorithms['size']} ranks {where}"]
        for row in algorithms[name]:
            upper = row["to_bytes"]
            upto = f"to {host.size_text(upper)}" if upper is not None and upper < 2**63 - 1 else "and more"
            sizes = f"from {host.size_text(row['from_bytes'])} {upto}"
            text = f"  {row['collective']:<24} {sizes}: {row['algorithm']}"
            if leaders := row.get("leaders"):  # requested; limited by the ranks of the smallest node
                text += f", {leaders} leader{'s' if leaders > 1 else ''}"
            source = row.get("origin", "built-in")
            lines.append(text if source == "built-in" else f"{text} ({source})")
    return lines


def choices_text(folder: str, files: list[ChoiceFile]) -> str:
    """Remembered choices by file, or why there are none."""
    if not folder:
        return (
            "no choices are remembered: XDG_CACHE_HOME is not an absolute path, and HOME is not this user's "
            "folder"
        )
    if not files:
        return (
            f"no choices are remembered: {folder} has none. A group on one node writes there when it is "
            "destroyed, unless MPI_GDR_ADAPT=off or your own rows disable measuring"
        )
    lines = []
    for file in files:
        lines.append(f"{file['key'] or 'unknown'} ({file['path']})")
        if file["problem"]:
            lines.append(f"  ignored: {file['problem']}")
        lines += [f"  {choice_text(choice)}" for choice in file["choices"]]
    return "\n".join(lines)


def choice_text(choice: MeasuredChoice) -> str:
    """One choice in a line."""
    sizes = f"{host.size_text(choice['from_bytes'])} to {host.size_text(choice['to_bytes'])}"
    memory = "group" if choice["group_memory"] else "ordinary"
    other = "staged" if choice["algorithm"] == "zero_copy" else "zero_copy"
    return (
        f"{choice['collective']:<16} {sizes:<20} {memory:<8} memory: {choice['algorithm']}, "
        f"{choice['speedup'] or 0:.2f}x as fast as {other}"
    )
