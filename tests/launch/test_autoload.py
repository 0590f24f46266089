"""Effects of `import torch` with this package installed, and the rendezvous without MPI."""

import importlib
import json
import os
import socket
import sys
from datetime import timedelta
from importlib.machinery import EXTENSION_SUFFIXES

import pytest
import torch.distributed as dist
from support.cases import cases
from support.processes import captured

from mpi_backend import _autoload, _creator, extension, hardware_queues, master_address, rendezvous
from mpi_backend.build_info import extensions

REPORT = """
import json, os, sys, warnings
warnings.simplefilter("error")
{before}
import torch
import torch.distributed as dist
print(json.dumps({{
    "plugins": list(dist.Backend._plugins),
    "capability": dist.Backend.backend_capability.get("mpi-gdr"),
    "default": dict(dist.Backend.default_device_backend_map),
    "extension": "mpi_backend._C" in sys.modules,
    "wrapped": hasattr(sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers["env"], "_mpi_gdr"),
    "ranks": [os.environ.get(k) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")],
    "queues": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS"),
}}))
"""


def in_fresh_python(before="", **env):
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "MPI_LOCAL", "RANK"))}
    set_here = ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_DEVICE_MAX_CONNECTIONS")
    ours = {k: v for k, v in ours.items() if k not in set_here}
    result = captured([sys.executable, "-c", REPORT.format(before=before)], check=False, env={**ours, **env})
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_import_torch_registers_and_loads_nothing():
    report = in_fresh_python()
    assert "MPI-GDR" in report["plugins"]
    assert report["capability"][:2] == ["cpu", "cuda"]
    assert report["default"]["cpu"] == "gloo" and report["default"]["cuda"] == "nccl"
    assert report["wrapped"] and not report["extension"]
    assert report["ranks"] == [None] * 4 and report["queues"] is None


def test_import_torch_sets_the_ranks():
    env = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    report = in_fresh_python(**env)
    assert report["ranks"] == ["1", "4", "1", "2"] and report["queues"] == "32"


