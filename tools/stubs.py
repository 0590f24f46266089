"""Writes mpi_backend/_C.pyi and _tools/*.pyi, the types of the built extensions: make stubs

tests/install/test_stubs.py fails if these files and the extensions differ.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pybind11_stubgen

import mpi_backend.extension  # noqa: F401  (it loads mpi_backend._C, from a file for the torch that is here)

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mpi_backend"
WIDTH = 110
REWRITTEN = (
    (r"typing\.SupportsInt \| typing\.SupportsIndex", "int"),
    (r"typing\.SupportsFloat \| typing\.SupportsIndex", "float"),
    (r"(\w+: [\w.]+) = None", r"\1 | None = None"),  # a null pointer
    (r"(?m)^(\w+: str) = .*$", r"\1"),  # differs between builds
    (r"\barg[01]: ", "value: "),  # of a settable property
    (r'"""\n *(.*)\n *"""', r'"""\1"""'),
)


def stubs() -> dict[str, str]:
    """{path in the package: text}."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("_C", "_tools"):
            pybind11_stubgen.main([f"mpi_backend.{name}", "--exit-code", "--output-dir", folder])
        written = Path(folder, "mpi_backend")
        files = sorted(written.rglob("*.pyi"))
        for file in files:
            text = file.read_text()
            for pattern, replacement in REWRITTEN:
                text = re.sub(pattern, replacement, text)
            file.write_text("# Written by `make stubs`.\n" + text)
        # Runs in ROOT, where ruff recognises mpi_backend as first-party when it sorts imports.
        ruff = [Path(sys.executable).with_name("ruff"), "--config", ROOT / "pyproject.toml", "--quiet"]
        subprocess.run([*ruff[:1], "check", *ruff[1:], "--fix-only", *files], check=True, cwd=ROOT)
        subprocess.run([*ruff[:1], "format", *ruff[1:], *files], check=True, cwd=ROOT)
        return {str(file.relative_to(written)): wrapped(file.read_text()) for file in files}


def wrapped(text: str) -> str:
    """Wraps docstrings, which the formatter leaves longer than a line."""
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if len(line) <= WIDTH:
            lines.append(line)
        else:
            lines += textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, text in stubs().items():
        (PACKAGE / name).parent.mkdir(exist_ok=True)
        (PACKAGE / name).write_text(text)
