"""README.md: short, with figures of docs/performance.md and blocks that tools/readme.py runs."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOOL = runpy.run_path(str(ROOT / "tools" / "readme.py"))
WORDS = 700
BYTES = {"8 B": 8, "8 KiB": 8 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}


def table(text, first):
    """(head, rows) of the table whose first heading is `first`, as lists of cells."""
    (lines,) = re.findall(rf"^(\| ?{re.escape(first)} ?\|.*\n(?:\|.*\n)+)", text, re.MULTILINE)
    head, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines.splitlines())
    return head, rows


def measured():
    """{bytes: {column: median}} of all_reduce on 2 ranks in docs/performance.md."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    section = page.partition("![all_reduce on 2 ranks]")[2].partition("![all_reduce on 4 ranks]")[0]
    head, rows = table(section, "bytes")
    return {
        int(row[0]): dict(zip(head, (float(cell.split()[0]) for cell in row if cell), strict=False))
        for row in rows
    }


def as_words(ratio):
    """The other's time divided by ours in README.md's words."""
    factor, word = (ratio, "faster") if ratio >= 1 else (1 / ratio, "slower")
    return f"{int(factor + 0.5)}x {word}" if factor >= 9.5 else f"{factor:.1f}x {word}"


def test_it_is_short():
    assert len(README.split()) <= WORDS


def test_its_factors_are_the_measured_ones():
    head, rows = table(README, "")
    cells = {row[0]: row[1:] for row in rows}
    figures = measured()
    for other, name in (("than Gloo", "Gloo"), ("than bare MPI in C++", "MPI")):
        expected = []
        for title in head[1:]:
            size, _, memory = title.partition(" in ")
            ours = "group memory" if memory else "mpi-gdr"
            expected.append(as_words(figures[BYTES[size]][f"{name} / {ours}"]))
        assert cells[other] == expected
    least, most = re.findall(r"(\d+) to (\d+) times faster than Gloo", README)[0]
    ratios = [row["Gloo / mpi-gdr"] for row in figures.values()]
    assert (int(least), int(most)) == (round(min(ratios)), round(max(ratios)))


def test_its_commands_are_the_wheels_then_the_clones():
    commands = TOOL["commands_of"](README)
    assert commands[:2] == ["pip install mpi_gdr-*.whl torch mpich", "mpi-gdr selftest -n 2"]
    assert [command for command in commands if command.startswith("make ")] == ["make train", "make test"]
    assert {*TOOL["STAGES"], *TOOL["SHORTER"]} <= {*commands}


@pytest.mark.parametrize("names", [[], ["mpi_gdr-0.1.0-cp311-a.whl", "mpi_gdr-0.2.0-cp311-a.whl"]])
def test_without_one_wheel_the_tool_fails(tmp_path, names):
    for name in [*names, "other-1.0-py3-none-any.whl"]:
        (tmp_path / name).touch()
    with pytest.raises(SystemExit, match=f"has {', '.join(names) or 'none'}: `make wheel`"):
        TOOL["wheel_in"](tmp_path)


def test_the_wheel_is_found(tmp_path):
    (tmp_path / "mpi_gdr-0.1.0-cp311-a.whl").touch()
    assert TOOL["wheel_in"](tmp_path).name == "mpi_gdr-0.1.0-cp311-a.whl"
