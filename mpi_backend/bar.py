"""A progress bar on standard error, if that is a terminal; without a library."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

WIDTH = 24  # of the bar itself
ERASE = "\r\x1b[K"  # the line that the cursor is on


class Bar:
    """A context. Draws nothing where standard error is no terminal, or one that cannot erase."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._first: tuple[float, int] | None = None  # when it was first shown, and with what done
        self._draws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exception: object) -> None:
        self._erase()

    def show(self, done: int, total: int, state: str) -> None:
        """How far it is, and what stands beside the bar."""
        if not self._draws:
            return
        filled = WIDTH * done // total
        now = time.monotonic()
        begin, before = self._first = self._first or (now, done)  # starting the ranks does not count
        left = f"{(now - begin) * (total - done) / (done - before):.0f} s left  " if done > before else ""
        blocks = "#" * filled + "." * (WIDTH - filled)
        line = f"{self._title:<8} [{blocks}] {100 * done // total:3} %  {left}{state}"
        line = line[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be erased
        print(f"{ERASE}{line}", end="", file=sys.stderr, flush=True)

    def print(self, line: str, file: TextIO | None = None) -> None:
        """A line that stays, above the bar; on standard error unless a file is given."""
        self._erase()
        print(line, file=file or sys.stderr, flush=True)

    def _erase(self) -> None:
        if self._draws:
            print(ERASE, end="", file=sys.stderr, flush=True)
