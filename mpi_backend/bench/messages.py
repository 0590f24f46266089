"""`mpi-gdr bench latency|bw|bibw|multi_bw`: messages between two ranks, with the loops and columns of OSU's
micro-benchmarks. See docs/bench.md."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from .. import rank_command
from ..command_line import Parser
from ..reports import JobSummary
from ..run import positive
from .options import contenders, powers, size, size_list
from .side_by_side import JobResults, collect, show, synchronizer

if TYPE_CHECKING:
    import torch

    from .measure import Ranks

TITLES = {
    "latency": "Latency Test",
    "bw": "Bandwidth Test",
    "bibw": "Bi-Directional Bandwidth Test",
    "multi_bw": "Multiple Bandwidth / Message Rate Test",
}
UNITS = {"latency": "us", "bw": "MB/s", "bibw": "MB/s", "multi_bw": "MB/s"}
LARGE = 8192  # bytes; fewer iterations above it, as in OSU's
CHECKED_BYTES = 8 << 20  # memory for the messages of the check, which do not overlap


def parser_of(name: str) -> argparse.ArgumentParser:
    """The command line of benchmark `name`."""
    parser = Parser(
        prog=f"mpi-gdr bench {name}",
        usage=f"mpi-gdr bench [-n RANKS] {name} [options]",
        description=f"OSU's {TITLES[name]} through torch.distributed.",
    )
    add = parser.add_argument
    add("-b", "--minbytes", type=size, default=1, metavar="SIZE", help="first size (default: 1)")
    add("-e", "--maxbytes", type=size, default=4 << 20, metavar="SIZE", help="last size (default: 4M)")
    add("-f", "--stepfactor", type=int, default=2, metavar="K", help="next size = K times this (default: 2)")
    add("--sizes", type=size_list, metavar="LIST", help="these sizes instead: 8,64K,1M")
    many = "2000 and 200" if name == "latency" else "100 and 20"
    add("-n", "-i", "--iters", type=positive, metavar="N", help=f"timed turns (default: up to 8K {many})")
    add("-w", "-x", "--warmup_iters", type=int, metavar="N", help="turns before them (default: a quarter)")
    add("-c", "--check", type=int, choices=(0, 1), default=1, help="check what arrives (default: 1)")
    if name != "latency":
        text = "messages in flight at a time (default: 64)"
        add("-W", "--window-size", dest="window", type=positive, default=64, metavar="N", help=text)
    else:
        parser.set_defaults(window=1)
    add("--backend", default="mpi-gdr", help="mpi-gdr, gloo, another that torch knows; mpi: bare MPI")
    add("--device", default="cpu", help="device type of the tensors (default: cpu)")
    text = "beside mpi-gdr, in turn: some of gloo, mpi, fake"
    add("--compare", type=contenders("gloo", "mpi", "fake"), metavar="LIST", help=text)
    add(
        "--rounds",
        type=positive,
        default=3,
        metavar="K",
        help="with --compare: jobs of each (default: 3)",
    )
    add("--json", metavar="FILE", help="also write JSON to FILE; -: to standard output, instead of text")
    add("--timeout", type=positive, default=300, metavar="S", help="deadline of each wait (default: 300)")
    return parser


def main(name: str, argv: list[str], ranks: int | None) -> int:
    """Exit status: 0; 1 on all ranks if a byte was wrong; 2 for a wrong command line."""
    parser = parser_of(name)
    options = parser.parse_args(argv)
    if options.warmup_iters is not None and options.warmup_iters < 0:
        parser.error(f"-w {options.warmup_iters}: expected at least 0")
    if options.minbytes < 1 or options.minbytes > options.maxbytes:
        parser.error(f"-b {options.minbytes}: expected 1 to -e {options.maxbytes}")
    if options.stepfactor < 2:
        parser.error(f"-f {options.stepfactor}: expected at least 2")
    if options.sizes is not None and min(options.sizes) < 1:
        parser.error(f"--sizes {','.join(map(str, options.sizes))}: expected at least 1 byte each")
    if options.device != "cpu" and "mpi" in (options.backend, *(options.compare or ())):
        parser.error(f"--device {options.device}: bare MPI is timed with --device cpu")
    rank_command.check_backend(parser, options.backend, "mpi")
    rank_command.check_device(parser, options.device)
    if ranks is not None and (ranks < 2 or (name != "multi_bw" and ranks != 2)):
        parser.error(f"-n {ranks}: expected {'at least 2' if name == 'multi_bw' else '2'} ranks")
    if options.compare is not None:
        return compare(parser, name, argv, options, ranks)
    if ranks is None and not rank_command.is_rank(os.environ):
        parser.error(f"the number of ranks is missing: use `mpi-gdr bench -n 2 {name}`, or a launcher")
    if (started := rank_command.ranks_to_start(parser, ranks)) is not None:
        from . import start_ranks

        return start_ranks([name, *argv], started, options.backend)
    return run_rank(name, options)


# ---- one rank ---------------------------------------------------------------------------------------------


class _RowOptional(TypedDict, total=False):
    messages_per_second: float  # bandwidth only


class Row(_RowOptional):
    """One size."""

    bytes: int
    iterations: int
    warmup: int
    value: float  # in the report's unit
    wrong: int | None  # bytes on all ranks; None: not checked


class Report(TypedDict):
    """A job's results."""

    info: JobSummary
    benchmark: str
    unit: str
    device: str
    pairs: int
    window: int
    rows: list[Row]
    wrong: int | None


