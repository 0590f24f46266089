"""Releases the commit that is checked out: wheel and source distribution in dist/, tested, and the tag.

    make release              # a wheel for every torch; `make release TORCHES=` for the torch of .venv
    .venv/bin/python tools/release.py --check  # only whether this commit may be released

The tag comes last, after all checks. Publishes nothing, but prints the commands for it.
"""

from __future__ import annotations

import hashlib
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NoReturn

import readme
import wheel_check

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
VERSION = runpy.run_path(str(ROOT / "mpi_backend" / "_version.py"))["__version__"]
TAG = f"v{VERSION}"


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def give_up(sentence: str) -> NoReturn:
    raise SystemExit(f"make release: {sentence}")


def check() -> str:
    """Returns the commit; exits if it must not be released."""
    if not (ROOT / ".git").exists():
        give_up(f"{ROOT} is not a checkout: clone the repository.")
    if changes := git("status", "--porcelain"):
        give_up(f"files differ from the commit: commit or remove them.\n{changes}")
    found = re.search(
        rf"^## {re.escape(VERSION)}(?![.\w])(.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    if not found or "not released" in found[1]:
        found_version = f"says {found[0][3:]!r}" if found else "does not name it"
        give_up(f"the version is {VERSION}, and CHANGELOG.md {found_version}: expected '## {VERSION}, DATE'.")
    if git("tag", "--list", TAG):
        give_up(f"the tag {TAG} exists: raise the version in mpi_backend/_version.py.")
    return git("rev-parse", "HEAD")


def check_wheel(wheel: Path, commit: str) -> None:
    """Runs the self-test in a fresh environment without a compiler on PATH."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bin = readme.environment_with_torch(folder / "env")
        subprocess.run(
            [bin / "python", "-m", "pip", "install", "--quiet", wheel, "mpich"], check=True, cwd=folder
        )
        variables = wheel_check.variables(bin, folder)
        found_version = subprocess.run(
            [bin / "mpi-gdr", "--version"],
            cwd=folder,
            env=variables,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        if found_version != f"mpi-gdr {VERSION}, commit {commit}":
            give_up(f"{wheel.name} is {found_version!r}: expected version {VERSION} of commit {commit}.")
        test = [bin / "mpi-gdr", "run", "-n", "2", *wheel_check.TEST]
        outcome = wheel_check.run(test, folder, variables, wheel_check.CASES)
        if "FAILED" in outcome:
            give_up(f"{wheel.name}: the self-test on 2 ranks {outcome}; its output is above.")
        print(f"{wheel.name}: {found_version}; self-test on 2 ranks: {outcome}")


def source_distribution(commit: str) -> Path:
    """Writes it to dist/ and checks its commit."""
    for old in DIST.glob("mpi_gdr-*.tar.gz"):
        old.unlink()
    subprocess.run([sys.executable, "setup.py", "-q", "sdist", "--dist-dir", DIST], cwd=ROOT, check=True)
    (file,) = DIST.glob("mpi_gdr-*.tar.gz")
    with tarfile.open(file) as members:
        recorded = members.extractfile(f"mpi_gdr-{VERSION}/COMMIT").read().decode().strip()
    if recorded != commit:
        give_up(f"{file.name} is of commit {recorded}: expected {commit}.")
    return file


def main() -> None:
    commit = check()
    if sys.argv[1:] == ["--check"]:
        return
    wheel = readme.wheel_in(DIST)
    files = [wheel, source_distribution(commit)]
    check_wheel(wheel, commit)
    if check() != commit:
        give_up("another commit is checked out than at the start.")
    git("tag", "--annotate", TAG, "--message", f"mpi-gdr {VERSION}", commit)
    print(f"\n{TAG} is commit {commit}; in dist/, with their SHA-256:")
    for file in files:
        print(f"  {hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}")
    print(
        f"\nTo publish it:\n  git push origin {TAG}\n  twine upload", *(f"dist/{file.name}" for file in files)
    )
    print(f"To take it back: git tag --delete {TAG}")


if __name__ == "__main__":
    main()
