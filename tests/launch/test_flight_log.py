"""Flight logs of real jobs, read by torch's analyzer and by `mpi-gdr diagnose`."""

import argparse
import os
import pickle
import re
import shutil
from pathlib import Path

import pytest
from support import processes
from torch.distributed.flight_recorder.components.builder import build_db
from torch.distributed.flight_recorder.components.loader import read_dir

from mpi_backend import diagnose
from mpi_backend.diagnose.dumps import BadDump, describe_foreign_writers, read_dump

pytestmark = pytest.mark.warm

PROGRAMS = Path(__file__).parent / "programs"
PREFIX = "mpi_gdr_trace_rank_"


def analyze(folder):
    """torch's analyzer's table of collectives for a folder."""
    off = dict.fromkeys(("verbose", "just_print_entries", "allow_incomplete_ranks"), False)
    args = argparse.Namespace(trace_dir=str(folder), prefix=PREFIX, mismatch_cap=10, **off)
    details, version = read_dir(args)
    return build_db(details, args, version).collectives


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "job"
    path.mkdir()
    return path


def run_job(folder, case, **env):
    env.setdefault("MPI_GDR_FLIGHT_DIR", str(folder))
    results = processes.run_apart(3, PROGRAMS / "diverged.py", str(folder), case, timeout=100, **env)
    return [result.expect(0) for result in results]


def diagnosis(folder, capsys, *args):
    return diagnose.main([str(folder), *args]), capsys.readouterr().out


def expect_divergence(folder, capsys, pattern):
    status, text = diagnosis(folder, capsys)
    assert status == 1 and re.search(f"First divergence, rank {pattern}", text), text


def test_a_rank_that_left_out_a_call(folder, capsys):
    outputs = run_job(folder, "skipped")
    for rank in range(2):
        assert f"; flight log: {folder}/{PREFIX}{rank}" in outputs[rank], outputs[rank]

    # Healthy so far: neither reader finds a problem, and torch's matches all calls of the three ranks.
    matched = analyze(folder.parent / "healthy")
    assert len(matched) == 10 and all(c.pass_check and not c.missing_ranks for c in matched), matched
    assert {c.collective_name for c in matched} >= {"gloo:all_reduce", "gloo:all_to_all", "gloo:barrier"}
    status, text = diagnosis(folder.parent / "healthy", capsys)
    assert status == 0 and "No divergence found." in text, text

    bad = [c for c in analyze(folder) if c.missing_ranks or not c.pass_check]
    found = [(c.missing_ranks, c.collective_name, c.collective_seq_id) for c in bad]
    assert found == [({2}, "gloo:all_reduce", 2)]
    assert bad[0].pg_desc.endswith(":the unlucky")
    pattern = r"2: group \S+ \(the unlucky\), seq=2: rank 2 never called all_reduce float32\[3, 5\] op=sum, "
    pattern += r"in which ranks 0, 1 waited; last call of rank 2 on the group: all_gather float32\[3, 5\]"
    expect_divergence(folder, capsys, pattern + " seq=1")

    # The same without the culprit's log.
    (folder / f"{PREFIX}2").unlink()
    status, text = diagnosis(folder, capsys)
    assert status == 1 and "No log from rank 2 of 3." in text, text
    assert "First divergence, rank 2: " in text and "rank 2 wrote no log" in text, text


def test_a_rank_that_called_something_else(tmp_path, capsys):
    """Without MPI_GDR_FLIGHT_DIR the job has one folder, which messages name."""
    outputs = run_job(tmp_path, "other", MPI_GDR_FLIGHT_DIR="", TMPDIR=str(tmp_path))
    folders = {re.search(rf"flight log: (\S+)/{PREFIX}\d", output).group(1) for output in outputs}
    assert len(folders) == 1, folders
    folder = Path(folders.pop())
    assert re.fullmatch(r"mpi_gdr_flight_\d+-\d+-[0-9a-f]{16}", folder.name) and folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700

    first_bad = next(c for c in analyze(folder) if not c.pass_check)
    # The analyzer takes the first log for right: ranks that differ from it are divergent.
    assert set(first_bad.mismatch_collectives) in ({1}, {0, 2})
    pattern = r"1: .*different calls: ranks 0, 2 called all_reduce .*rank 1 called barrier"
    expect_divergence(folder, capsys, pattern)


def test_a_message_that_is_never_received(tmp_path, capsys):
    """Rank 0 writes its log on rank 1's failure, and again on a signal."""
    run_job(tmp_path, "silent")
    assert re.match(r"rank 1 .* has left group ", read_dump(tmp_path / "late_dump")["reason"])
    assert read_dump(tmp_path / f"{PREFIX}0")["reason"] == "signal"
    pattern = r"0: messages of group .*: rank 1 sends 16777216 bytes to rank 0 with tag 5 .*which it never"
    expect_divergence(tmp_path, capsys, pattern + " receives")
    assert all(c.pass_check and not c.missing_ranks for c in analyze(tmp_path))  # it ignores messages


def test_diagnose_refuses_what_is_no_log(tmp_path, capsys):
    assert diagnose.main([str(tmp_path / "nowhere")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    assert diagnose.main([str(tmp_path)]) == 2
    assert f"holds no file {PREFIX}<rank>" in capsys.readouterr().err
    bad = tmp_path / f"{PREFIX}0"
    bad.write_bytes(pickle.dumps(shutil.rmtree))  # classes and functions in a pickle are code
    with pytest.raises(BadDump, match=r"holds shutil\.rmtree, expected plain containers only"):
        read_dump(bad)
    bad.write_bytes(b"\x80\x02}")
    assert diagnose.main([str(tmp_path)]) == 2
    assert "is not a flight log" in capsys.readouterr().err
    bad.write_bytes(pickle.dumps({"entries": [], "backend": "nccl"}))
    with pytest.raises(BadDump, match="use torchfrtrace"):
        read_dump(bad)
    bad.unlink()
    os.mkfifo(bad)  # without a writer
    with pytest.raises(BadDump, match="is not a regular file"):
        read_dump(bad)


def test_diagnose_names_what_others_can_have_written(tmp_path, capsys):
    log = tmp_path / f"{PREFIX}0"
    log.write_bytes(pickle.dumps({"entries": [], "backend": "mpi-gdr"}))
    assert describe_foreign_writers(str(tmp_path)) == []
    tmp_path.chmod(0o1777)
    assert describe_foreign_writers(str(tmp_path)) == [f"other users can write to {tmp_path}"]
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user needs root")
    os.chown(log, 65534, 65534)
    assert describe_foreign_writers(str(tmp_path))[1] == f"other users own {log.name} in {tmp_path}"
    os.chown(tmp_path, 65534, 65534)
    assert describe_foreign_writers(str(tmp_path)) == [f"{tmp_path} belongs to uid 65534"]
    diagnose.main([str(tmp_path)])
    assert "belongs to uid 65534: the logs may have been altered" in capsys.readouterr().err
