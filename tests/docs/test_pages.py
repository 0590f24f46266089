"""Testable parts of the pages: links, names, lists."""

import re
import runpy
from pathlib import Path

import mpi_backend

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "tests").glob("*/README.md")]


def anchors(page):
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


def test_pages_that_the_doctor_names_exist():
    text = "".join(source.read_text() for source in (ROOT / "mpi_backend" / "doctor").glob("*.py"))
    named = re.findall(r'"([\w/-]+\.md)(?:#([\w-]+))?"', text)
    assert len(named) > 15
    assert [link for link in named if link[1] and link[1] not in anchors(ROOT / link[0])] == []
    assert all((ROOT / page).exists() for page, _ in named)


def test_the_index_leads_to_every_page():
    assert "(docs/index.md)" in (ROOT / "README.md").read_text()
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert [page for page in pages if f"({page})" not in index] == []


def test_the_glossary_is_short_and_in_order():
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Glossary")[2]
    terms = re.findall(r"^\| ([a-z]\w*(?:[ ,]+\w+)*) \|", text, re.MULTILINE)
    assert 30 < len(terms) <= 40 and terms == sorted(terms)


def test_the_page_of_the_python_interface_has_every_public_name():
    text = (ROOT / "docs" / "api.md").read_text()
    described = re.findall(r"^## `mpi_backend\.(\w+)", text, re.MULTILINE)
    assert sorted(described) == sorted(mpi_backend.__all__)
    fields = set(re.findall(r"^\| `(\w+)` \| (?:str|`timedelta`)", text, re.MULTILINE))
    assert all(hasattr(mpi_backend.Options(), field) for field in fields) and len(fields) == 3


def test_sizes_are_right_within_a_tenth():
    house = runpy.run_path(str(ROOT / "tools" / "house.py"))
    rows = re.compile(r"^\| `(\w+)/` \| ([\d,]+) \|$", re.MULTILINE)
    documented, now = (
        rows.findall(text) for text in ((ROOT / "docs" / "architecture.md").read_text(), house["table"]())
    )
    assert [tree for tree, _ in documented] == [tree for tree, _ in now] == list(house["TREES"])
    for (_, then), (tree, lines) in zip(documented, now, strict=True):
        then, lines = (int(number.replace(",", "")) for number in (then, lines))
        assert abs(then - lines) <= lines / 10, f"{tree}: the page is behind the table of `make house`"


def test_generated_tables_are_not_behind():
    tables = runpy.run_path(str(ROOT / "tools" / "tables.py"))
    for (name, title), table in tables["TABLES"].items():
        page = (ROOT / "docs" / name).read_text()
        assert page == tables["updated"](page, title, table()), "python tools/tables.py"
