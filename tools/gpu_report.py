"""The report of gpu_check.sh: gpu_report.py STEPS OUT NAME=VALUE...

Reads STEPS (a line per step) and the steps' files in OUT. Writes OUT/gpu_check.md, OUT/gpu_check.json and an
archive of OUT without wheels. A prediction counts bytes and flags: bytes on a rank's link, at the speed that
the probe measured on the slowest one, and one exchange of flags for each round. It ignores the algorithm, so
it is not a bound. Exit status 1 if a step failed.
"""

import datetime
import hashlib
import json
import platform
import re
import statistics
import sys
import tarfile
from pathlib import Path

HEADS = ("step", "outcome", "seconds", "said")
FLAG_US = 5.6  # an exchange of flags between host and device, on an H200
ROUND_BYTES = 8 << 20


def jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def link_speed(pairs: list[dict], ranks: int) -> float | None:
    """GB/s of the slowest link in its slower direction; with one GPU, a rank's share of its memory's speed.
    None if it was not measured, or a pair has no access."""
    links = [pair for pair in pairs if pair["owner"] != pair["peer"]] or pairs
    speed = min((min(pair["read"][1], pair["write"][1]) for pair in links), default=0)
    return (speed if links != pairs else speed / ranks) or None


def predict_us(total: int, factor: float, speed: float | None, flag_us: float) -> float | None:
    """`total`: bytes of the whole buffer; `factor`: the part of it on the link, as in bus bandwidth."""
    if speed is None:
        return None
    rounds = 1 if total <= 64 << 10 else 1 + -(-total // ROUND_BYTES)
    return factor * total / speed * 1e-3 + rounds * flag_us


def collectives(out: Path, pairs: list[dict], flag_us: float) -> list[dict]:
    """A row per collective and size: p50 of each contender, and the prediction for ours."""
    rows: dict[tuple[str, int], dict] = {}
    for file in sorted((out / "logs" / "bench").glob("*.json")):
        for report in json.loads(file.read_text())["reports"]:
            name, ranks = report["collective"], report["info"]["ranks"]
            speed = link_speed(pairs, ranks)
            for cells in report["rows"]:
                total = cells["bytes"]
                row = rows.setdefault((name, total), {"collective": name, "bytes": total, "ranks": ranks})
                if (cell := cells["in_place"] or cells["out_of_place"]) is None:
                    continue
                row[f"{file.stem} us"] = cell["p50_us"]
                if file.stem == "own" and name != "sendrecv":  # which travels through the host
                    factor = cell["busbw"] / cell["algbw"] if cell["algbw"] else 0.0
                    row["predicted us"] = predict_us(total, factor, speed, flag_us)
    return list(rows.values())


def training(out: Path, pairs: list[dict]) -> list[dict]:
    """A row per run: step and exposed communication, and the predicted communication, hidden or not."""
    rows = []
    for file in sorted((out / "logs" / "training").glob("*.jsonl")):
        log = jsonl(file)
        head, end = log[0], log[-1]
        p, speed = head["ranks"], link_speed(pairs, head["ranks"])
        # DDP: an all_reduce. FSDP: an all_gather before each pass, a reduce_scatter.
        passes = 3 if file.stem.startswith("fsdp") else 2
        moved = passes * (p - 1) / p * 4 * head["parameters"]
        steps = [record["ms"] for record in log if record["kind"] == "train"]
        rows.append(
            {
                "training": file.stem,
                "ranks": p,
                "step ms": statistics.median(steps),
                "exposed ms": end["exposed_ms"],
                "communication, predicted ms": moved / speed * 1e-6 if speed else None,
            }
        )
    return rows


def table(rows: list[dict]) -> list[str]:
    """Markdown with all rows' keys as heads; nothing without rows."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    if not rows:
        return []
    lines = ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(shown(row.get(head)) for head in heads)} |" for row in rows]


def shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")


def matrix(pairs: list[dict]) -> list[dict]:
    """A row per owner; a column per GPU whose kernels read and write its memory."""
    rows: dict[int, dict] = {}
    for pair in pairs:
        cell = pair["error"] or f"{pair['read'][1]:.4g} / {pair['write'][1]:.4g}" + " WRONG" * (
            not pair["right"]
        )
        rows.setdefault(pair["owner"], {"GPU": pair["owner"]})[f"from {pair['peer']}"] = cell
    return list(rows.values())


def page(report: dict, out: Path, digest: str) -> list[str]:
    lines = ["`tools/gpu_check.sh`", "", *(f"- {name}: {value}" for name, value in report["about"].items())]
    lines += [f"- SHA-256 of gpu_check.json: {digest}", *table(report["steps"])]
    lines += table([{"found": name, "value": value} for name, value in report["notes"]]) + table(
        report["gpus"]
    )
    lines += ["", "GB/s by kernels of another process, read / written:", *table(matrix(report["pairs"]))]
    lines += ["", "Collectives; predicted: our kernels by the count of bytes and flags, on the slowest link:"]
    lines += table(report["collectives"]) + table(report["training"])
    for row in report["steps"]:  # what a benchmark printed is Markdown, or columns
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", row["step"])
        if row["step"].startswith(("bench", "training")) and row["outcome"] == "passed":
            text = (out / "logs" / f"{name}.txt").read_text().strip()
            lines += ["", f"## {row['step']}", "", *([text] if "|--" in text else ["```", text, "```"])]
    return lines


def main(steps: Path, out: Path, about: list[str]) -> int:
    now = datetime.datetime.now()
    rows = [dict(zip(HEADS, line.split("\t"), strict=True)) for line in steps.read_text().splitlines()]
    notes = [line.split("\t", 1) for line in (out / "logs" / "notes.txt").read_text().splitlines()]
    probe = (
        json.loads((out / "gpu_probe.json").read_text())["answers"]
        if (out / "gpu_probe.json").exists()
        else {}
    )
    trip = re.match(
        r"median ([\d.]+) us", probe.get("stream wait: round-trip, CUDA_DEVICE_MAX_CONNECTIONS=32", "")
    )
    flag_us = float(trip[1]) if trip else FLAG_US
    lines = jsonl(out / "peers.jsonl")
    pairs = [line for line in lines if "owner" in line]
    report = {
        "about": {"date": now.isoformat(timespec="minutes")} | dict(word.split("=", 1) for word in about),
        "steps": [row | {"seconds": float(row["seconds"])} for row in rows],
        "notes": notes,
        "probe": probe,
        "gpus": [line for line in lines if "gpu" in line],
        "pairs": pairs,
        "flag_us": flag_us,
        "collectives": collectives(out, pairs, flag_us),
        "training": training(out, pairs),
    }
    written = (json.dumps(report, indent=1) + "\n").encode()
    (out / "gpu_check.json").write_bytes(written)
    text = "\n".join(page(report, out, hashlib.sha256(written).hexdigest()))
    (out / "gpu_check.md").write_text(text + "\n")
    archive = out / f"gpu_check-{platform.node()}-{now:%Y%m%d-%H%M}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(out.iterdir()):
            if path.name != "wheels" and not path.name.endswith(".tar.gz"):
                tar.add(path, path.name)
    failed = [row for row in rows if row["outcome"].startswith(("failed", "ran past", "not begun"))]
    print(f"{len(rows) - len(failed)} of {len(rows)} steps in order; {out}/gpu_check.md; to send: {archive}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
