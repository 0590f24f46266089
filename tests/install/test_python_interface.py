"""The package at a Python prompt: names, help, Options."""

import datetime
import importlib
import pydoc
import re
import sys

import pytest
import torch
from support.cases import cases

import mpi_backend


def test_dir_has_the_public_names_only():
    assert dir(mpi_backend) == sorted(mpi_backend.__all__)


def test_help_describes_the_public_names_only():
    text = pydoc.plain(pydoc.render_doc(mpi_backend))
    for name in ("class Options(", "dump_flight_log(path:", "empty(*size:", "mpi4py_comm(group:"):
        assert re.search(rf"^    {re.escape(name)}", text, re.MULTILINE), text
    assert "timeout" in text and "__getattr__" not in text and "TYPE_CHECKING" not in text


def test_options_take_keywords_and_show_them():
    options = mpi_backend.Options(timeout=datetime.timedelta(seconds=90), selection="barrier:native")
    assert (options._timeout, options.selection) == (datetime.timedelta(seconds=90), "barrier:native")
    again = eval(repr(options), {"mpi_backend": mpi_backend, "datetime": datetime})
    assert (again._timeout, again.selection) == (options._timeout, options.selection)
    assert mpi_backend.Options()._timeout == datetime.timedelta(minutes=30)


@cases(
    ("keywords", "error", "message"),
    ({"timeout": 5}, TypeError, "timeout=5, expected a datetime.timedelta"),
    ({"timeout": 5.0}, TypeError, "timeout=5.0, expected a datetime.timedelta"),
    ({"timeout": datetime.timedelta(0)}, ValueError, "timeout=0 s, expected 1 ms or more"),
    ({"timeout": datetime.timedelta(-1)}, ValueError, "timeout=-86400 s, expected 1 ms or more"),
    ({"selection": 5}, TypeError, "selection=5, expected a str"),
    ({"selection": "all_reduce:nope"}, ValueError, "Options.selection: in .*nope"),
    ({"selections": ""}, TypeError, "selections"),
)
def test_options_refuse_what_they_cannot_use(keywords, error, message):
    with pytest.raises(error, match=message):
        mpi_backend.Options(**keywords)


def test_the_attribute_refuses_the_same():
    options = mpi_backend.Options(selection="barrier:native")
    with pytest.raises(TypeError, match="selection=None, expected a str"):
        options.selection = None
    with pytest.raises(ValueError, match=r"Options.selection: in .*nope"):
        options.selection = "all_reduce:nope"
    assert options.selection == "barrier:native"


@cases(
    ("keywords", "error", "message"),
    ({"device": "meta"}, ValueError, "device=meta, expected cpu or a device that mpi-gdr serves"),
    ({"dtype": "float32"}, TypeError, "dtype='float32', expected a torch.dtype"),
)
def test_empty_refuses_what_it_cannot_make(keywords, error, message):
    with pytest.raises(error, match=message) as refused:
        mpi_backend.empty(3, **keywords)
    assert "allocate_tensor" not in str(refused.value)
    assert mpi_backend.empty(3, dtype=torch.float64).dtype == torch.float64


def test_without_their_extension_commands_explain_how_to_build_it(monkeypatch):
    """As in a checkout that was updated, but not rebuilt."""
    monkeypatch.setitem(sys.modules, "mpi_backend._tools", None)
    monkeypatch.delitem(sys.modules, "mpi_backend.tools", raising=False)
    with pytest.raises(ImportError, match=r"cannot load the extension of its commands.*rebuild it with"):
        importlib.import_module("mpi_backend.tools")
