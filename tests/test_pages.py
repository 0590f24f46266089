"""What pages say that a test can hold them to: links, names, lists."""

import re
from pathlib import Path

import mpi_backend
from mpi_backend.extension import _C

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def anchors(page):
    """As they are made of the headings of Markdown."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_the_readme_leads_to_every_page():
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in readme] == []


def test_the_page_of_the_python_interface_has_every_public_name():
    text = (ROOT / "docs" / "api.md").read_text()
    described = re.findall(r"^## `mpi_backend\.(\w+)", text, re.MULTILINE)
    assert sorted(described) == sorted(mpi_backend.__all__)
    fields = set(re.findall(r"^\| `(\w+)` \| (?:str|`timedelta`)", text, re.MULTILINE))
    assert all(hasattr(mpi_backend.Options(), field) for field in fields) and len(fields) == 2


def test_the_table_of_overrides_has_every_algorithm():
    text = (ROOT / "docs" / "algorithms.md").read_text()
    rows = re.findall(r"^\| `MPI_GDR_(\w+)_ALGO` \| (.+) \|$", text, re.MULTILINE)
    listed = {name.replace("_", "").lower(): set(re.findall(r"`(\w+)`", names)) for name, names in rows}
    known = {}
    for algorithm in _C.schedule.algorithms():
        known.setdefault(algorithm["collective"].replace("_", ""), set()).add(algorithm["name"])
    assert listed == known
