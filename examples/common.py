"""Shared by the examples: arguments, ranks, progress, pictures, results.

An example has the form

    parser = common.parser(__doc__, __file__)
    args = parser.parse_args()
    ranks = common.begin(args, needs=["numpy"])
    with common.Progress(ranks, args.iterations) as progress:
        progress.step("loss 1.234")
    common.picture(args, ranks, "loss.png", lambda axes: axes.plot(losses))
    common.end(args, ranks, loss=losses[-1])
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "gpt"))
import torch
import torch.distributed as dist
from ranks import Ranks
from report import Progressbar, canvas, missing
from torch import Tensor

__all__ = ["Progress", "Ranks", "begin", "difference", "end", "missing", "parser", "picture"]


def parser(doc: str, file: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("--backend", default="mpi-gdr", help="(default %(default)s)")
    made.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    made.add_argument("--out", type=Path, default=Path("out/labs", Path(file).stem),
                      help="folder for what is left behind (default %(default)s)")  # fmt: skip
    return made


def begin(args: argparse.Namespace, needs: Sequence[str] = ()) -> Ranks:
    """Creates a process group, also for one process, and --out. Exits if a package in `needs` is missing."""
    program = Path(sys.argv[0]).name
    if lacking := missing(*dict.fromkeys(needs)):
        sys.exit(f"{program} needs {', '.join(lacking)}: pip install {' '.join(lacking)}")
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"{program}: --device cuda: expected a GPU that torch can use, and there is none")
    ranks = Ranks(args.backend, args.device, always=True)
    if ranks.first:
        args.out.mkdir(parents=True, exist_ok=True)
        print(f"{program}: {ranks.backend}, {ranks.size} rank{'s' * (ranks.size > 1)}, {ranks.device.type}")
        if missing("matplotlib"):
            print("matplotlib is not installed, so there will be no picture: pip install matplotlib")
        sys.stdout.flush()
    return ranks


class Progress:
    """A bar on a terminal, else about twenty lines; nothing on ranks other than 0."""

    def __init__(self, ranks: Ranks, total: int) -> None:
        self._bar = Progressbar("auto", total, 0) if ranks.first else None
        self._total, self._done = total, 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar:
            self._bar.finish(whole=False)

    def step(self, text: str = "") -> None:
        """Counts one more step; without `text` only the bar shows it."""
        before, self._done = self._done * 20 // self._total, self._done + 1
        if self._bar:
            due = text and self._done * 20 // self._total > before
            self._bar.show(self._done, text, f"{self._done} of {self._total}: {text}" if due else "")

    def line(self, text: str) -> None:
        """Prints a line above the bar."""
        if self._bar:
            self._bar.line(text)


def difference(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of all elements and ranks, relative to a rank's largest element. Collective."""
    largest = torch.stack([(a - b).abs().max() for a, b in zip(actual, expected, strict=True)]).max()
    largest /= torch.stack([b.abs().max() for b in expected]).max()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def picture(args: argparse.Namespace, ranks: Ranks, name: str, draw: Callable, **shape: object) -> None:
    """Writes the picture `name` to --out, drawn by draw(axes) on rank 0. `shape`: matplotlib's subplots."""
    if ranks.first and not missing("matplotlib"):
        with canvas(args.out / name, **shape) as axes:
            draw(axes)


def end(args: argparse.Namespace, ranks: Ranks, **values: object) -> None:
    """Prints the results in one line, writes them to result.json and leaves the group. Collective."""
    if ranks.first:
        known = {"backend": ranks.backend, "ranks": ranks.size, **values}
        (args.out / "result.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        short = {name.replace("_", " "): v for name, v in values.items() if not isinstance(v, list | dict)}
        shown = (f"{name} {v:.6g}" if isinstance(v, float) else f"{name} {v}" for name, v in short.items())
        print(f"result: {', '.join(shown)}; written to {args.out}", flush=True)
    ranks.leave()
