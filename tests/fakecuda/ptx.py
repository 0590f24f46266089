#!/usr/bin/env python3
"""Translates PTX, as nvcc writes it, into C++ for gpu/translated.hpp. A kernel becomes a function, a register
a variable, and an instruction a statement with the line number that it has in the PTX.

    ptx.py kernels.ptx kernels.cpp [ptxas]

A line of PTX that is not supported is an error, which quotes the line. Without ptxas, a kernel has the most
registers that let the blocks of .minnctapersm be resident at once."""

import functools
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

INTEGER = "([su](?:16|32|64))"
FLOAT = "(f32|f64)"
BITS = "b(16|32|64)"
TYPE = "([suf](?:16|32|64))"

# Register-only instructions: name and effect. {0}: first operand, the result; \1: first group of the name.
# `add.f32` is missing, because ptxas may fuse additions without .rn.
INSTRUCTIONS = [
    (rf"(add|sub|mul|div)\.rn\.{FLOAT}", r"{0} = \1<\2>({1}, {2})"),
    (rf"(add|sub|div|rem|min|max)\.{INTEGER}", r"{0} = \1<\2>({1}, {2})"),
    (rf"mul\.lo\.{INTEGER}", r"{0} = mul<\1>({1}, {2})"),
    (r"mul\.wide\.([su](?:16|32))", r"{0} = mul_wide<\1>({1}, {2})"),
    (rf"mad\.lo\.{INTEGER}", r"{0} = add<\1>(mul<\1>({1}, {2}), {3})"),
    (r"neg\.(s16|s32|s64)", r"{0} = sub<\1>(0, {1})"),
    (rf"and\.(?:pred|{BITS})", "{0} = {1} & {2}"),
    (rf"or\.(?:pred|{BITS})", "{0} = {1} | {2}"),
    (rf"xor\.(?:pred|{BITS})", "{0} = {1} ^ {2}"),
    (r"not\.pred", "{0} = !{1}"),
    (rf"not\.{BITS}", "{0} = ~{1}"),
    (rf"shl\.{BITS}", r"{0} = shl<u\1>({1}, {2})"),
    (rf"shr\.{INTEGER}", r"{0} = shr<\1>({1}, {2})"),
    (r"bfe\.([su](?:32|64))", r"{0} = bfe<\1>({1}, {2}, {3})"),
    (r"bfi\.b(32|64)", r"{0} = bfi<u\1>({1}, {2}, {3}, {4})"),
    (r"prmt\.b32", "{0} = prmt({1}, {2}, {3})"),
    (rf"setp\.(eq|ne|lt|le|gt|ge)\.{TYPE}", r"{0} = \1<\2>({1}, {2})"),
    (rf"setp\.(eq|ne)\.{BITS}", r"{0} = \1<u\2>({1}, {2})"),
    (rf"setp\.nan\.{FLOAT}", r"{0} = nan<\1>({1}, {2})"),
    (rf"setp\.num\.{FLOAT}", r"{0} = !nan<\1>({1}, {2})"),
    (rf"selp\.(?:{BITS}|{TYPE})", "{0} = {3} ? {1} : {2}"),
    (r"cvt\.([su](?:8|16|32|64))\.([su](?:8|16|32|64))", r"{0} = cvt<\1, \2>({1})"),
    (rf"cvt\.rn\.{FLOAT}\.([su](?:8|16|32|64))", r"{0} = cvt<\1, \2>({1})"),
    (rf"cvt\.rzi\.([su](?:32|64))\.{FLOAT}", r"{0} = cvt<\1, \2>({1})"),
    (r"cvt\.(f32)\.(f16)|cvt\.(f64)\.(f32)", r"{0} = cvt<\1\3, \2\4>({1})"),
    (r"cvt\.rn\.(f16)\.(f32)|cvt\.rn\.(f32)\.(f64)", r"{0} = cvt<\1\3, \2\4>({1})"),
    (rf"mov\.(?:pred|{BITS}|{TYPE})", "{0} = {1}"),
    (r"cvta\.to\.global\.u64", "{0} = {1}"),
    (r"bra(?:\.uni)?", "goto {0}"),
    (r"ret", "return"),
]
# Instructions without operands that a mutant may omit (gpu/mutant.hpp): name and C++ function.
ORDER = [
    (r"bar\.sync\.0", "barrier"),
    (r"membar\.cta|fence\.(?:sc|acq_rel)\.cta", "fence<Scope::Block>"),
    (r"membar\.gl|fence\.(?:sc|acq_rel)\.gpu", "fence<Scope::Device>"),
    (r"membar\.sys|fence\.(?:sc|acq_rel)\.sys", "fence<Scope::System>"),
]
ACCESS = re.compile(r"(ld|st)(\.volatile)?(\.global|\.param|\.shared)?(?:\.v[24])?\.([subf](?:8|16|32|64))")
SPECIAL = {"%tid.x": "t.tid", "%ntid.x": "t.ntid", "%ctaid.x": "t.ctaid", "%nctaid.x": "t.nctaid"}
IGNORED = re.compile(r'|\(|\)|\.version .*|\.target .*|\.address_size 64|\.pragma "nounroll";')
PRELUDE = (
    '#include "gpu/translated.hpp"\nnamespace fakecuda {{ namespace {{ using namespace ptx;\n'
    '[[maybe_unused]] constexpr char file[] = "{}";\n#line 1 "{}"\n'
)


