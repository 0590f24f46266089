"""Argument parsing of all commands: an error is one line that suggests the intended name."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Exits with status 2 on a wrong command line. Options cannot be abbreviated."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"unrecognized arguments: (-[^\s=]*)", message):
            message = f"unknown option {unknown[1]}{self.suggest_option(unknown[1])}"
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")

    def suggest_option(self, word: str) -> str:
        near = nearest(word, self._option_string_actions)
        return f", did you mean {near}?" if near else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, refusal(str(value), map(str, action.choices)))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one, if any."""
    return next(iter(difflib.get_close_matches(word, list(known), 1)), None)


def refusal(word: str, known: Iterable[str]) -> str:
    """Explains that `word` is not among the known names."""
    names = list(known)
    near = nearest(word, names)
    meant = f"did you mean {near}? " if near else ""
    return f"{word!r}: {meant}expected one of {', '.join(names)}"


def canonical_name(word: str, known: Iterable[str]) -> str:
    """The known name equal to `word` except for case, underscores and hyphens; else `word`."""

    def plain(text: str) -> str:
        return text.replace("_", "").replace("-", "").lower()

    return next((name for name in known if plain(name) == plain(word)), word)


def parse_names(text: str, known: Iterable[str]) -> list[str]:
    """Parses names separated by commas, each once; for argparse."""
    names = list(known)
    found = list(dict.fromkeys(canonical_name(word, names) for word in text.split(",")))
    for name in found:
        if name not in names:
            raise argparse.ArgumentTypeError(refusal(name, names))
    return found
