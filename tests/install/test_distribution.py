"""The source distribution, its metadata, its commit, and the checks of `make release`."""

import re
import shutil
import sys
import tarfile

import pytest
from support.building import ROOT, load_setup
from support.processes import captured

# Parts of the repository only.
NOT_SHIPPED = (".ci/", ".editorconfig", ".github/", ".gitignore", ".pre-commit-config.yaml")
WRITTEN = {"COMMIT", "PKG-INFO", "setup.cfg"}  # by setup.py and setuptools
BUILT = ("mpi_backend/_C.so", "mpi_backend/_build_info.json", "tests/support/data.pyc", "tests/fakecuda/x.so")


def git(*arguments, cwd):
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    return captured(["git", *identity, *arguments], cwd=cwd).stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is not a checkout")
def test_a_source_distribution_has_all_files_of_the_repository_and_names_the_commit(tmp_path):
    """Made from a copy without .git, as from an unpacked archive."""
    tracked = set(git("ls-files", cwd=ROOT).splitlines())
    for name in tracked:
        target = tmp_path / "copy" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    for name in BUILT:
        (tmp_path / "copy" / name).write_bytes(b"")
    (tmp_path / "copy" / "COMMIT").write_text("0123abcd\n")
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)]
    captured(command, cwd=tmp_path / "copy")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        members = {member.name.partition("/")[2]: member for member in tar if member.isfile()}
        assert tar.extractfile(members["COMMIT"]).read() == b"0123abcd\n"
    shipped = {name for name in members if not name.startswith("mpi_gdr.egg-info/")}
    assert shipped - WRITTEN == {name for name in tracked if not name.startswith(NOT_SHIPPED)}
    assert members["tools/coverage.sh"].mode & 0o100


def test_the_metadata_names_licence_authors_and_a_readme_without_relative_links(tmp_path):
    captured([sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path], cwd=ROOT)
    head, readme = (tmp_path / "mpi_gdr.egg-info" / "PKG-INFO").read_text().split("\n\n", 1)
    for line in (
        "License-Expression: BSD-3-Clause",
        "License-File: LICENSE",
        "Author: The mpi-gdr authors",
        "Description-Content-Type: text/markdown",
    ):
        assert line in head.splitlines()
    assert readme.startswith("# mpi-gdr")
    assert re.findall(r"\]\((?!https?:)", readme) == []
    assert "Installing (`docs/install.md`)" in readme


def test_the_commit_that_is_built(monkeypatch, tmp_path):
    build = load_setup()
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "COMMIT", tmp_path / "COMMIT")
    assert build.commit() is None
    build.COMMIT.write_text("\n")
    assert build.commit() is None
    build.COMMIT.write_text("0123abcd+changes\n")
    assert build.commit() == "0123abcd+changes"

    git("init", cwd=tmp_path)
    (tmp_path / "file").write_text("1")
    git("add", "file", cwd=tmp_path)
    git("commit", "-m", "1", cwd=tmp_path)
    found = build.commit()
    assert re.fullmatch("[0-9a-f]{40}", found)
    (tmp_path / "file").write_text("2")
    assert build.commit() == f"{found}+changes"


# ---- make release -----------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """A repository of version 1.2.3 with the release tool and nothing to build."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mpi_backend").mkdir()
    (tmp_path / "mpi_backend" / "_version.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.3, 1 May 2027\n\n## 1.2.2, 1 April 2027\n")
    git("init", cwd=tmp_path)
    git("add", ".", cwd=tmp_path)
    git("commit", "-m", "1", cwd=tmp_path)
    return tmp_path


def release(checkout, *arguments):
    result = captured([sys.executable, "tools/release.py", *arguments], check=False, cwd=checkout)
    return result.returncode, result.stderr


def test_a_clean_commit_that_the_changes_name_may_be_released(checkout):
    assert release(checkout, "--check") == (0, "")


@pytest.mark.parametrize("name", ["new", "CHANGELOG.md"])
def test_changes_are_not_released(checkout, name):
    (checkout / name).write_text("x")
    status, output = release(checkout, "--check")
    assert status == 1 and "commit or remove" in output and name in output.splitlines()[-1]


@pytest.mark.parametrize("heading", ["", "## 1.2.30, 1 May 2027\n## 1.2.3.1\n", "## 1.2.3, not released\n"])
def test_the_changes_must_name_the_version(checkout, heading):
    (checkout / "CHANGELOG.md").write_text(heading)
    git("commit", "-am", "2", cwd=checkout)
    status, output = release(checkout, "--check")
    assert status == 1 and "expected '## 1.2.3, DATE'" in output


def test_a_version_is_released_once(checkout):
    git("tag", "v1.2.3", cwd=checkout)
    status, output = release(checkout, "--check")
    assert status == 1 and "the tag v1.2.3 exists" in output


def test_a_release_that_fails_leaves_no_tag(checkout):
    status, output = release(checkout)
    assert status == 1 and "needs one wheel" in output
    assert git("tag", cwd=checkout) == ""
