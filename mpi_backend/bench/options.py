"""The command line of `mpi-gdr bench COLLECTIVE`. Does not import torch, so that it answers at once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .. import rank_command
from ..command_line import Parser, canonical_name, parse_names, refusal
from ..run import positive

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "sendrecv",
    "barrier",
)
MESSAGES = ("latency", "bw", "bibw", "multi_bw")  # between two ranks
# Benchmarks of several collectives; each is a module with main(argv, ranks).
OTHERS = ("ddp", "device", "overhead", "overlap", "suite")
DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "complex128",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
CONTENDERS = {  # {name in --compare: options of its job}
    "mpi-gdr": (),
    "group": ("--memory", "group"),
    "gloo": ("--backend", "gloo"),
    "mpi": ("--backend", "mpi"),
    "nccl": ("--backend", "nccl"),
}
COPIED = {  # options that the jobs of a comparison inherit
    "-b": "minbytes",
    "-e": "maxbytes",
    "-f": "stepfactor",
    "-d": "datatype",
    "-o": "op",
    "-r": "root",
    "-n": "iters",
    "-w": "warmup_iters",
    "--device": "device",
}
# From this size on every rank rewrites its buffer before each timed call and all start together. Otherwise
# the buffer never leaves its reader's cache, and shared memory looks far too good.
REWRITE_BYTES = 64 * 1024


class Calls(NamedTuple):
    """How one size is timed."""

    iterations: int
    warmup: int
    rewrite: bool
    check: bool


def calls(options: argparse.Namespace, total: int) -> Calls:
    """The default warm-up is long: where ranks share cores, the scheduler needs tens of milliseconds to even
    out their earlier processor use, and a group tries its algorithms in its first calls."""
    iterations, warmup = options.iters, options.warmup_iters
    if iterations is None:
        iterations = 200 if total < 1 << 20 else 40 if total == 1 << 20 else 10
    if warmup is None:
        warmup = 500 if total < 1 << 20 else 100 if total == 1 << 20 else 30
    return Calls(iterations, warmup, total >= REWRITE_BYTES, bool(options.check))


def parser_of_command() -> argparse.ArgumentParser:
    """The command line; check_options() completes the checks."""
    parser = Parser(
        prog="mpi-gdr bench",
        usage=f"mpi-gdr bench [-n RANKS] COLLECTIVE|{'|'.join((*MESSAGES, *OTHERS))} [options]",
        epilog="-n before the collective starts that many ranks; leave it out under a launcher. "
        "`mpi-gdr bench ddp --help`, for example, describes another benchmark.",
        description="Time a collective of torch.distributed, in the columns of nccl-tests.",
    )
    add = parser.add_argument
    add(
        "collectives",
        type=collective_list,
        metavar="COLLECTIVE",
        help=f"{', '.join(COLLECTIVES)}; several, with commas between: one after another in the same job",
    )
    add("-b", "--minbytes", type=size, default=8, metavar="SIZE", help="first size (default: 8)")
    add("-e", "--maxbytes", type=size, default=64 << 20, metavar="SIZE", help="last size (default: 64M)")
    add("-f", "--stepfactor", type=int, default=2, metavar="K", help="next size = K times this (default: 2)")
    add("--sizes", type=size_list, metavar="LIST", help="these sizes instead: 8,64K,1M")
    add("-d", "--datatype", choices=DTYPES, default="float32", metavar="DTYPE", help=", ".join(DTYPES))
    ops = ("sum", "prod", "min", "max", "avg")
    add("-o", "--op", choices=ops, default="sum", help="reduction (default: sum)")
    add("-r", "--root", type=int, default=0, metavar="RANK", help="root, where there is one (default: 0)")
    counts = "timed calls per size (default: 200 below 1 MiB, then 40, above it 10)"
    add("-n", "--iters", type=positive, metavar="N", help=counts)
    add("-w", "--warmup_iters", type=int, metavar="N", help="calls before them (default: 500, 100 or 30)")
    add("-c", "--check", type=int, choices=(0, 1), default=1, help="check the result (default: 1)")
    add("-g", "--ngpus", type=int, default=1, metavar="1", help="of nccl-tests; a rank has one device here")
    add("--backend", default="mpi-gdr", help="mpi-gdr, gloo, another that torch knows; mpi: bare MPI")
    add("--device", default="cpu", help="device type of the tensors (default: cpu)")
    add("--memory", choices=("ordinary", "group"), default="ordinary", help="where CPU buffers are: see docs")
    formats = ("nccl", "osu", "percentiles")
    add("--format", choices=formats, default="nccl", help="columns of nccl-tests, of OSU, or p50 and p99")
    add("--json", metavar="FILE", help="also write JSON to FILE; -: to standard output, instead of text")
    add("--timeout", type=positive, default=300, metavar="S", help="deadline of each call (default: 300)")
    known = [name for name in CONTENDERS if name != "mpi-gdr"]
    text = f"beside mpi-gdr, in turn: some of {', '.join(known)}"
    add("--compare", type=contenders(*known), metavar="LIST", help=text)
    add("--rounds", type=positive, metavar="K", help="with --compare: jobs of each (default: 3)")
    add("--plot", metavar="FILE", help="draw time and bus bandwidth against size (needs matplotlib)")
    return parser


def collective_list(text: str) -> list[str]:
    """Parses some of COLLECTIVES, separated by commas, each once."""
    if "," not in text and canonical_name(text, COLLECTIVES) not in COLLECTIVES:
        raise argparse.ArgumentTypeError(refusal(text, (*COLLECTIVES, *MESSAGES, *OTHERS)))
    return parse_names(text, COLLECTIVES)


def contenders(*known: str) -> Callable[[str], list[str]]:
    """Parser of --compare: some of `known`, separated by commas, each once; an empty text gives none."""
    return lambda text: parse_names(text, known) if text else []


def size(text: str) -> int:
    """Parses bytes: 8, 64K, 1M."""
    match = re.fullmatch(r"(\d+)([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size: expected a number, optionally with K, M or G"
        )
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def size_list(text: str) -> list[int]:
    """Parses sizes, separated by commas."""
    return [size(word) for word in text.split(",")]


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits on options that exclude each other."""
    if options.stepfactor < 2:
        parser.error(f"-f {options.stepfactor} is less than 2")
    if options.ngpus != 1:
        parser.error(
            f"-g {options.ngpus}: a rank has one device here; -n before the collective starts more ranks"
        )
    if options.sizes is not None and min(options.sizes) < 1:
        parser.error(f"--sizes {','.join(map(str, options.sizes))}: expected at least 1 byte each")
    if options.minbytes < 1 or options.minbytes > options.maxbytes:
        parser.error(f"-b {options.minbytes}: expected 1 to -e {options.maxbytes}")
    if options.warmup_iters is not None and options.warmup_iters < 0:
        parser.error(f"-w {options.warmup_iters} is less than 0")
    if options.memory == "group" and (options.backend != "mpi-gdr" or options.device != "cpu"):
        parser.error("--memory group: expected --backend mpi-gdr and --device cpu")
    if options.backend == "mpi" and options.device != "cpu":
        parser.error("--backend mpi: expected --device cpu")
    if options.datatype == "bool" and options.op == "avg":
        parser.error("-o avg is not defined on -d bool")
    if options.datatype.startswith("complex") and options.op in ("prod", "min", "max"):
        parser.error(f"-o {options.op}: torch.distributed refuses it on -d {options.datatype}")
    if options.plot and len(options.collectives) > 1:
        parser.error("--plot draws one collective")
    if options.plot:
        rank_command.require_matplotlib(parser, "--plot")
    if options.compare is None and options.rounds is not None:
        parser.error("--rounds needs --compare")
    if options.compare is not None:
        if options.backend != "mpi-gdr":
            parser.error(f"--backend {options.backend}: --compare starts mpi-gdr and the others itself")
        if options.device != "cpu" and (on_cpu := {"group", "mpi"}.intersection(options.compare)):
            parser.error(f"--compare {','.join(sorted(on_cpu))}: expected --device cpu")
        if options.format == "osu":
            parser.error("--format osu has no columns for --compare")


def sizes(options: argparse.Namespace, item: int) -> list[int]:
    """Bytes in whole items, each size once."""
    wanted = options.sizes or list(powers(options.minbytes, options.maxbytes, options.stepfactor))
    return list(dict.fromkeys(max(current // item, 1) * item for current in wanted))


def powers(first: int, last: int, factor: int) -> Iterator[int]:
    """first, first * factor, ... up to last."""
    while first <= last:
        yield first
        first *= factor