class Exchange(NamedTuple):
    """A rank's part in each iteration of OSU's loop: see _tools.raw_mpi.time_messages."""

    pattern: str  # latency, bw or bibw
    first: bool
    peer: int  # -1: none, this rank waits for the others
    outgoing: Sequence[torch.Tensor]
    incoming: Sequence[torch.Tensor]


def run_rank(name: str, options: argparse.Namespace) -> int:
    """The exit status: see main()."""
    from .rank import ranks_of

    ranks = ranks_of(options)
    options.check &= options.backend != "fake"  # it delivers nothing
    pairs = ranks.size // 2
    if ranks.size < 2 or (name != "multi_bw" and ranks.size != 2):
        expected = "at least 2" if name == "multi_bw" else "2"
        print(f"mpi-gdr bench {name}: {ranks.size} rank(s): expected {expected}", file=sys.stderr)
        ranks.close()
        return 2
    report: Report = {
        "info": ranks.summary(),
        "benchmark": name,
        "unit": UNITS[name],
        "device": str(ranks.device),
        "pairs": pairs,
        "window": options.window,
        "rows": [],
        "wrong": 0 if options.check else None,
    }
    shown = ranks.rank == 0 and options.json != "-"
    if shown:
        print("\n".join(head(report)), flush=True)
    for total in options.sizes or list(powers(options.minbytes, options.maxbytes, options.stepfactor)):
        row = measure(ranks, name, total, options)
        report["rows"].append(row)
        if options.check:
            report["wrong"] = (report["wrong"] or 0) + (row["wrong"] or 0)
        if shown:
            print(line_of(name, row), flush=True)
    if ranks.rank == 0:
        if shown and options.check:
            print(f"# Wrong bytes: {report['wrong']} {'FAILED' if report['wrong'] else 'OK'}", flush=True)
        if options.json == "-":
            print(json.dumps(report), flush=True)
        elif options.json:
            Path(options.json).write_text(json.dumps(report) + "\n")
    ranks.close()
    return 1 if report["wrong"] else 0


