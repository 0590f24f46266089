"""Lists the files whose code differs between two commits once comments and docstrings are left out.

    python tools/same_code.py OLD [NEW]     NEW: a commit; by default the working tree

Compares C, C++, CUDA and .inc files by tokens, Python by syntax tree without docstrings, others by text.
Exits with status 1 if a file differs: checks a commit that claims to change comments only.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

C_SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inc"}
C_TOKEN = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/|\s+"""  # no code
    r"""|(?P<code>R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'"""
    r"""|[\w']+|.)""",
    re.DOTALL | re.VERBOSE,
)


def c_tokens(text: str) -> list[str]:
    return [match["code"] for match in C_TOKEN.finditer(text) if match["code"]]


def python_tree(text: str) -> str:
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


def code_of(path: str, text: str) -> object:
    suffix = Path(path).suffix
    if suffix in C_SUFFIXES:
        return c_tokens(text)
    return python_tree(text) if suffix == ".py" else text


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def main(old: str, new: str | None = None) -> int:
    differing = []
    changes = git("diff", "--name-status", "--no-renames", old, *([new] if new else []), "--").splitlines()
    for change in changes:
        status, path = change.split("\t")
        after = None if status == "D" else git("show", f"{new}:{path}") if new else Path(path).read_text()
        if (
            status != "M"
            or after is None
            or code_of(path, git("show", f"{old}:{path}")) != code_of(path, after)
        ):
            differing.append(path)
    print(*differing, sep="\n", end="\n" if differing else "")
    print(f"{len(changes)} files changed, {len(differing)} of them in code")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
