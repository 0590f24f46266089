"""The machine code (SASS) of the folds in the library as it was built: registers for four blocks a
multiprocessor, no spills, four loads of 16 bytes before a loaded value is used. For sm_90; with --full for
every architecture that the library has. `make disassembler` installs what reads it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest
from support.cases import cases

import mpi_backend

LIBRARY = Path(mpi_backend.__file__).parent / "libmpi_gdr_cuda.so"
LAUNCH = Path(__file__).parents[2] / "csrc/device/cuda/launch.hpp"
BLOCKS, LOADS = 4, 4
REGISTERS = 65536  # of a multiprocessor; a thread gets a multiple of 8


def tool(name: str) -> str | None:
    packages = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/cu*/bin"))
    homes = [Path(os.environ[v], "bin") for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    folders = [*os.get_exec_path(), *homes, "/usr/local/cuda/bin", *packages]
    return shutil.which(name, path=os.pathsep.join(map(str, folders)))


CUOBJDUMP, NVDISASM = tool("cuobjdump"), tool("nvdisasm")
with_library = [
    pytest.mark.skipif(not LIBRARY.exists(), reason="this package was built without nvcc, so without CUDA"),
    pytest.mark.skipif(not (CUOBJDUMP and NVDISASM), reason="no cuobjdump or nvdisasm: `make disassembler`"),
]


class Instruction(NamedTuple):
    opcode: str  # "LDG.E.128"
    operands: list[str]

    def loads_vector(self) -> bool:
        """From global or generic memory, 16 bytes."""
        return bool(re.match(r"LDG?\..*\b128\b", self.opcode))

    def written(self) -> set[int]:
        """The result's registers, if the result is no wider than that of a 16-byte load."""
        found = re.fullmatch(r"R(\d+)", self.operands[0]) if self.operands else None
        words = 4 if ".128" in self.opcode else 2 if re.search(r"64|WIDE|^D", self.opcode) else 1
        return set(range(int(found[1]), int(found[1]) + words)) if found else set()

    def read(self) -> set[int]:
        """Registers of the operands. The first register of a wide operand identifies the loaded value."""
        sources = self.operands[1:] if self.written() else self.operands
        return {int(n) for operand in sources for n in re.findall(r"\bR(\d+)", operand)}


class Function(NamedTuple):
    code: list[Instruction]
    labels: dict[str, int]  # the index of the instruction that follows

    def spills(self) -> list[str]:
        return [each.opcode for each in self.code if re.match(r"(LDL|STL)\b", each.opcode)]

    def main_loops(self) -> list[list[Instruction]]:
        """The innermost loops that load vectors."""
        ranges = []
        for end, each in enumerate(self.code):
            label = re.search(r"\.L_\w+", " ".join(each.operands))
            if re.match(r"BRA\b", each.opcode) and label and self.labels[label[0]] <= end:
                begin = self.labels[label[0]]
                if any(each.loads_vector() for each in self.code[begin:end]):
                    ranges.append((begin, end))
        inner = [
            one for one in ranges if not any(one != o and one[0] <= o[0] and o[1] <= one[1] for o in ranges)
        ]
        return [self.code[begin : end + 1] for begin, end in inner]


def loads_before_use(loop: list[Instruction]) -> int:
    """How many vectors are loaded before any of them is used. Twice through the loop, because a use may stand
    before its load, in the next iteration."""
    loaded: set[int] = set()
    issued = 0
    for each in loop * 2:
        if each.read() & loaded:
            return issued
        loaded -= each.written()
        if each.loads_vector():
            loaded |= each.written()
            issued += 1
    pytest.fail("no loaded value is used")


def functions(listing: str) -> dict[str, Function]:
    """{name: function} of a listing by `nvdisasm -c`. Fails on an instruction that it cannot parse."""
    found: dict[str, Function] = {}
    current = None
    for line in listing.splitlines():
        if label := re.fullmatch(r"(\.[\w$.]+):", line.strip()):
            if label[1].startswith(".text."):
                current = found.setdefault(label[1].removeprefix(".text."), Function([], {}))
            elif current:
                current.labels[label[1]] = len(current.code)
        elif current and re.search(r"/\*[0-9a-f]{4,}\*/", line) and ";" in line:
            text = re.sub(r"/\*.*?\*/", "", line).strip()
            parsed = re.fullmatch(r"\{?\s*(?:@!?U?P\w+\s+)?([A-Z]\w*(?:\.[\w.]+)?)\s*(.*?)\s*;\s*\}?", text)
            assert parsed, f"not understood: {line}"
            operands = [each.strip() for each in parsed[2].split(",")] if parsed[2] else []
            current.code.append(Instruction(parsed[1], operands))
    return found


