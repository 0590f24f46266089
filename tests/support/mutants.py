"""Software GPUs that omit something (tests/fakecuda/gpu/mutant.hpp): the places, their descriptions, and
whether a program detects the omission."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from support import processes, simgpu_build

KERNELS, HOST = "test_folds", "test_cuda_weak_peers"  # programs of tests/fakecuda
CASES = (
    "every_fold_gives_the_bits_of_the_host", "flags_by_kernels", "flags_by_memory_operations",
    "parts_of_which_the_first_queue_is_late", "parts_of_which_the_other_queue_is_late",
    "carried_from_the_device", "carried_by_kernels", "carried_through_the_host", "broadcasts_in_a_row",
    "peers_by_memory_operations", "group_memory_by_memory_operations", "peers_by_kernels",
    "group_memory_by_kernels", "graphs",
)  # fmt: skip


def build() -> dict[str, Path]:
    return {name: simgpu_build.program(name) for name in (KERNELS, HOST)}


def run_case(programs: dict[str, Path], case: str, limit: int = 50, **environment: str) -> processes.Result:
    program = programs[KERNELS if case == CASES[0] else HOST]
    environment |= {"MUTANT_SECONDS": str(limit), "FAKECUDA_MEMORY": "weak"}
    return processes.run([program, case], timeout=limit + 60, **environment)


def come_to(
    programs: dict[str, Path], folder: Path, chosen: Iterable[str], least: int
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """({place: chosen cases that reach it}, {case: limit in s, ten times its duration, at least `least`})."""
    cases, limits = defaultdict(list), {}
    for case in chosen:
        places_file = folder / case
        began = time.monotonic()
        run_case(programs, case, FAKECUDA_PLACES=str(places_file)).expect(0)
        limits[case] = max(least, round(10 * (time.monotonic() - began)))
        for place in places_file.read_text().split():
            if case not in cases[place]:
                cases[place].append(case)
    return cases, limits


def ptx_places() -> dict[str, str]:
    """All places in the PTX with descriptions: "fence 0 of write_kernel", numbered within the kernel."""
    places = {}
    folder = simgpu_build.BUILD / "tests/fakecuda/gpu"
    for source in (*sorted(folder.glob("reduce_*.cpp")), folder / "flag_kernels.cpp"):  # not the probe's
        text = source.read_text()
        names = dict(re.findall(r'^\{"(\w+)", &(kernel\d+),', text, re.MULTILINE))
        names = {number: name for name, number in names.items()}
        counts: dict[tuple[str, str], int] = defaultdict(int)
        kernel = ""
        for line in text.splitlines():
            if match := re.match(r"void (kernel\d+)\(", line):
                kernel = _short(names[match[1]], source.stem)
            for function, number in re.findall(r"([\w<>:, ]+)\(t\.at\(file, (\d+)\)", line):
                kind = next((kind for kind in ("fence", "barrier") if kind in function), "volatile")
                places[f"{kind}:{source.stem}:{number}"] = f"{kind} {counts[kernel, kind]} of {kernel}"
                counts[kernel, kind] += 1
    return places


def _short(mangled: str, file: str) -> str:
    match = re.search(r"\d([a-z][a-z_]*_kernel)", mangled)
    return match[1] if file == "flag_kernels" else f"{match[1]} of {file}"


def host_place(program: Path, place: str) -> str | None:
    """Describes the place: "event peer_execution.cpp: device.order(caller, first);". None: not in csrc."""
    kind, module, offset = re.split("[:+]", place)
    if module != program.name:
        return None
    command = ["addr2line", "-e", str(program), hex(int(offset, 16) - 1)]
    file, _, line = processes.captured(command, check=False).stdout.strip().partition(":")
    if "/csrc/" not in file:
        return None
    text = Path(file).read_text().splitlines()[int(line.split()[0]) - 1].strip()
    return f"{kind} {Path(file).name}: {text}"


def outcome(programs: dict[str, Path], place: str, cases: list[str], limits: dict[str, int]) -> str | None:
    """How the first case that detects the omission ends; None: no case detects it."""
    for case in cases:
        result = run_case(programs, case, limits[case], FAKECUDA_MUTANT=place)
        if result.status != 0:
            how = "hangs" if " hangs" in result.output else "fails"
            messages = re.findall(r"rank \d of \d: (.*)|fakecuda: (.*)", result.output)
            return f"{case} {how}" + (f": {''.join(messages[0])[:90]}" if messages else "")
    return None


def binding_place(library: Path, place: str) -> str | None:
    """Describes the place: "event of mpi_gdr::launch". None: not the library's, or tested by build()'s."""
    kind, module, offset = re.split("[:+]", place)
    if module != library.name:
        return None
    command = ["addr2line", "-f", "-C", "-e", str(library), hex(int(offset, 16) - 1)]
    function = processes.captured(command, check=False).stdout.partition("(")[0]
    engine = ("PeerExecution", "StreamExecution", "submit_captured", "DeviceProgram", "SlotUse", "launch")
    return None if function.removeprefix("mpi_gdr::").startswith(engine) else f"{kind} of {function}"
