from __future__ import annotations

import json
import sys
from pathlib import Path

from support import processes

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, out: Path, *arguments: str, ranks: int = 2, timeout: float = 120) -> tuple[str, dict]:
    """(output, result.json) of an example; without a launcher for one rank."""
    launcher = [*processes.MPI_GDR_RUN, "-n", str(ranks)] if ranks > 1 else [sys.executable]
    command = [*launcher, str(EXAMPLES / name), "--device=cpu", f"--out={out}", *arguments]
    output = processes.run(command, timeout=timeout).expect(0)
    return output, json.loads((out / "result.json").read_text())


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")