@cases(
    ("env", "queues"),
    ({}, None),
    ({"RANK": "0"}, "32"),
    ({"RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "1"),
    ({"RANK": "0", "CUDA_MPS_PIPE_DIRECTORY": "/"}, None),
)
def test_a_rank_asks_for_all_hardware_queues(env, queues):
    env = {"CUDA_MPS_PIPE_DIRECTORY": "/there is none", **env}
    hardware_queues.apply(env)
    assert env.get("CUDA_DEVICE_MAX_CONNECTIONS") == queues


def test_hardware_queues_of_a_cuda_that_runs_stay(monkeypatch):
    for name in ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MPS_PIPE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    hardware_queues.apply(os.environ)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in os.environ


@pytest.mark.parametrize("before", ["import mpi_backend", "import torch, mpi_backend"])
def test_import_by_hand_where_autoloading_is_off(before):
    assert "MPI-GDR" not in in_fresh_python(TORCH_DEVICE_BACKEND_AUTOLOAD="0")["plugins"]
    report = in_fresh_python(before, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "MPI-GDR" in report["plugins"] and report["wrapped"] and not report["extension"]


def test_the_name_on_the_index_is_not_that_of_the_module():
    with pytest.raises(ImportError, match="imported as mpi_backend: `import mpi_backend`"):
        importlib.import_module("mpi_gdr")


def test_registering_twice_changes_nothing():
    _autoload.register()
    before = dict(dist.Backend._plugins)
    _autoload.register()
    _autoload.autoload()
    assert dist.Backend._plugins == before


def test_the_hook_never_raises_and_warns_once(monkeypatch):
    def broken():
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(_autoload, "_prepare", broken)
    monkeypatch.setattr(_autoload, "_warned", False)
    with pytest.warns(UserWarning, match="broken on purpose") as caught:
        _autoload.autoload()
        _autoload.register()
    assert len(caught) == 1


# ---- loading the extension --------------------------------------------------------------------------------


@cases(
    ("name", "sentence"),
    ("gloo", r"MPI_GDR_AS=gloo needs torch 2\.14 or newer, this is torch 2\.13: let the program name"),
    ("nccl", r"MPI_GDR_AS=nccl, expected gloo"),
)
def test_a_name_that_cannot_be_taken_is_refused(monkeypatch, name, sentence):
    """`import torch` warns, init_process_group raises; Gloo is unchanged."""
    monkeypatch.setenv("MPI_GDR_AS", name)
    monkeypatch.setattr(_autoload, "problems", {})
    monkeypatch.setattr(_autoload, "_torch_minor", lambda: (2, 13))
    gloo = dist.Backend._plugins.get("GLOO")
    with pytest.warns(UserWarning, match=sentence):
        _autoload._prepare()
    assert dist.Backend._plugins.get("GLOO") is gloo
    with pytest.raises(RuntimeError, match=sentence):
        dist.init_process_group("gloo", init_method="env://", rank=0, world_size=1)


def test_the_extension_of_the_running_torch_is_taken(tmp_path):
    for name in ("2.9", "2.13", "2.11"):
        (tmp_path / f"_C.torch{name}{EXTENSION_SUFFIXES[0]}").touch()
    (tmp_path / "_C.torch2.12.cpython-39-of-another-python.so").touch()
    found = extensions(tmp_path)
    assert list(found) == ["2.9", "2.11", "2.13"]
    assert extension.extension_for("2.13.1+cu130", found) == found["2.13"]
    message = r"built for torch 2\.9, 2\.11, 2\.13 and this is torch 2\.12\.0.*rebuild"
    with pytest.raises(ImportError, match=message):
        extension.extension_for("2.12.0", found)
    assert extensions(tmp_path / "nowhere") == {}


def test_load_errors_include_the_remedy(tmp_path, monkeypatch):
    cure = "pip install --no-build-isolation"
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ImportError, match=f"no compiled extension.*{cure}") as failed:
        extension.extension_for("2.13.0", {})
    assert "\n" not in str(failed.value)
    broken = tmp_path / f"_C.torch2.13{EXTENSION_SUFFIXES[0]}"
    broken.write_text("no library")
    monkeypatch.setitem(sys.modules, "mpi_backend._C", extension._C)
    with pytest.raises(ImportError, match=rf"cannot load its extension \(.*{cure}"):
        extension.load(broken)
    assert "mpi_backend._C" not in sys.modules


def test_options_of_another_kind_are_refused():
    assert _creator.checked_options(None) is None
    ours = extension._C.Options()
    assert _creator.checked_options(ours) is ours
    with pytest.raises(TypeError, match=r"builtins\.dict.*expects mpi_backend\.Options"):
        _creator.checked_options({"timeout": 1})


# ---- rendezvous -------------------------------------------------------------------------------------------

LAUNCHED = {"PMI_RANK": "1", "PMI_SIZE": "4", "RANK": "1", "WORLD_SIZE": "4"}


@cases(
    ("url", "env", "expected"),
    ("env://", LAUNCHED, (1, 4)),
    ("env://?rank=1&world_size=4", LAUNCHED, (1, 4)),
    ("env://?rank=0&world_size=2", LAUNCHED, None),
    ("env://", {**LAUNCHED, "RANK": "0", "WORLD_SIZE": "2"}, None),
    ("env://", {**LAUNCHED, "TORCHELASTIC_RUN_ID": "job"}, None),
    ("env://", {"RANK": "1", "WORLD_SIZE": "4"}, None),
)
def test_only_the_ranks_of_the_launcher_connect_over_mpi(url, env, expected):
    assert rendezvous.ranks_of_launcher(url, env) == expected


def test_an_address_set_by_us_counts_as_missing(unset_master_address):
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4711"}
    assert not master_address.address_is_missing(env)
    assert master_address.address_is_missing({"MASTER_ADDR": "127.0.0.1"})
    master_address.publish(env, "127.0.0.1", "4711")
    assert master_address.address_is_missing(env)
    for changed in ({"MASTER_ADDR": "node7", "MASTER_PORT": "29500"}, {**env, "MASTER_PORT": "29500"}):
        assert not master_address.address_is_missing(changed)


def test_an_address_of_the_user_is_kept(unset_master_address):
    env = {"MASTER_ADDR": "node7"}
    master_address.publish(env, "10.0.0.7", "4711")
    assert master_address.user_value(env, "MASTER_PORT") == ""
    assert master_address.user_value(env, "MASTER_ADDR") == "10.0.0.7"


@pytest.mark.parametrize("single_node", [True, False])
def test_a_store_that_other_nodes_can_reach(unset_master_address, single_node):
    timeout = timedelta(seconds=30)
    store, (port, *addresses) = rendezvous.open_store(single_node, 2, timeout)
    assert (addresses == ["127.0.0.1"]) == single_node
    address = rendezvous.first_reachable(addresses, int(port))
    client = dist.TCPStore(address, int(port), 2, is_master=False, timeout=timeout, wait_for_workers=False)
    store.set("key", "value")
    assert client.get("key") == b"value"


def test_the_address_and_port_that_the_user_fixed(unset_master_address, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    monkeypatch.setenv("MPI_GDR_MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free))
    _, lines = rendezvous.open_store(True, 1, timedelta(seconds=30))
    assert lines == [str(free), "127.0.0.1"]


def test_the_first_address_that_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert rendezvous.first_reachable(["127.0.0.2", "127.0.0.1"], port) == "127.0.0.1"
    with pytest.raises(RuntimeError, match=r"127\.0\.0\.2, 127\.0\.0\.1.*MPI_GDR_MASTER_ADDR"):
        rendezvous.first_reachable(["127.0.0.2", "127.0.0.1"], port)


def test_an_error_on_rank_0_is_raised_on_all(monkeypatch):
    sent = []

    def broadcast_bytes(message, root):
        sent[:] = [message] if message else sent
        return sent[0]

    monkeypatch.setattr(extension._C, "mpi_info", lambda: {"nodes": 1})
    monkeypatch.setattr(extension._C, "broadcast_bytes", broadcast_bytes)

    def full(*arguments):
        raise OSError("no port left")

    monkeypatch.setattr(rendezvous, "open_listener", full)
    for rank in (0, 1):
        with pytest.raises(RuntimeError, match="rank 0 could not open the store of the job: no port left"):
            rendezvous.create_store_over_mpi(rank, 2, timedelta(seconds=30))
