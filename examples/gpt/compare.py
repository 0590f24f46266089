"""Compare the losses of two runs: python compare.py a.jsonl b.jsonl --plot out.png

Exit code 0 if both logs hold the same iterations and no loss differs by more than the tolerance, else 1.
"""

import argparse
import math
from pathlib import Path

from report import curve, label, missing, plot, read_log


def compare(a: list[dict], b: list[dict]) -> tuple[float, str, int]:
    """The largest difference of two losses, its place, and how many points only one log has."""
    largest, where, unmatched, matched = 0.0, "nowhere", 0, 0
    for kind in ("train", "val"):
        left, right = curve(a, kind), curve(b, kind)
        unmatched += len(left.keys() ^ right.keys())
        for iteration in sorted(left.keys() & right.keys()):
            matched += 1
            difference = abs(left[iteration] - right[iteration])
            if math.isnan(difference):  # compares false with everything, so it would pass as equal
                difference = math.inf
            if difference > largest:
                largest, where = difference, f"{kind} loss of iteration {iteration}"
    if not matched:
        raise SystemExit("the logs have no iteration in common")
    return largest, where, unmatched


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw both curves into one picture")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="nats (default %(default)s)")
    parser.add_argument("--partial", action="store_true", help="compare only what both logs have")
    args = parser.parse_args()
    if args.plot and missing("matplotlib"):
        parser.error("--plot draws with matplotlib, which is not installed: pip install matplotlib")

    a, b = read_log(args.a), read_log(args.b)
    for path, log in ((args.a, a), (args.b, b)):
        print(f"{path}: {label(log)}")
    settings = [log[0]["settings"] for log in (a, b)]
    for name in sorted(settings[0].keys() | settings[1].keys()):
        values = [s.get(name) for s in settings]
        if values[0] != values[1]:
            print(f"note: the runs differ in {name}: {values[0]} and {values[1]}")
    largest, where, unmatched = compare(a, b)
    print(f"largest difference: {largest:.3g} ({where}), tolerance {args.tolerance:g}")
    if unmatched:
        print(f"{unmatched} points are in one of the logs only (--partial allows that)")
    if args.plot:
        plot([a, b], args.plot)
        print(f"wrote {args.plot}")
    return 0 if largest <= args.tolerance and (args.partial or not unmatched) else 1


if __name__ == "__main__":
    raise SystemExit(main())