@pytest.fixture(scope="module")
def folds(tmp_path_factory, pytestconfig) -> dict[str, tuple[int, Function]]:
    """{"sm_90 <mangled name>": (registers, code)}"""
    folder = tmp_path_factory.mktemp("sass")
    subprocess.run(
        [CUOBJDUMP, "-xelf", "all", LIBRARY], cwd=folder, check=True, capture_output=True, timeout=120
    )
    wanted = "*.cubin" if pytestconfig.getoption("--full") else "*.sm_90.cubin"
    found = {}
    for file in sorted(folder.glob(wanted)):
        run = {"capture_output": True, "text": True, "check": True, "timeout": 300}
        listing = subprocess.run([NVDISASM, "-c", file], **run).stdout
        usage = subprocess.run([CUOBJDUMP, "--dump-resource-usage", file], **run).stdout
        registers = dict(re.findall(r"Function ([\w$]+):\s+REG:(\d+)", usage))
        for name, function in functions(listing).items():
            if re.search(r"\d+fold_(resolved_)?kernelI", name):
                found[f"{file.suffixes[-2][1:]} {name}"] = int(registers[name]), function
    if not found and wanted != "*.cubin":
        pytest.skip("the library has no machine code for sm_90")
    assert len(found) > 200
    return found


def report(wrong: dict[str, object]) -> str:
    return "\n".join(f"{value}: {name}" for name, value in list(wrong.items())[:20])


class TestFolds:
    pytestmark = with_library

    def test_four_blocks_fit_on_a_multiprocessor(self, folds) -> None:
        threads = int(re.search(r"kThreads = (\d+);", LAUNCH.read_text())[1])
        most = REGISTERS // (BLOCKS * threads) // 8 * 8
        wrong = {name: registers for name, (registers, _) in folds.items() if registers > most}
        assert not wrong, f"registers, of at most {most}\n{report(wrong)}"

    def test_no_register_is_spilled(self, folds) -> None:
        wrong = {name: len(code.spills()) for name, (_, code) in folds.items() if code.spills()}
        assert not wrong, (
            f"{len(wrong)} of {len(folds)} kernels have loads and stores of spills\n{report(wrong)}"
        )

    def test_loads_are_issued_before_the_first_is_used(self, folds) -> None:
        found = {name: [loads_before_use(loop) for loop in f.main_loops()] for name, (_, f) in folds.items()}
        wrong = {name: loads for name, loads in found.items() if min(loads, default=0) < LOADS}
        assert not wrong, f"loads in flight in the loops of {len(wrong)} of {len(folds)}\n{report(wrong)}"


LISTING = """
.text.fold:
        /*0000*/                   MOV R0, RZ ;
        /*0008*/                   @P0 BRA `(.L_x_2) ;
.L_x_1:
        /*0010*/              @!P1 LDG.E.128 R8, desc[UR8][R2.64] ;
        /*0020*/              @!P2 LD.E.128 R12, desc[UR8][R4.64+0x10] ;
        {}
        /*0040*/                   FADD R16, R16, R9.reuse ;
        /*0050*/              @!P0 BRA `(.L_x_1) ;
.L_x_2:
        /*0060*/                   ST.E.128 desc[UR8][R2.64], R16 ;
        /*0070*/                   EXIT ;
"""


@cases(
    ("between", "loads"),
    ("/*0030*/ LDG.E.128.CONSTANT R20, desc[UR8][R6.64] ; /* 0x0000 */", 3),
    ("/*0030*/ LDS.128 R20, [R6] ;", 2),
    ("/*0030*/ IMAD.WIDE.U32 R6, R7, 0x10, R14 ;", 2),  # a use
    ("/*0030*/ @P1 FADD R8, RZ, RZ ;", 2),  # another value in the first register
    ("/*0030*/ STG.E.64 desc[UR8][R6.64], R14 ;", 2),
)
def test_reading_machine_code(between: str, loads: int) -> None:
    (function,) = functions(LISTING.replace("{}", between)).values()
    (loop,) = function.main_loops()
    assert len(loop) == 5 and loads_before_use(loop) == loads
    assert not function.spills()


def test_a_spill_is_found_and_an_unknown_line_refused() -> None:
    (function,) = functions(LISTING.replace("{}", "/*0030*/ @P0 STL.64 [R1+0x8], R14 ;")).values()
    assert function.spills() == ["STL.64"]
    with pytest.raises(AssertionError, match="not understood"):
        functions(LISTING.replace("{}", "/*0030*/ ?? R1 ;"))