class Unknown(Exception):
    pass


@dataclass
class Kernel:
    name: str
    number: int
    symbols: dict[str, int] = field(default_factory=dict)  # addresses of parameters and shared variables
    params: list[tuple[int, int]] = field(default_factory=list)
    param_bytes: int = 0
    shared_bytes: int = 0
    most_threads: int = 1024
    resident_blocks: int = 0  # minimum on a multiprocessor (.minnctapersm); 0: not stated

    def row(self, allocated: dict[str, int] | None) -> str:
        params = f"params{self.number}" if self.params else "{}"
        registers = "kRegisters"
        if allocated is not None:
            registers = str(allocated[self.name])
        elif self.resident_blocks:
            registers = f"kOneMultiprocessor.registers / {self.resident_blocks * self.most_threads} / 8 * 8"
        return (
            f'{{"{self.name}", &kernel{self.number}, {params}, {self.param_bytes}, {self.shared_bytes}, '
            f"{registers}, {self.most_threads}}},"
        )


def bytes_of(type_name: str) -> int:
    return 1 if type_name == "pred" else int(type_name[1:]) // 8


def aligned(at: int, to: int) -> int:
    return -(-at // to) * to


@functools.cache
def form_of(name: str, operand_count: int) -> str:
    for pattern, form in INSTRUCTIONS:
        match = re.fullmatch(pattern, name)
        if match and operand_count == len(set(re.findall(r"\{\d\}", form))):
            return match.expand(form)
    raise Unknown


class Translator:
    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.kernel: Kernel | None = None  # whose head or body is being read
        self.places: Counter[str] = Counter()  # occurrences so far of each kind that a mutant may omit

    def line(self, text: str) -> str:
        text = re.sub(r"//.*", "", text).strip()
        if IGNORED.fullmatch(text):
            return ""
        if match := re.fullmatch(r"(?:\.visible |\.weak )?\.entry (\w+)\(", text):
            self.kernel = Kernel(match[1], len(self.kernels))
            self.kernels.append(self.kernel)
            return f"void kernel{self.kernel.number}([[maybe_unused]] Thread& t)"
        if not self.kernel:
            raise Unknown
        if match := re.fullmatch(r"\.maxntid (\d+)(?:, (\d+))?(?:, (\d+))?", text):
            self.kernel.most_threads = prod(int(extent) for extent in match.groups("1"))
            return ""
        if match := re.fullmatch(r"\.minnctapersm (\d+)", text):
            self.kernel.resident_blocks = int(match[1])
            return ""
        if text == "{":
            return text
        if text == "}":
            self.kernel = None
            return text
        if match := re.fullmatch(r"\$(\w+):", text):
            return f"{match[1]}:;"
        if text.startswith("."):
            return self.variable(text)
        # nvcc's way to read one half of a register. `tmp` is the unused half, which parts() expects as `_`.
        text = re.sub(r"\{ \.reg \.b16 tmp; (mov\.b32 .*;) \}", lambda m: m[1].replace("tmp", "_"), text)
        match = re.fullmatch(r"(?:@(!?)%(p\d+)\s+)?([\w.]+)\s*(.*);", text)
        if not match:
            raise Unknown
        guard = f"if ({match[1]}_{match[2]}) " if match[2] else ""
        return f"{guard}{{ {self.statement(match[3], operands(match[4]))}; }}"

    def variable(self, text: str) -> str:
        kernel = self.kernel
        if match := re.fullmatch(r"\.reg \.(pred|[bf](?:16|32|64))\s+%(\w+)<(\d+)>;", text):
            kind = "bool" if match[1] == "pred" else f"u{match[1][1:]}"
            names = ", ".join(f"_{match[2]}{i} = static_cast<{kind}>(kPoison)" for i in range(int(match[3])))
            return f"[[maybe_unused]] {kind} {names};"
        pointer = r"(?:\.ptr (?:\.global )?\.align \d+ )?"  # ignored
        declared = rf"(?:\.align (\d+) )?\.([subf](?:8|16|32|64)) {pointer}(\w+)(?:\[(\d+)\])?"
        if match := re.fullmatch(rf"\.param {declared},?", text):
            kernel.param_bytes = place(kernel, match, kernel.param_bytes)
            kernel.params.append((kernel.symbols[match[3]], kernel.param_bytes - kernel.symbols[match[3]]))
            return ""
        if match := re.fullmatch(rf"\.shared {declared};", text):
            kernel.shared_bytes = place(kernel, match, kernel.shared_bytes)
            return ""
        raise Unknown

    def statement(self, name: str, args: list[str]) -> str:
        if match := ACCESS.fullmatch(name):
            return self.access(match, args)
        if match := re.fullmatch(r"(?:atom|red)\.global\.add\.(u32)", name):
            address, value = args[-2:]
            result = f"{self.operand(args[0])} = " if len(args) == 3 else ""
            return f"{result}add_atomically<{match[1]}>(t, {self.address(address)}, {self.operand(value)})"
        if name.startswith("mov.b") and any(arg.startswith("{") for arg in args):
            return self.parts(int(name[5:]), *args)
        if name == "bar.sync":  # only barrier 0, without a number of threads, is supported
            name, args = ".".join([name, *args]), []
        for pattern, function in ORDER:
            if re.fullmatch(pattern, name) and not args:
                return f"{function}({self.thread_at(function.partition('<')[0])})"
        return form_of(name, len(args)).format(*(self.operand(arg) for arg in args))

    def thread_at(self, kind: str) -> str:
        """C++ for the thread, which first records the number of this instruction among its kind."""
        self.places[kind] += 1
        return f"t.at(file, {self.places[kind] - 1})"

    def operand(self, text: str) -> str:
        if text in SPECIAL:
            return SPECIAL[text]
        if match := re.fullmatch(r"%([a-z]+\d+)|\$(\w+)", text):
            return f"_{match[1]}" if match[1] else match[2]
        if re.fullmatch(r"0x[0-9A-F]+U", text):
            return text
        if re.fullmatch(r"-?\d+", text):
            return text if abs(int(text)) < 2**63 else f"{text}u"
        if match := re.fullmatch(r"0[fd]([0-9A-F]{8}|[0-9A-F]{16})", text):
            return f"0x{match[1]}u"
        if text in self.kernel.symbols:
            return str(self.kernel.symbols[text])
        raise Unknown

    def access(self, match: re.Match, args: list[str]) -> str:
        kind, volatile, space, type_name = match.groups()
        memory, registers = (args[1], args[0]) if kind == "ld" else (args[0], args[1])
        if volatile and space != ".global":
            raise Unknown
        names = [self.operand(register) for register in inside(registers)]
        address = self.address(memory)
        type_name = type_name.replace("b", "u")
        order = "Order::Volatile" if volatile else "Order::Weak"
        thread = self.thread_at("volatile") if volatile else "t"
        if kind == "st":
            if space == ".param":
                raise Unknown
            function = f"store_shared<{type_name}>" if space == ".shared" else f"store<{order}, {type_name}>"
            return f"{function}({', '.join([thread, address, *names])})"
        function = f"load{space.replace('.', '_')}<" if space in (".shared", ".param") else f"load<{order}, "
        loaded = f"{function}{type_name}, {len(names)}>({thread}, {address})"
        if len(names) == 1:
            return f"{names[0]} = {loaded}[0]"
        return f"const auto v = {loaded}; " + "; ".join(f"{r} = v[{i}]" for i, r in enumerate(names))

    def address(self, text: str) -> str:
        place = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", text)
        if not place:
            raise Unknown
        return f"u64{{{self.operand(place[1])}}} + {place[2] or 0}"

    def parts(self, bits: int, to: str, value: str) -> str:
        """mov between a register and a list of its parts, lowest first. A part named _ is not used."""
        if to.startswith("{"):
            names, source = inside(to), self.operand(value)
            width = bits // len(names)
            return "; ".join(
                f"{self.operand(name)} = static_cast<u{width}>(u64{{{source}}} >> {i * width})"
                for i, name in enumerate(names)
                if name != "_"
            )
        names = [self.operand(name) for name in inside(value)]
        casts = ", ".join(f"static_cast<u{bits // len(names)}>({name})" for name in names)
        return f"{self.operand(to)} = join<u{bits}>({casts})"

    def tables(self, allocated: dict[str, int] | None) -> str:
        params = [
            f"constexpr Kernel::Param params{kernel.number}[] = {{"
            + ", ".join(f"{{{at}, {size}}}" for at, size in kernel.params)
            + "};"
            for kernel in self.kernels
            if kernel.params
        ]
        rows = [kernel.row(allocated) for kernel in self.kernels]
        return "\n".join(
            [
                *params,
                "constexpr Kernel kernels[] = {",
                *rows,
                "};",
                "[[maybe_unused]] const bool entered = enter_kernels(kernels);",
                "} }",
                "",
            ]
        )


def place(kernel: Kernel, declared: re.Match, end: int) -> int:
    """Places a variable at or after `end`; returns its end."""
    size = bytes_of(declared[2])
    at = kernel.symbols[declared[3]] = aligned(end, int(declared[1] or size))
    return at + size * int(declared[4] or 1)


def operands(text: str) -> list[str]:
    return re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^\s,]+", text)


def inside(text: str) -> list[str]:
    return [part.strip() for part in text.strip("{}").split(",")]


def allocated_registers(source: Path, ptxas: str) -> dict[str, int]:
    """Registers of a thread, by kernel."""
    target = re.search(r"^\.target (\w+)", source.read_text(), re.MULTILINE)[1]
    command = [ptxas, "-v", f"-arch={target}", "-o", "/dev/null", str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{source}: {result.stderr}")
    used = re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", result.stderr, re.DOTALL)
    return {name: int(registers) for name, registers in used}


def translate(source: Path, ptxas: str = "") -> str:
    translator = Translator()
    lines = []
    for number, line in enumerate(source.read_text().splitlines(), 1):
        try:
            lines.append(translator.line(line))
        except Unknown:
            raise SystemExit(f"{source}:{number}: PTX that is not known: {line.strip()}") from None
    if not translator.kernels:
        raise SystemExit(f"{source}: no kernels")
    allocated = allocated_registers(source, ptxas) if ptxas else None
    lines += ['#line 1 "tables"', translator.tables(allocated)]
    return PRELUDE.format(source.stem, source.name) + "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(translate(Path(sys.argv[1]), *sys.argv[3:]))
