"""docs/mpi.md lists exactly the variables that the sources set."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from mpi_backend import launchers

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = {"env", "environ", "environment", "added"}  # mappings that become an environment
CALL = rf"os\.putenv|(\w+\.)*({'|'.join(ENVIRONMENTS)})\.(setdefault|update)"
FABRIC = re.compile(r"(MPIR_CVAR|MPICH|MVP|MV2|I_MPI|OMPI_MCA|PMIX?|UCX|FI)_")
HYDRA = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}


def documented() -> set[str]:
    """Variables in the first column of the page's tables, without those in brackets, which are conditions."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "mpi.md").read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row))}


def set_in_cpp() -> set[str]:
    """Variables named by functions that set some, without those they only read."""
    found: set[str] = set()
    for path in (ROOT / "csrc").rglob("*.cpp"):
        for function in path.read_text().split("\n}\n"):
            if re.search(r"\b(setenv|putenv|set_control)\(", function):
                read = re.findall(r'(?:getenv|control_is_set)\("(\w+)"\)', function)
                named = set(re.findall(r'"([A-Z][A-Z0-9_]*_[A-Z0-9]+)"', function))
                found |= named - set(read) | set(re.findall(r'setenv\("(\w+)"', function)) & named
    return found


def keys_set(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(one, ast.Subscript) and ast.unparse(one.value).split(".")[-1] in ENVIRONMENTS:
                    yield one.slice
        if isinstance(node, ast.Call) and re.fullmatch(CALL, ast.unparse(node.func)):
            yield node.args[0]
        if isinstance(node, ast.Dict):
            yield from (k for k in node.keys if isinstance(k, ast.Constant) and FABRIC.match(str(k.value)))


def set_in_python() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "mpi_backend").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        keys = list(keys_set(ast.parse(path.read_text())))
        if not keys:
            continue
        scope = {**vars(importlib.import_module(name)), "env": HYDRA}
        scope["name"] = list(launchers.rank_variables(HYDRA))  # all four of become_single_rank()'s loop
        for key in keys:
            value = eval(ast.unparse(key), scope)
            found |= {value} if isinstance(value, str) else set(value)
    return found


def test_the_page_lists_what_is_set():
    assert documented() == set_in_cpp() | set_in_python()
