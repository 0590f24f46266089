"""Interrupted commands that start jobs: one line, a shell's exit status, and no remains of the job."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from support.cases import cases
from support.processes import clean_environment, wait_until

pytestmark = pytest.mark.long
MARK = "FIRST_DAY_JOB"  # in the environment of a command and its descendants


def environments(mark):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_text(errors="replace")
        except OSError:
            continue
        if f"{MARK}={mark}" in text:
            found.append(text)
    return found


@cases(
    ("words", "number", "status"),
    (("selftest", "-n", "2"), signal.SIGINT, 130),
    (("tune", "-n", "2", "--out", "{folder}/table"), signal.SIGINT, 130),
    (("demo",), signal.SIGINT, 130),
    (("bench", "-n", "2", "all_reduce"), signal.SIGINT, 130),
    (("bench", "-n", "2", "all_reduce", "--compare", "gloo"), signal.SIGINT, 130),
    (("selftest", "-n", "2"), signal.SIGTERM, 143),
)
def test_a_signal_ends_command_and_job(tmp_path, words, number, status):
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "mpi_backend", *(word.format(folder=tmp_path) for word in words)]
    with (tmp_path / "output").open("w+") as output:
        # Shells start background programs with SIGINT ignored.
        default_sigint = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        default_sigint |= {"env": clean_environment(**{MARK: mark}), "start_new_session": True}
        process = subprocess.Popen(command, stdout=output, stderr=output, **default_sigint)
        try:
            assert wait_until(lambda: sum("PMI_RANK=" in text for text in environments(mark)) >= 2)
            time.sleep(1)  # during or after the import of torch
            os.killpg(process.pid, number)  # as a terminal does
            assert process.wait(60) == status
            assert wait_until(lambda: not environments(mark), 10)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        text = output.read()
    of_launcher = re.search("YOUR APPLICATION|Ctrl-C", text)
    assert "Traceback" not in text and not of_launcher, text
    if number == signal.SIGINT:
        assert text.splitlines()[-1] == f"mpi-gdr {words[0]}: interrupted", text
        assert text.count("interrupted") == 1, text


STARTS_A_JOB = """
from mpi_backend import child_job
child_job.mpi_gdr = lambda *words: ["sleep", "300"]
child_job.run([])
"""


def test_a_job_that_prints_nothing_ends_with_a_command_that_was_killed():
    mark = uuid.uuid4().hex
    environment = clean_environment(**{MARK: mark})
    with subprocess.Popen([sys.executable, "-c", STARTS_A_JOB], env=environment) as process:
        assert wait_until(lambda: len(environments(mark)) == 2)
        time.sleep(0.2)  # until the second one is `sleep`
        process.kill()
    assert wait_until(lambda: not environments(mark), 10)
