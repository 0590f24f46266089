"""Groups' measurements are cached: a later job of this user starts with them, the same on all ranks."""

from __future__ import annotations

import json
import re
import stat

import pytest
from support import processes
from support.command import mpi_gdr
from support.spmd import TESTS

PROGRAM = TESTS / "support" / "choices_program.py"
RIVALS = {"staged", "zero_copy"}


class Jobs:
    def __init__(self, folder, size: int) -> None:
        self.folder, self.size = folder, size
        self.cache = folder / "cache"

    def run(self, **variables: str) -> tuple[dict, str]:
        """(rank 0's result, output). All ranks must have run the same."""
        command = [*processes.MPI_GDR_RUN, "-n", str(self.size), PROGRAM, self.folder]
        variables = {"XDG_CACHE_HOME": str(self.cache), **variables}
        output = processes.run(command, timeout=60, **variables).expect(0)
        ranks = [json.loads((self.folder / f"rank{r}.json").read_text()) for r in range(self.size)]
        assert all(rank["ran"] == ranks[0]["ran"] for rank in ranks), ranks
        assert len(ranks[0]["ran"]) == 40
        return ranks[0], output

    def file(self):
        (path,) = (self.cache / "mpi-gdr").iterdir()
        return path


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path, 3)
    first, output = jobs.run()
    if not first["last"]:
        pytest.skip(f"nothing to choose here: {set(first['ran'])}")
    assert set(first["ran"][:12]) == RIVALS, first["ran"]  # measured
    assert first["first"][0]["speedup"] is None and first["last"][0]["speedup"] is not None
    assert "remembered" not in output
    return jobs


def test_a_later_job_begins_with_it(jobs):
    path = jobs.file()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    line = text.splitlines()[1]
    for rival in ("zero_copy", "staged"):
        words = line.split()
        assert words[:3] == ["all_reduce", "1048576", "ordinary"] and words[3] in RIVALS, text
        words[3:] = [rival, "1.5"]
        cached = text.replace(line, " ".join(words))
        path.write_text(cached)
        later, output = jobs.run(MPI_GDR_DEBUG="INFO")
        assert set(later["ran"]) == {rival}, later["ran"]
        assert output.count("1 remembered choice(s) of algorithms") == 1, output
        assert [row["speedup"] for row in later["first"]] == [1.5]
        assert path.read_text() == cached  # nothing was measured
        shown = mpi_gdr("info", "--choices", XDG_CACHE_HOME=str(jobs.cache)).stdout
        assert re.search(f"1 MiB to 2 MiB +ordinary memory: {rival}, 1.50x as fast", shown), shown
        assert f"{jobs.size} ranks" in shown and str(path) in shown, shown
        shown = mpi_gdr("info", "--choices", "--json", XDG_CACHE_HOME=str(jobs.cache)).stdout
        (file,) = json.loads(shown)
        assert file["path"] == str(path) and file["problem"] == "" and file["choices"] == later["first"]


def test_a_spoilt_file_is_ignored_with_a_line(jobs):
    path = jobs.file()
    path.write_text(path.read_text().replace("ordinary", "nowhere"))
    shown = mpi_gdr("info", "--choices", XDG_CACHE_HOME=str(jobs.cache)).stdout
    assert "ignored: choice 1 is damaged" in shown, shown
    later, output = jobs.run()
    assert set(later["ran"][:12]) == RIVALS, later["ran"]
    assert output.count(f"remembered choices in {path} are ignored: choice 1 is damaged") == 1, output
    assert "nowhere" not in path.read_text()
    again, output = jobs.run()
    assert len(set(again["ran"])) == 1 and "ignored" not in output


def test_switched_off(jobs):
    text = jobs.file().read_text()
    for variables in ({"MPI_GDR_ADAPT": "off"}, {"MPI_GDR_SELECT": "broadcast:binomial"}):
        later, _ = jobs.run(**variables)
        assert set(later["ran"]) == {"staged"} and later["last"] == []
    assert jobs.file().read_text() == text


def test_without_a_folder(tmp_path):
    jobs = Jobs(tmp_path, 2)
    nowhere = {"XDG_CACHE_HOME": "", "HOME": str(tmp_path / "none")}
    for variables in ({"XDG_CACHE_HOME": "/dev/null"}, nowhere):
        _, output = jobs.run(**variables)
        assert "remembered" not in output
        shown = mpi_gdr("info", "--choices", **variables).stdout
        assert shown.startswith("no choices are remembered: "), shown
    assert not (tmp_path / "none").exists()
