"""packaging/: no test runs the recipes, so their names are checked."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from support.building import ROOT, load

from mpi_backend import __version__, mpi_library
from mpi_backend.cli import COMMANDS

FOLDER = ROOT / "packaging"
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
DEFINITION = (FOLDER / "mpi-gdr.def").read_text(encoding="utf-8")
SPACK = FOLDER / "spack_repo" / "mpi_gdr"
WHEEL = "mpi_gdr-*.whl"


@pytest.mark.parametrize("recipe", [DOCKERFILE, DEFINITION])
def test_images_install_the_wheel(recipe):
    sources = re.findall(rf"(?:COPY|^   ) *(\S+/{re.escape(WHEEL)}) (\S+)", recipe, re.MULTILINE)
    assert [source for source, _ in sources] == [f"dist/{WHEEL}"]
    (installs,) = re.findall(rf"pip install .*?(\S+/){re.escape(WHEEL)} mpich", recipe)
    assert installs == sources[0][1]
    assert f"packaging/{'Dockerfile' if recipe is DOCKERFILE else 'mpi-gdr.def'}" in recipe


@pytest.mark.parametrize("text", [DOCKERFILE, DEFINITION, INSTALL])
def test_commands_and_variables_exist(text):
    commands = re.findall(r'mpi-gdr"?,? "?(info|doctor|selftest|run)\b', text)
    assert commands and {*commands} <= {*COMMANDS}
    assert {*re.findall(r"MPI_GDR_MPI_\w+", text)} <= {mpi_library.VARIABLE}


def test_the_page_names_the_recipes_as_not_run():
    section = INSTALL.partition("## Containers and Spack")[2].partition("\n## ")[0]
    for path in re.findall(r"packaging/[\w./-]+", section):
        assert (ROOT / path).exists(), path
    assert "were not run" in " ".join(section.split()) and mpi_library.VARIABLE in section


class Package:
    """The part of Spack's PythonPackage that the recipe uses."""


@pytest.fixture
def recipe(monkeypatch):
    """package.py's module and its recorded directives by name."""
    calls = {"license": [], "version": [], "depends_on": []}
    language = ModuleType("spack.package")
    for name, record in calls.items():
        setattr(language, name, lambda *values, record=record, **options: record.append((values, options)))
    language.EnvironmentModifications = dict
    build = ModuleType("spack_repo.builtin.build_systems.python")
    build.PythonPackage = Package
    for module in (language, build):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        parent = module.__name__
        while parent := parent.rpartition(".")[0]:
            monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    module = load(SPACK / "packages" / "py_mpi_gdr" / "package.py")
    return SimpleNamespace(package=module.PyMpiGdr, calls=calls)


def test_spack_installs_this_version_of_the_wheel_in_the_current_folder(recipe, tmp_path, monkeypatch):
    assert recipe.calls["version"] == [((__version__,), {"expand": False})]
    assert recipe.calls["license"] == [(("BSD-3-Clause",), {})]
    depends = {re.match(r"[\w-]+", value)[0] for (value,), _ in recipe.calls["depends_on"]}
    assert depends == {"python", "py-torch", "mpi"}
    monkeypatch.chdir(tmp_path)
    url = Package.__new__(recipe.package).url_for_version
    assert url(__version__) == f"file://{tmp_path}/mpi_gdr-{__version__}-*.whl"  # Spack reports it as missing
    wheel = tmp_path / f"mpi_gdr-{__version__}-cp311-cp311-linux_x86_64.whl"
    wheel.touch()
    assert url(__version__) == f"file://{wheel}"


@pytest.mark.parametrize("library", ["/opt/mpich/lib/libmpi.so", "/opt/cray/lib/libmpich.so"])
def test_spack_names_its_mpi(recipe, library):
    package = Package.__new__(recipe.package)
    package.spec = {"mpi": SimpleNamespace(libs=["/opt/lib/libmpifort.so", library, "/opt/lib/libfabric.so"])}
    env = {}
    package.setup_run_environment(SimpleNamespace(set=env.__setitem__))
    assert env == {mpi_library.VARIABLE: library}
    assert mpi_library.FILE.fullmatch(Path(library).name)


def test_spack_finds_the_repository_by_its_namespace():
    assert f"namespace: {SPACK.name}\n" in (SPACK / "repo.yaml").read_text(encoding="utf-8")
    assert SPACK.parent.name == "spack_repo"  # Spack imports spack_repo.<namespace>
