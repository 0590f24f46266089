"""`mpi-gdr info`: complete for a bug report, fits a screen, works despite invalid values."""

import json
import os
import sys

import pytest
from support.cases import cases
from support.command import mpi_gdr

from mpi_backend import host, info, info_text, launchers
from mpi_backend._version import __version__


def report_of(*arguments, **variables):
    result = mpi_gdr("info", "--json", *arguments, **variables)
    return result, json.loads(result.stdout)


def test_json():
    result, report = report_of("--size", "4", UCX_TLS="tcp,self", MV2_SUPPORT_DL="1")
    assert result.returncode == 0
    names = "mpi_gdr commit errors warnings python platform host torch launcher extension accelerator mpi"
    names += " mpi_library_is network kernels cuda messages variables environment algorithms"
    assert set(report) == set(names.split())
    assert report["mpi_gdr"] == __version__
    assert report["environment"].items() >= {"UCX_TLS": "tcp,self", "MV2_SUPPORT_DL": "1"}.items()
    assert report["algorithms"]["size"] == 4
    assert report["launcher"]["started_by"] is None
    assert "error" not in report["extension"] and not report["errors"] + report["warnings"]
    assert ".".join(report["torch"]["version"].split(".")[:2]) in report["torch"]["built_for"]
    assert report["kernels"]["selected"] in report["kernels"]["available"]
    assert report["mpi"]["library"] and report["mpi"]["library_path"]
    assert report["messages"] == {"on_one_node": "shared memory", "on_several": "MPI"}
    assert {"MPI_GDR_DEBUG", "MPI_GDR_TIMEOUT"} <= {row["name"] for row in report["variables"]}
    assert {"all_reduce", "broadcast"} <= {row["collective"].lower() for row in report["algorithms"]["table"]}
    # What a bug report needs of the machine and the build.
    assert report["host"]["cores"] == len(os.sched_getaffinity(0))
    assert report["host"]["memory"] > 1 << 28
    assert report["host"]["shared_memory"]["size"] >= report["host"]["shared_memory"]["free"] > 0
    assert set(report["host"]["limits"]) == {"open_files", "locked_memory", "core_files"}
    assert report["host"]["cpu"] == host.cpu_model()
    assert report["extension"]["compiler"]
    if report["mpi"]["device"].startswith("ch4:"):
        assert report["network"].split()[0] in ("ofi", "ucx")


def test_one_screen():
    result = mpi_gdr("info")
    lines = result.stdout.splitlines()
    assert result.returncode == 0 and len(lines) < 40
    assert mpi_gdr("--version").stdout == f"{lines[0]}\n"
    assert {"cpu", "memory", "limits", "network"} <= {line.split(" ")[0] for line in lines}
    assert "MPI_GDR_LANES" not in result.stdout
    everything = mpi_gdr("info", "--all").stdout
    assert "MPI_GDR_LANES" in everything and "algorithms for 2 ranks on one node" in everything


def test_bad_values_are_named_and_the_rest_is_shown():
    result, report = report_of(MPI_GDR_LANES="x", MPI_GDR_SIMD="fast", MPI_GDR_NAP_US="7")
    assert result.returncode == 1
    assert [text.split(" ")[0] for text in report["errors"]] == ["MPI_GDR_LANES=x", "MPI_GDR_SIMD=fast"]
    values = {row["name"]: row["value"] for row in report["variables"]}
    assert values["MPI_GDR_NAP_US"] == "7" and values["MPI_GDR_LANES"] == "4"
    assert report["kernels"] and report["algorithms"]["table"] and report["messages"]


def test_a_table_that_cannot_be_read_is_named_and_the_rest_is_shown():
    result, report = report_of(MPI_GDR_SELECT="nonsense")
    assert result.returncode == 1
    assert len(report["errors"]) == 1 and "MPI_GDR_SELECT" in report["errors"][0]
    assert report["variables"] and report["kernels"]


def test_a_mistyped_variable_is_a_warning():
    result, report = report_of(MPI_GDR_LANS="2")
    assert result.returncode == 0
    assert report["warnings"] == ["MPI_GDR_LANS is not a variable of mpi-gdr; did you mean MPI_GDR_LANES?"]


