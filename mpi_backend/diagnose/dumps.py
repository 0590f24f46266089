"""Reads flight logs. They are pickles from an untrusted folder: the reader accepts plain containers only, so
that it never runs code."""

from __future__ import annotations

import os
import pickle
import re
import stat
from pathlib import Path
from typing import NoReturn, TypedDict, cast

PREFIX = "mpi_gdr_trace_rank_"


class _EntryOptional(TypedDict, total=False):
    error: str  # set if it failed
    pending_ranks: list[int]  # ranks it waits for; [-1]: any
    source: int  # this and the fields up to `message`: messages only
    destination: int
    tag: int
    message: int  # index among the messages of this pair and tag
    bytes: int


class Entry(_EntryOptional):
    """One operation; docs/errors-and-faults.md describes the fields."""

    record_id: int
    op_id: int
    collective_seq_id: int
    process_group: tuple[str, str]
    profiling_name: str
    name: str
    detail: str
    state: str
    sequences: int
    input_sizes: list[list[int]]
    output_sizes: list[list[int]]
    input_dtypes: list[str]
    output_dtypes: list[str]
    time_created_ns: int


class Dump(TypedDict):
    """One rank's log."""

    entries: list[Entry]
    p2p_entries: list[Entry]
    pg_config: dict[str, dict[str, str]]
    world_size: int
    time_ns: int
    reason: str
    host: str
    pid: int


class BadDump(Exception):
    """The file that the message names is not a flight log of this backend."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it holds {module}.{name}, expected plain containers only")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it holds a persistent id, expected plain containers only")


def read_dump(path: Path) -> Dump:
    """The top-level dictionary of one file. Raises BadDump."""
    try:
        # Non-blocking: the name may be a pipe without a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadDump(f"{path} is not a regular file")
            dump = _PlainUnpickler(file).load()
    except BadDump:
        raise
    # A damaged pickle may raise almost anything.
    except Exception as error:
        raise BadDump(f"{path} is not a flight log: {error}") from error
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise BadDump(f"{path} is not a flight log: it has no list of entries")
    if dump.get("backend") != "mpi-gdr":
        raise BadDump(f"{path} is not of backend mpi-gdr: use torchfrtrace")
    return cast(Dump, dump)


def describe_foreign_writers(directory: str) -> list[str]:
    """Sentences about what other users may have written: the folder itself, and files in it."""
    folder, user = Path(directory), os.geteuid()
    doubts = []
    status = folder.stat()
    if status.st_uid != user:
        doubts.append(f"{folder} belongs to uid {status.st_uid}")
    elif status.st_mode & stat.S_IWOTH:
        doubts.append(f"other users can write to {folder}")
    others = sorted(
        path.name for path in folder.iterdir() if path.lstat().st_uid not in (user, status.st_uid)
    )
    if others:
        doubts.append(
            f"other users own {', '.join(others[:4])}{', ...' if len(others) > 4 else ''} in {folder}"
        )
    return doubts


def read_folder(directory: str, prefix: str = PREFIX) -> dict[int, Dump]:
    """{rank: dump} of all files `<prefix><rank>`. Raises BadDump if there is none or one is invalid."""
    folder = Path(directory)
    if not folder.is_dir():
        raise BadDump(f"{directory} is not a directory")
    pattern = re.compile(re.escape(prefix) + r"(\d+)$")
    dumps = {}
    for path in sorted(folder.iterdir()):
        if match := pattern.fullmatch(path.name):
            dumps[int(match.group(1))] = read_dump(path)
    if not dumps:
        raise BadDump(f"{directory} holds no file {prefix}<rank>")
    return dict(sorted(dumps.items()))
