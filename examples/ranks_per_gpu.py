"""Does a GPU train faster if several ranks share it? Tokens per second of gpt/train.py at equal global batch.

    python ranks_per_gpu.py                     1, 2 and 4 ranks on each GPU, with and without MPS
    python ranks_per_gpu.py --device cpu        the same with ranks on cores
        python ranks_per_gpu.py --layers 8          unknown options go to train.py

Contenders run one at a time, in several rounds, so that other load affects all. The global batch is the same:
the losses must agree, which is checked. Writes results.json, results.md and throughput.png to --out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from mpi_backend.columns import columns
from mpi_backend.gpu_share import visible_gpus

TRAIN = Path(__file__).parent / "gpt" / "train.py"
sys.path.append(str(TRAIN.parent))
from report import curve, missing, read_log  # noqa: E402

# Training only: no validation, no samples of the communication, a record every few steps.
SETTINGS = {
    "eval-every": 10**6,
    "eval-batches": 1,
    "sample-every": 10**6,
    "log-every": 5,
    "progress": "plain",
}
SECONDS = 900  # limit of a run
# Largest difference of two losses. On GPUs products are in bfloat16, and another split rounds differently.
TOLERANCE = {"cpu": 1e-3, "cuda": 2e-2}


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="Other options go to gpt/train.py.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--ranks", default="1,2,4", help="ranks per GPU, or in all on CPUs (default %(default)s)")
    add("--mps", choices=("both", "on", "off"), default="both", help="on GPUs (default %(default)s)")
    add("--rounds", type=int, default=3, help="runs of each (default %(default)s)")
    add("--iterations", type=int, default=60, help="of a run (default %(default)s)")
    add("--warm-up", type=int, default=20, help="of them not timed (default %(default)s)")
    add("--backend", default="mpi-gdr", help="(default %(default)s)")
    add("--out", type=Path, default=Path("out/ranks_per_gpu"), help="(default %(default)s)")
    return parser.parse_known_args()


def contenders(args: argparse.Namespace) -> dict[str, tuple[int, bool]]:
    """{name: (ranks per GPU, with MPS)}."""
    mps = {"both": (False, True), "on": (True,), "off": (False,)}[
        args.mps if args.device == "cuda" else "off"
    ]
    counts = [int(word) for word in args.ranks.split(",")]
    return {f"{k} rank{'s' * (k > 1)}{', MPS' * on}": (k, on) for on in mps for k in counts}


def run(args: argparse.Namespace, extra: list[str], gpus: int, ranks: int, mps: bool) -> dict:
    """One run: {"rates": [tokens/s of each record], "losses": {iteration: loss}}."""
    command = [sys.executable, "-m", "mpi_backend", "run", "-n", str(ranks * gpus)]
    if args.device == "cuda":
        command += ["--ranks-per-gpu", str(ranks), *["--mps"] * mps]
    settings = SETTINGS | {"device": args.device, "backend": args.backend, "iterations": args.iterations}
    settings["out"] = args.out / "run"
    command += [str(TRAIN), *(f"--{name}={value}" for name, value in settings.items()), *extra]
    # A single rank has no launcher: with RANK it creates a process group, too.
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"} if ranks * gpus == 1 else {}
    result = subprocess.run(
        command, env=os.environ | alone, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if result.returncode != 0:
        text = (result.stdout + result.stderr)[-3000:]
        raise SystemExit(f"`{' '.join(command)}` ended with {result.returncode}:\n{text}")
    log = read_log(args.out / "run" / "log.jsonl")
    # A record covers the steps since the previous one.
    first = args.warm_up + SETTINGS["log-every"]
    rates = [r["tokens_per_second"] for r in log if r["kind"] == "train" and r["iteration"] >= first]
    return {"rates": rates, "losses": curve(log, "train")}


def disagreement(runs: dict[str, list[dict]]) -> float:
    """The largest difference of any loss from the first run's."""
    every = [run["losses"] for of_one in runs.values() for run in of_one]
    differences = [abs(losses[i] - every[0][i]) for losses in every for i in every[0]]
    return max(differences) if all(d == d for d in differences) else float("inf")  # NaN means disagreement


