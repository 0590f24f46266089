"""Runs the commands of docs/tutorial.md, in their order, and compares what they print with the page.

    python tools/labs.py [PAGE] [--out out/labs]

A block that begins with ```console holds a command after `$ ` and its output. A line `...` matches any lines,
a number with a point any number, because it is measured; all else must match. Writes index.html with
commands, outputs and pictures to --out; exits with 1 if an output differs.
"""

from __future__ import annotations

import argparse
import html
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MEASURED = re.compile(r"[-+]?\d[\d,]*\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+")
HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The labs of mpi-gdr</title>
<style>
body { font-family: sans-serif; line-height: 1.4; max-width: 60rem; margin: 0 auto; padding: 0 1rem; }
pre { background: #f2f2f2; padding: 0.7rem; overflow-x: auto; font-size: 0.8rem; }
img { max-width: 100%; height: auto; }
.wrong { color: #b00020; font-weight: bold; }
</style>
<h1>The labs of mpi-gdr</h1>
"""
LIMIT = 600  # seconds per command; a command that takes longer has status 124


class Lab(NamedTuple):
    title: str  # the heading above it
    command: str
    printed: list[str]


def labs_of(page: str) -> list[Lab]:
    found, title, block = [], "", None
    for line in page.splitlines():
        if block is None and line.startswith("#"):
            title = line.lstrip("# ")
        elif line == "```console":
            block = []
        elif line == "```" and block is not None:
            first, *printed = block
            if not first.startswith("$ "):
                raise ValueError(f"{title}: {first!r}, expected a command behind '$ '")
            found.append(Lab(title, first[2:], printed))
            block = None
        elif block is not None:
            block.append(line)
    return found


def pattern(line: str) -> str:
    """Matches a printed line's words with any space between, and any number for a measured one."""
    words = []
    for word in line.split():
        pieces = [re.escape(piece) for piece in MEASURED.split(word)]
        words.append(f"(?:{MEASURED.pattern})".join(pieces))
    return r"\s+".join(words)


def difference(printed: list[str], output: str) -> str | None:
    """The page's first line that the output lacks."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    at, skip = 0, False
    for line in filter(str.strip, printed):
        if line.strip() == "...":
            skip = True
            continue
        while skip and at < len(lines) and not re.fullmatch(pattern(line), lines[at]):
            at += 1
        if at == len(lines) or not re.fullmatch(pattern(line), lines[at]):
            return line
        at, skip = at + 1, False
    return None if skip or at == len(lines) else f"the end, instead of {lines[at]!r}"


def run(lab: Lab) -> tuple[str, str | None, float]:
    """(output, what is wrong with it or None, seconds)."""
    start = time.monotonic()
    command = ["timeout", "--kill-after=10", str(LIMIT), "bash", "-c", lab.command]
    done = subprocess.run(command, cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)  # fmt: skip
    wrong = difference(lab.printed, done.stdout)
    if done.returncode:
        wrong = f"status {done.returncode}"
    elif wrong:
        wrong = f"expected {wrong}"
    return done.stdout, wrong, time.monotonic() - start


def keep(path: Path, number: int, out: Path) -> Path:
    """A copy for the index: a later lab may overwrite the picture."""
    copy = out / "index" / f"{number}-{path.name}"
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(path, copy)
    return copy.relative_to(out)


def section(lab: Lab, output: str, wrong: str | None, images: list[Path]) -> str:
    shown = "".join(f'<p><img src="{path}" alt="{path.stem}"></p>' for path in images)
    verdict = f'<p class="wrong">{html.escape(wrong)}</p>' if wrong else ""
    text = html.escape(f"$ {lab.command}\n{output}")
    return f"<h2>{html.escape(lab.title)}</h2>{verdict}<pre>{text}</pre>{shown}\n"


def pictures(out: Path) -> dict[Path, int]:
    """{picture below `out`, but not in the index: time of last change}, which may lag behind the clock."""
    found = (path for path in out.rglob("*.png") if path.parent != out / "index")
    return {path: path.stat().st_mtime_ns for path in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, nargs="?", default=ROOT / "docs" / "tutorial.md")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "labs")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    failures, sections = 0, []
    for lab in labs_of(args.page.read_text(encoding="utf-8")):
        before = pictures(args.out)
        print(f"$ {lab.command}", flush=True)
        output, wrong, seconds = run(lab)
        print(
            output,
            f"-- {f'WRONG: {wrong}' if wrong else 'as on the page'}, {seconds:.0f} s\n",
            sep="",
            flush=True,
        )
        failures += wrong is not None
        new = sorted(path for path, _ in pictures(args.out).items() - before.items())
        images = [keep(path, len(sections) + 1, args.out) for path in new]
        sections.append(section(lab, output, wrong, images))
        (args.out / "index.html").write_text(HEAD + "".join(sections), encoding="utf-8")
    print(f"{len(sections)} labs, {failures} of them wrong; {args.out / 'index.html'}")
    return 1 if failures or not sections else 0


if __name__ == "__main__":
    sys.exit(main())
