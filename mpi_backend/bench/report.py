"""Lines of `mpi-gdr bench`: columns of nccl-tests, of OSU's micro-benchmarks, or percentiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, TypedDict

from .. import rank_command
from ..reports import JobSummary

Form = Literal["out_of_place", "in_place"]
FORMS: tuple[Form, ...] = ("out_of_place", "in_place")
NCCL_ROW = "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s"


class Cell(TypedDict):
    """One size in one form: microseconds and GB/s."""

    time_us: float
    mean_us: float
    min_us: float
    p50_us: float
    p99_us: float
    iterations: int
    algbw: float
    busbw: float
    limit_us: float | None
    of_limit_percent: float | None
    wrong: int | None  # elements; None: not checked


class Row(TypedDict):
    """One size; None: the contender has no such form."""

    bytes: int
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Cell | None
    in_place: Cell | None


class Protocol(TypedDict):
    """How times are taken."""

    iterations: int | str
    warmup: int | str
    touch_bytes: int
    time: str
    processes_of_limit: int | None


class Report(TypedDict):
    """A job's results for one collective."""

    info: JobSummary
    collective: str
    title: str
    device: str
    memory: str
    protocol: Protocol
    in_place_only: bool
    rows: list[Row]
    wrong: int | None


def head(report: Report) -> Iterator[str]:
    """Comment lines: the job and its timing protocol."""
    for line in rank_command.summary_lines(report["info"]):
        yield f"# {line}"
    protocol = report["protocol"]
    yield (
        f"# {report['collective']}, tensors on {report['device']}, {protocol['iterations']} calls after "
        f"{protocol['warmup']} to warm up"
    )
    yield "# time: maximum over ranks of the mean per call; calls through torch.distributed"
    yield (
        f"# below {protocol['touch_bytes']} B calls run back to back; from there on every rank rewrites its "
        "buffer before each call, and all start together"
    )
    if report["in_place_only"]:
        yield "# in place only: torch.distributed has no out-of-place form of this"
    if protocol["processes_of_limit"]:
        yield (
            f"# limit: {protocol['processes_of_limit']} processes at once read and write as many bytes as "
            "the collective must (in JSON and --format percentiles)"
        )


def nccl_head(report: Report) -> Iterator[str]:
    """Headings of nccl-tests' columns."""
    yield "#"
    yield f"# {'':56}{'out-of-place':^31}  {'in-place':^31}".rstrip()
    yield NCCL_ROW % (
        *("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"),
        *("time", "algbw", "busbw", "#wrong"),
    )
    yield NCCL_ROW % (
        *("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""),
        *("(us)", "(GB/s)", "(GB/s)", ""),
    )


def nccl_row(row: Row) -> str:
    """One size in nccl-tests' columns."""
    line = f"{row['bytes']:12}  {row['count']:12}  {row['type']:>8}  {row['redop']:>6}  {row['root']:>6}"
    for form in FORMS:
        t = row[form]
        if t is None:
            line += f"  {'N/A':>7}" + 3 * f"  {'N/A':>6}"
            continue
        wrong = "N/A" if t["wrong"] is None else str(t["wrong"])
        line += f"  {microseconds(t['time_us'])}  {t['algbw']:6.2f}  {t['busbw']:6.2f}  {wrong:>6}"
    return line


def microseconds(value: float) -> str:
    """A time in seven characters."""
    if value >= 10000:
        return f"{value:7.0f}"
    return f"{value:7.1f}" if value >= 100 else f"{value:7.2f}"


def nccl_foot(report: Report) -> Iterator[str]:
    """nccl-tests' summary."""
    timings = [t for row in report["rows"] for form in FORMS if (t := row[form])]
    checked = [t["wrong"] for t in timings if t["wrong"] is not None]
    if len(checked) == len(timings):
        wrong = sum(checked)
        yield f"# Out of bounds values : {wrong} {'OK' if wrong == 0 else 'FAILED'}"
    if timings:  # bare MPI may lack the reduction
        yield f"# Avg bus bandwidth    : {sum(t['busbw'] for t in timings) / len(timings):g}"
    yield "#"


def osu_head(report: Report) -> Iterator[str]:
    """Headings of OSU's columns."""
    yield "#"
    yield f"# OSU-style {report['title']} Latency Test"
    yield "# size: the whole buffer, as nccl-tests counts it; latency over ranks"
    latencies = "".join(f"{name + ' Latency(us)':>18}" for name in ("Avg", "Min", "Max"))
    yield f"# {'Size':<8}{latencies}{'Iterations':>12}"


def osu_row(row: Row) -> str:
    """One size in OSU's columns."""
    t = row["out_of_place"] or row["in_place"]
    if t is None:
        return f"{row['bytes']:<10}{'N/A':>18}"
    latencies = "".join(f"{value:>18.2f}" for value in (t["mean_us"], t["min_us"], t["time_us"]))
    return f"{row['bytes']:<10}{latencies}{t['iterations']:>12}"


def percentiles_head(report: Report) -> Iterator[str]:
    """Headings of the percentiles."""
    yield "#"
    names = ("p50", "p99", "busbw", "limit")
    yield f"# {'':33}{'out-of-place':^38}  {'in-place':^38}".rstrip()
    yield f"# {'size':>10}  {'type':>13}  {'redop':>6}" + 2 * "".join(f"  {name:>8}" for name in names)
    units = ("(us)", "(us)", "(GB/s)", "(%)")
    yield f"# {'(B)':>10}  {'':>13}  {'':>6}" + 2 * "".join(f"  {unit:>8}" for unit in units)


def percentiles_row(row: Row) -> str:
    """One size as percentiles."""
    line = f"{row['bytes']:12}  {row['type']:>13}  {row['redop']:>6}"
    for form in FORMS:
        t = row[form]
        if t is None:
            line += 4 * f"  {'N/A':>8}"
            continue
        percent = t["of_limit_percent"]
        shown = "N/A" if percent is None else f"{percent:.1f}"
        line += (
            f"  {microseconds(t['p50_us']):>8}  {microseconds(t['p99_us']):>8}  {t['busbw']:8.2f}  {shown:>8}"
        )
    return line


class Format(NamedTuple):
    """Lines before the rows, a row, lines after them."""

    head: Callable[[Report], Iterable[str]]
    row: Callable[[Row], str]
    foot: Callable[[Report], Iterable[str]]


FORMATS = {
    "nccl": Format(nccl_head, nccl_row, nccl_foot),
    "osu": Format(osu_head, osu_row, lambda report: ()),
    "percentiles": Format(percentiles_head, percentiles_row, nccl_foot),
}
