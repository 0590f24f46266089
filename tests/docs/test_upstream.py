"""docs/upstream.md: its programs still show the defects; otherwise a defect is fixed."""

import re
import sys
from pathlib import Path

import pytest
import torch
from support import processes

TEXT = (Path(__file__).parents[2] / "docs" / "upstream.md").read_text()
VERSION = re.search(r"on torch (\S+)", TEXT).group(1)
# (program, "prints" or "raises", text)
CASES = [
    (re.sub(r"^ {4}", "", block, flags=re.MULTILINE), kind, " ".join(shown.split()))
    for block, kind, shown in re.findall(r"((?:^ {4}.*\n)+)\n(prints|raises) `([^`]+)`", TEXT, re.MULTILINE)
]


def test_every_defect_has_a_program():
    assert len(CASES) == TEXT.count("\n## ")


@pytest.mark.skipif(not torch.__version__.startswith(VERSION), reason=f"the page is about torch {VERSION}")
@pytest.mark.parametrize("case", CASES, ids=re.findall(r"^## (.*)$", TEXT, re.MULTILINE))
def test_program(tmp_path, case):
    program, kind, shown = case
    path = tmp_path / "program.py"
    path.write_text(program)
    output = processes.run([sys.executable, path], timeout=60).expect(0 if kind == "prints" else 1)
    assert shown in output
