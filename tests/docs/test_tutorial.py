"""docs/tutorial.md has every example, and tools/labs.py, which runs it, finds differences."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.cases import cases
from support.processes import captured

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "labs.py"
# Programs with pages of their own, and modules.
NOT_LABS = {"common.py", "memory.py", "resnet.py", "deepspeed_zero.py", "ranks_per_gpu.py"}


def labs(tmp_path, page):
    path = tmp_path / "page.md"
    path.write_text(page)
    return captured([sys.executable, TOOL, path, f"--out={tmp_path / 'out'}"], check=False)


def test_every_example_is_a_lab():
    text = (ROOT / "docs" / "tutorial.md").read_text()
    shown = set(re.findall(r"^\$ .*\bexamples/(\w+\.py)", text, re.MULTILINE))
    assert shown == {path.name for path in (ROOT / "examples").glob("*.py")} - NOT_LABS


PAGE = """# Two

```console
$ echo 'took 1.25 ms on 2 ranks'; echo between; echo 'difference 5e-16'; touch -d yesterday {folder}/a.png
{expected}
```
"""


@cases(
    ("expected", "wrong"),
    ("took 99.0 ms on 2 ranks\n...\ndifference 1.5e-09", None),
    ("took 1.25 ms on 3 ranks\n...", "expected took 1.25 ms on 3 ranks"),
    ("took 1.25 ms on 2 ranks\ndifference 5e-16", "expected difference 5e-16"),
    ("took 1.25 ms on 2 ranks\nbetween", "expected the end, instead of 'difference 5e-16'"),
)
def test_differences_are_shown(tmp_path, expected, wrong):
    (tmp_path / "out").mkdir()
    result = labs(tmp_path, PAGE.format(folder=tmp_path / "out", expected=expected))
    index = (tmp_path / "out" / "index.html").read_text()
    assert "took 1.25 ms" in index and 'src="index/1-a.png"' in index
    assert result.returncode == (1 if wrong else 0), result.stdout
    assert (f"WRONG: {wrong}" if wrong else "as on the page") in result.stdout


def test_each_lab_keeps_its_pictures(tmp_path):
    """A second lab writes a picture of the same name."""
    (tmp_path / "out").mkdir()
    labs(tmp_path, "".join(f"```console\n$ echo {k} > {tmp_path}/out/a.png\n```\n" for k in (1, 2)))
    index = (tmp_path / "out" / "index.html").read_text()
    shown = re.findall(r'<img src="(\S+)"', index)
    assert [(tmp_path / "out" / name).read_text() for name in shown] == ["1\n", "2\n"]
    assert 'name="viewport"' in index and "max-width" in index


def test_a_command_that_fails_is_reported(tmp_path):
    result = labs(tmp_path, "```console\n$ echo 1; exit 3\n1\n```\n")
    assert result.returncode == 1 and "WRONG: status 3" in result.stdout


@pytest.mark.full
def test_the_page():
    assert subprocess.run(["make", "labs"], cwd=ROOT, timeout=1800).returncode == 0