@cases(
    ("device", "env", "expected"),
    ("ch4:ucx ofi", {}, "ucx"),
    ("ch4:ucx,ofi", {"UCX_TLS": "tcp,self"}, "ucx (UCX_TLS=tcp,self)"),
    ("ch4:ucx,ofi", {"MPICH_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}, "ofi (tcp)"),
    ("ch4:ofi", {"FI_PROVIDER": "^udp"}, "ofi (provider not known; FI_PROVIDER=^udp; --init asks)"),
    ("ch4:ofi", {}, "ofi (provider not known; FI_PROVIDER is not set; --init asks)"),
    ("ch3:sock", {}, "sock"),
    ("", {}, None),
)
def test_the_network(device, env, expected):
    assert info.network({"device": device, "library": "MPICH Version: 5.0.2"}, env, False) == expected


@pytest.mark.parametrize(("excluded", "expected"), [("^sockets", "ofi (tcp)"), ("^tcp", "ofi (sockets)")])
def test_a_started_mpi_names_the_provider(excluded, expected):
    _, report = report_of("--init", MPIR_CVAR_CH4_NETMOD="ofi", FI_PROVIDER=excluded)
    assert report["network"] == expected


@cases(("size", "text"),
    (0, "0 B"), (1000, "1000 B"), (4096, "4 KiB"), (1 << 30, "1 GiB"), (25 << 29, "12.5 GiB"),
    (None, "unlimited"),
)  # fmt: skip
def test_sizes_have_units(size, text):
    assert host.size_text(size) == text


def test_variables_and_algorithms_as_text():
    table = [{"collective": "allreduce", "from_bytes": 0, "to_bytes": None, "algorithm": "chain"}]
    two_level = {"leaders": 2, "origin": "MPI_GDR_SELECT", "algorithm": "two_level"}
    algorithms = {
        "size": 2, "table": table, "table_two_level": [table[0] | two_level],
        "table_on_one_node": [table[0] | {"to_bytes": 4096, "algorithm": "flag", "origin": "rows.txt:3"},
                              table[0] | {"from_bytes": 4096, "to_bytes": 2**64 - 1, "algorithm": "ring"}],
    }  # fmt: skip
    assert info_text.algorithm_lines(algorithms) == [
        "algorithms for 2 ranks on one node",
        "  allreduce                from 0 B to 4 KiB: flag (rows.txt:3)",
        "  allreduce                from 4 KiB and more: ring",
        "algorithms for 2 ranks on several nodes, several ranks each",
        "  allreduce                from 0 B and more: two_level, 2 leaders (MPI_GDR_SELECT)",
        "algorithms for 2 ranks on several nodes, one rank each",
        "  allreduce                from 0 B and more: chain",
    ]
    text = info_text.variable_text
    assert text({"name": "MPI_GDR_GROUP_MEMORY", "value": "1073741824"}) == "1073741824 (1 GiB)"
    assert text({"name": "MPI_GDR_TIMEOUT", "value": "1800"}) == "1800"
    assert text({"name": "MPI_GDR_TRACE", "value": ""}) == "-"


def test_only_rank_0_prints(monkeypatch, capsys):
    report = {"extension": {}, "errors": []}
    monkeypatch.setattr(info, "collect", lambda *arguments: report)
    monkeypatch.setattr(info, "as_text", lambda *arguments: "text")
    for rank in (0, 1):
        monkeypatch.setattr(launchers, "detect", lambda env, rank=rank: launchers.Placement("x", rank, 2))
        assert info.main([]) == 0
        assert bool(capsys.readouterr().out) == (rank == 0)


@pytest.mark.parametrize("options", [["--json"], []])
def test_without_an_extension_the_rest_is_shown(options, monkeypatch, capsys):
    missing = "import of mpi_backend.extension halted"
    monkeypatch.setitem(sys.modules, "mpi_backend.extension", None)
    monkeypatch.setattr(launchers, "detect", lambda env: None)
    assert info.main(options) == 1
    text = capsys.readouterr().out
    if options:
        report = json.loads(text)
        assert report["extension"]["error"].startswith(missing)
        assert report["torch"]["version"]
    else:
        assert f"ERROR: {missing}" in text
        assert any(line.startswith("torch ") for line in text.splitlines())
