"""A run's output: progress, a JSON-lines log, loss curves. Only rank 0 creates these objects.

A log has one JSON object per line. "kind" is "run" (first line: backend, ranks, settings), "train" or "val"
(iteration and loss in nats per character), "end" (last line: totals).
"""

import contextlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path


def missing(*names: str) -> list[str]:
    """The packages that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


class Progressbar:
    """A bar if rich can draw on this terminal, else lines. Modes: "auto", "bar" (even into a pipe),
    "plain"."""

    def __init__(self, mode: str, total: int, done: int) -> None:
        self._bar = None
        if mode == "plain" or missing("rich"):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        console = Console(force_terminal=True if mode == "bar" else None, highlight=False, soft_wrap=True)
        self._total = total
        if mode == "bar" or console.is_terminal:
            columns = (BarColumn(bar_width=10), TaskProgressColumn(), TextColumn("{task.fields[state]}"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=console)
            self._task = self._bar.add_task("train", total=total, completed=done, state="")
            self._bar.start()

    def line(self, text: str) -> None:
        """Prints a line above the bar."""
        if self._bar:
            self._bar.console.print(text, markup=False)
        else:
            print(text, flush=True)

    def show(self, done: int, state: str, line: str) -> None:
        """Shows `state` beside the bar; without a bar, prints `line` unless it is empty."""
        if self._bar:
            self._bar.update(self._task, completed=done, state=state)
        elif line:
            print(line, flush=True)

    def update(self, iteration: int, loss: float, ms: float, rate: float, exposed_ms: float | None) -> None:
        """`ms` per iteration, `rate` in tokens per second; `exposed_ms` None: unknown."""
        state = f"loss {loss:.3f} {ms:.1f} ms/iter {rate / 1e3:.1f}k tokens/s"  # fits 80 columns
        line = f"iteration {iteration}: loss {loss:.4f}, {ms:.1f} ms/iter, {rate:,.0f} tokens/s"
        if exposed_ms is not None:
            state += f" comm +{exposed_ms:.1f} ms"
            line += f", exposed communication {exposed_ms:.1f} ms"
        self.show(iteration + 1, state, line)

    def finish(self, whole: bool = True) -> None:
        """`whole`: fills the bar, even if the run began late or ended early."""
        if self._bar:
            if whole:
                self._bar.update(self._task, completed=self._total)
            self._bar.stop()


class Log:
    """Appends records to a file and flushes each: a killed run leaves whole lines."""

    def __init__(self, path: Path, header: dict, resume_at: int | None) -> None:
        kept = []
        if resume_at is not None and path.exists():
            # Drops records after the checkpoint, because their iterations run again. A train record of
            # iteration i comes after the checkpoint of iteration i, a validation record before it.
            last = {"run": resume_at, "train": resume_at - 1, "val": resume_at}
            kept = [r for r in read_log(path) if r["iteration"] <= last.get(r["kind"], -1)]
        self._file = path.open("w", encoding="utf-8")
        for record in kept or [{"kind": "run", "iteration": 0, **header}]:
            self._put(record)

    def write(self, kind: str, iteration: int, **values: object) -> None:
        self._put({"kind": kind, "iteration": iteration, **values})

    def close(self) -> None:
        self._file.close()

    def _put(self, record: dict) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


def read_log(path: Path) -> list[dict]:
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: expected one JSON object, got {line[:60]!r}") from error
    if not records or records[0].get("kind") != "run":
        raise ValueError(f'{path}: expected a log whose first line has kind "run"')
    return records


def curve(records: list[dict], kind: str) -> dict[int, float]:
    return {r["iteration"]: r["loss"] for r in records if r["kind"] == kind}


def label(records: list[dict]) -> str:
    backend, ranks = records[0]["backend"], records[0]["ranks"]
    return f"{backend}, {ranks} rank{'s' if ranks > 1 else ''}"


def points(records: list[dict], kind: str) -> tuple[list[int], list[float]]:
    losses = curve(records, kind)
    return list(losses), list(losses.values())


@contextlib.contextmanager
def canvas(path: Path, **shape: object) -> Iterator:
    """Yields axes and writes the picture at the block's end. `shape`: matplotlib's subplots."""
    import matplotlib

    matplotlib.use("Agg")  # compute nodes have no display
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(**{"figsize": (8, 5), "layout": "constrained", **shape})
    yield axes
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot(logs: list[list[dict]], path: Path) -> None:
    """Training (lines) and validation (dots) losses of one or more runs in one picture."""
    with canvas(path) as axes:
        draw_losses(logs, axes)


def draw_losses(logs: list[list[dict]], axes) -> None:
    labels = [label(log) for log in logs]
    for number, log in enumerate(logs):
        prefix = f"{labels[number]}: " if len(logs) > 1 else ""
        # Later runs are dashed, so that equal curves remain visible.
        style, colour = ("-", "--", ":", "-.")[number % 4], f"C{number}"
        axes.plot(*points(log, "train"), style, color=colour, linewidth=1, label=prefix + "train")
        axes.plot(*points(log, "val"), "o" + style, color=colour, linewidth=2, label=prefix + "validation")
    axes.set_xlabel("iteration")
    axes.set_ylabel("loss (nats per character)")
    axes.set_title("GPT on the Python standard library: " + " against ".join(labels))
    axes.grid(alpha=0.3)
    axes.legend()