def rows_of(runs: dict[str, list[dict]]) -> list[dict]:
    """One row per contender: the median over rounds of a run's median rate, and its ratio to the first
    contender's within each round."""
    rates = {name: [statistics.median(run["rates"]) for run in of_one] for name, of_one in runs.items()}
    base = next(iter(rates.values()))
    rows = []
    for name, values in rates.items():
        ratios = [value / other for value, other in zip(values, base, strict=True)]
        rows.append({"name": name, "tokens_per_second": values, "times_first": ratios})
    return rows


def spread(values: list[float], form: str) -> str:
    median = format(statistics.median(values), form)
    return median if len(values) == 1 else f"{median} ({min(values):{form}}..{max(values):{form}})"


def cells(row: dict) -> list[str]:
    return [row["name"], spread(row["tokens_per_second"], ",.0f"), spread(row["times_first"], ".2f")]


def plot(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    medians = [statistics.median(row["tokens_per_second"]) for row in rows]
    low = [m - min(row["tokens_per_second"]) for m, row in zip(medians, rows, strict=True)]
    high = [max(row["tokens_per_second"]) - m for m, row in zip(medians, rows, strict=True)]
    axes.bar([row["name"] for row in rows], medians, yerr=[low, high], capsize=4)
    axes.set_ylabel("tokens per second")
    axes.set_title("GPT training at equal global batch")
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> int:
    args, extra = parse_arguments()
    gpus = len(visible_gpus(os.environ)) if args.device == "cuda" else 1
    if gpus == 0:
        raise SystemExit("ranks_per_gpu.py: no GPU is visible here; --device cpu runs the ranks on cores")
    if args.warm_up + SETTINGS["log-every"] >= args.iterations:
        raise SystemExit(f"--iterations {args.iterations}: expected more than --warm-up {args.warm_up} and 5")
    if missing("matplotlib"):
        print("matplotlib is not installed, so there will be no throughput.png (pip install matplotlib)")
    args.out.mkdir(parents=True, exist_ok=True)
    jobs = contenders(args)
    runs: dict[str, list[dict]] = {name: [] for name in jobs}
    names = list(jobs)
    for k in range(args.rounds):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            runs[name].append(run(args, extra, gpus, *jobs[name]))
            rate = statistics.median(runs[name][-1]["rates"])
            print(f"round {k + 1} of {args.rounds}, {name}: {rate:,.0f} tokens/s", flush=True)
    rows, difference = rows_of(runs), disagreement(runs)
    agree = difference <= TOLERANCE[args.device]
    where = f"{gpus} GPU{'s' * (gpus > 1)}" if args.device == "cuda" else f"{os.cpu_count()} cores"
    heads = ["ranks per GPU" if args.device == "cuda" else "ranks", "tokens/s", f"times {names[0]}"]
    verdict = (
        f"{where}, {args.backend}, {args.rounds} rounds, median (least..largest); losses differ by at most "
        f"{difference:.2g}, tolerance {TOLERANCE[args.device]:g}: {'they agree' if agree else 'THEY DIFFER'}"
    )
    lines = [f"| {' | '.join(heads)} |", "|---|--:|--:|", *(f"| {' | '.join(cells(row))} |" for row in rows)]
    print("\n".join([*columns(heads, [cells(row) for row in rows], numbers=(1, 2)), verdict]))
    (args.out / "results.md").write_text("\n".join([*lines, "", verdict, ""]))
    report = {"device": args.device, "gpus": gpus, "backend": args.backend, "options": extra, "rows": rows}
    report |= {"largest_difference": difference, "agree": agree}
    (args.out / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    if not missing("matplotlib"):
        plot(rows, args.out / "throughput.png")
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
