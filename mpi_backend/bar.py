"""A progress bar on standard error."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

WIDTH = 24  # characters of the bar itself
ERASE = "\r\x1b[K"  # erases the cursor's line


class Bar:
    """Context manager. Draws nothing if standard error is no terminal, or one that cannot erase."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._first: tuple[float, int] | None = None  # time and `done` of the first show()
        self._draws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exception: object) -> None:
        self._erase()

    def show(self, done: int, total: int, state: str) -> None:
        """Draws the bar at done / total with `state` beside it."""
        if not self._draws:
            return
        filled = WIDTH * done // total
        now = time.monotonic()
        begin, before = self._first = self._first or (now, done)  # the start of the ranks does not count
        left = f"{(now - begin) * (total - done) / (done - before):.0f} s left  " if done > before else ""
        blocks = "#" * filled + "." * (WIDTH - filled)
        line = f"{self._title:<8} [{blocks}] {100 * done // total:3} %  {left}{state}"
        line = line[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be erased
        print(f"{ERASE}{line}", end="", file=sys.stderr, flush=True)

    def print(self, line: str, file: TextIO | None = None) -> None:
        self._erase()
        print(line, file=file or sys.stderr, flush=True)

    def _erase(self) -> None:
        if self._draws:
            print(ERASE, end="", file=sys.stderr, flush=True)