def measure(ranks: Ranks, name: str, total: int, options: argparse.Namespace) -> Row:
    """Measures one size."""
    iterations, warmup = iteration_counts(name, total, options)
    one, other = message(ranks, ranks.rank, 0, total), message(ranks, ranks.rank, 0, total)
    exchange = exchange_of(ranks, name, [one] * options.window, [other] * options.window)
    seconds = run_iterations(ranks, exchange, warmup, iterations, options.timeout)
    pairs = ranks.size // 2
    of_pairs = [numbers[0] for numbers in ranks.all_gather([seconds])][:pairs]
    row: Row = {
        "bytes": total,
        "iterations": iterations,
        "warmup": warmup,
        "value": of_pairs[0] / iterations / 2 * 1e6,
        "wrong": wrong_bytes(ranks, name, total, options) if options.check else None,
    }
    if name != "latency":
        ways = 2 if name == "bibw" else 1
        rate = ways * pairs * iterations * options.window / statistics.fmean(of_pairs)
        row["value"], row["messages_per_second"] = rate * total / 1e6, rate
    return row


def iteration_counts(name: str, total: int, options: argparse.Namespace) -> tuple[int, int]:
    """(timed iterations, warm-up iterations), as OSU's."""
    small, large = (2000, 200) if name == "latency" else (100, 20)
    iterations = options.iters or (small if total <= LARGE else large)
    return iterations, -(-iterations // 4) if options.warmup_iters is None else options.warmup_iters


def exchange_of(
    ranks: Ranks, name: str, outgoing: list[torch.Tensor], incoming: list[torch.Tensor]
) -> Exchange:
    """Pairs rank r of the first half with r + pairs, as OSU's; an odd last rank has no peer."""
    pairs = ranks.size // 2
    first = ranks.rank < pairs
    peer = -1 if ranks.rank >= 2 * pairs else ranks.rank + (pairs if first else -pairs)
    pattern = "bw" if name == "multi_bw" else name
    if pattern == "bw":
        outgoing, incoming = (outgoing, []) if first else ([], incoming)
    return Exchange(pattern, first, peer, outgoing, incoming)


def message(ranks: Ranks, sender: int, number: int, total: int) -> torch.Tensor:
    """Bytes below 251 that identify the sender, the message of the window, and the place in it."""
    import torch

    values = (torch.arange(total) + 31 * number + 101 * sender) % 251
    return values.to(torch.uint8).to(ranks.device)


def wrong_bytes(ranks: Ranks, name: str, total: int, options: argparse.Namespace) -> int:
    """Wrong bytes on all ranks, in one more iteration whose messages have separate memory."""
    import torch

    count = min(options.window, max(1, CHECKED_BYTES // total))
    outgoing = [message(ranks, ranks.rank, k, total) for k in range(count)]
    incoming = [torch.full_like(outgoing[0], 255) for _ in range(count)]
    exchange = exchange_of(ranks, name, outgoing, incoming)
    run_iterations(ranks, exchange, 0, 1, options.timeout)
    wrong = 0
    for k, arrived in enumerate(exchange.incoming if exchange.peer >= 0 else ()):
        wrong += int((arrived != message(ranks, exchange.peer, k, total)).sum())
    return int(sum(numbers[0] for numbers in ranks.all_gather([float(wrong)])))


def run_iterations(ranks: Ranks, exchange: Exchange, warmup: int, iterations: int, timeout: float) -> float:
    """Seconds of the timed iterations on this rank."""
    if ranks.backend == "mpi":
        from ..tools import raw_mpi
        from .raw_mpi import address

        outgoing, incoming = [address(t) for t in exchange.outgoing], [address(t) for t in exchange.incoming]
        each = (*exchange.outgoing, *exchange.incoming)[0].nbytes
        numbers = each, warmup, iterations, float(timeout)
        return raw_mpi.time_messages(
            exchange.pattern, exchange.first, exchange.peer, outgoing, incoming, *numbers
        )
    run = torch_iteration(ranks, exchange)
    for _ in range(warmup):
        run()
    ranks.barrier()
    begin = time.perf_counter()
    for _ in range(iterations):
        run()
    return time.perf_counter() - begin


def torch_iteration(ranks: Ranks, exchange: Exchange) -> Callable[[], None]:
    """An iteration through torch.distributed."""
    import torch
    import torch.distributed as dist

    synchronize = synchronizer(ranks.device)
    _, first, peer, outgoing, incoming = exchange
    answer = torch.zeros(4, dtype=torch.uint8, device=ranks.device)

    def ping_pong() -> None:
        if first:
            dist.send(outgoing[0], peer)
            synchronize()
        dist.recv(incoming[0], peer)
        synchronize()
        if not first:
            dist.send(outgoing[0], peer)

    def window() -> None:
        works = [dist.irecv(tensor, peer) for tensor in incoming]
        works += [dist.isend(tensor, peer) for tensor in outgoing]
        for work in works:
            work.wait()
        if exchange.pattern == "bw":
            dist.recv(answer, peer) if first else dist.send(answer, peer)
        synchronize()

    if peer < 0:
        return lambda: None
    return ping_pong if exchange.pattern == "latency" else window


# ---- output -----------------------------------------------------------------------------------------------


def head(report: Report) -> Iterator[str]:
    """The lines before the first size."""
    for line in rank_command.summary_lines(report["info"]):
        yield f"# {line}"
    name = report["benchmark"]
    yield f"# OSU-style {TITLES[name]}, tensors on {report['device']}"
    if name == "latency":
        yield f"{'# Size':<10}{'Latency (us)':>20}"
    elif name != "multi_bw":
        yield f"# [ window size: {report['window']} ]"
        yield f"{'# Size':<10}{'Bandwidth (MB/s)':>20}"
    else:
        yield f"# [ pairs: {report['pairs']} ] [ window size: {report['window']} ]"
        yield f"{'# Size':<10}{'MB/s':>20}{'Messages/s':>20}"


def line_of(name: str, row: Row) -> str:
    """One size's line."""
    line = f"{row['bytes']:<10}{row['value']:>20.2f}"
    return line + (f"{row['messages_per_second']:>20.2f}" if name == "multi_bw" else "")


# ---- side by side -----------------------------------------------------------------------------------------


def compare(
    parser: argparse.ArgumentParser,
    name: str,
    argv: list[str],
    options: argparse.Namespace,
    ranks: int | None,
) -> int:
    """Runs the contenders in turn. Exit status: 1 if a byte was wrong."""
    from .jobs import ranks_of_jobs

    started = ranks_of_jobs(parser, ranks)
    if options.backend != "mpi-gdr":
        parser.error(f"--backend {options.backend}: --compare starts mpi-gdr and the others itself")
    backends = {contender: contender for contender in ("mpi-gdr", *options.compare)}
    found = collect(name, argv, backends, started, options.rounds)
    show(found, options.json, markdown)
    reports = found["contenders"]
    return 1 if any(report["wrong"] for by_round in reports.values() for report in by_round) else 0


def markdown(found: JobResults) -> list[str]:
    """A ratio is the median over rounds of the ratios within a round: above 1 mpi-gdr is faster."""
    from .compare import machine_of, spread
    from .jobs import NAMES

    reports = found["contenders"]
    ours = reports["mpi-gdr"]
    others = [name for name in reports if name != "mpi-gdr"]
    unit, faster = ours[0]["unit"], ours[0]["unit"] != "us"
    heads = ["bytes", *(f"{NAMES[name]} {unit}" for name in reports)]
    heads += [f"mpi-gdr / {NAMES[name]}" if faster else f"{NAMES[name]} / mpi-gdr" for name in others]
    window = f", window {ours[0]['window']}" if faster else ""
    lines = [
        f"{found['benchmark']}, {found['ranks']} ranks{window}, {found['rounds']} rounds; "
        f"{machine_of(found['conditions'])}",
        "",
        f"| {' | '.join(heads)} |",
        "|--:" * len(heads) + "|",
    ]
    for i, row in enumerate(ours[0]["rows"]):
        values = {name: [r["rows"][i]["value"] for r in by_round] for name, by_round in reports.items()}
        cells = [str(row["bytes"]), *(spread(numbers) for numbers in values.values())]
        for name in others:
            pairs = zip(values["mpi-gdr"], values[name], strict=True)
            cells.append(spread([a / b if faster else b / a for a, b in pairs]))
        lines.append(f"| {' | '.join(cells)} |")
    return lines
