"""The table of faults in docs/errors-and-faults.md: rows, their tests, and how it is written.

As a script (`make faults`, about ten minutes): runs everything and writes the table. Status 1: a promise was
broken, or a test did not run. The test suite runs the short interruptions only.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import interruptions
import losses
from testbed import Testbed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errors-and-faults.md"
BEGIN = "<!-- Faults: from here to the next comment, the output of `make faults`. -->"
END = "<!-- End of the faults. -->"


@dataclass(frozen=True)
class Fault:
    what: str
    promise: str
    tests: tuple[str, ...]  # of pytest, below tests/; "unit NAME: TEST" is a C++ test


ENDS, SECURITY = "launch/test_ends.py::", "faults/test_security.py::"
NOTIFICATION = "faults/test_notification.py::"
FAULTS = (
    Fault(
        "another user creates the folder or file of a flight log first",
        "the folder's name is random; folders and files of other users are rejected",
        ("unit trusted_folder: what_another_user_has_planted_is_refused",
         "unit trusted_folder: a_folder_to_which_others_can_write_is_refused"),
    ),
    Fault(
        "a crash with core dumps enabled",
        "the dump excludes shared memory; peers treat the process as ended while it dumps",
        ("unit memory_file: core_dumps_leave_it_out", "unit process_id: a_core_dump_is_seen"),
    ),
    Fault(
        "all ranks of a job on several hosts, or one of them, are suspended",
        "the job continues; a silent rank is reported once after 10 s and lost after 5 minutes",
        ("unit peer_watch: a_job_that_was_stopped_as_a_whole_goes_on",
         "unit peer_watch: a_stopped_process_is_given_up_after_the_silence_only",
         "unit peer_watch: a_silent_host_is_reported_once_and_given_up_later"),
    ),
    Fault(
        "rank 0, which hosts the store, exits normally",
        "groups without it continue",
        (NOTIFICATION + "test_a_group_outlives_the_rank_that_hosts_the_store",),
    ),
    Fault(
        "a rank ends some seconds after the store's host",
        "status 0, no error",
        (NOTIFICATION + "test_the_end_of_a_job_is_not_an_error",),
    ),
    Fault(
        "a malformed record in the store",
        "an error that names the record and the field",
        ("unit fuzz_records: fields_have_types_and_bounds", "unit fuzz_records: proposals",
         "unit fuzz_records: members", "unit fuzz_records: news_of_the_job"),
    ),
    Fault(
        "another program writes notifications, aborts and records to the store",
        "they are ignored, with one warning per host",
        ("unit signed_store: forged_news_is_ignored",
         "unit signed_store: forged_records_do_not_end_or_steer_a_rendezvous",
         SECURITY + "test_an_outsider_of_the_store_neither_ends_nor_steers_a_job"),
    ),
    Fault(
        "the store's host runs out of file descriptors",
        "the limit is raised, or an error names it",
        ("launch/test_descriptors.py",),
    ),
    Fault(
        "torchrun is killed",
        "its ranks report it and end after `MPI_GDR_ORPHAN_GRACE`",
        (ENDS + "test_ranks_whose_torchrun_was_killed_report_it_and_end",),
    ),
    Fault(
        "a group fails on a rank whose process continues",
        "ranks that need it in that group are notified at once",
        (NOTIFICATION + "test_survivors_are_notified_at_once",
         "unit goodbyes: a_failed_group_is_told_and_its_rank_lives_on"),
    ),
    Fault(
        "programs that catch their errors and end with status 0, under mpiexec",
        "every rank writes its flight log, the job's status is not 0, `diagnose` names the first divergence, "
        "even if a log is missing",
        (ENDS + "test_a_failure_without_a_waiter_is_reported",),
    ),
    Fault(
        "one Ctrl-C in a deadlock",
        "the job ends, and so does `Work.wait()`",
        (ENDS + "test_one_interrupt_ends_a_deadlocked_job", ENDS + "test_an_interrupt_ends_a_wait"),
    ),
    Fault(
        "a rank dies while it publishes a notification",
        "later notifications are received",
        ("unit peer_watch: news_that_was_never_written_does_not_hide_the_next",),
    ),
    Fault(
        "many ranks leave at once",
        "all their notifications are received",
        ("unit goodbyes: all_goodbyes_of_a_large_job_are_heard",),
    ),
    Fault(
        "another process changes the size of shared memory",
        "the size is sealed; a file without seals is not mapped",
        ("unit memory_file: the_size_is_final",
         "unit memory_file: a_file_whose_size_may_change_is_not_mapped"),
    ),
    Fault(
        "other hosts connect to a job on one host",
        "MPI listens on the loopback interface only",
        (SECURITY + "test_a_job_of_one_host_listens_on_the_loopback_only",),
    ),
    Fault(
        "`/dev/shm` has 64 MB, some in use by other ranks of the job",
        "no false warning",
        ("unit bootstrap: shared_memory_that_other_ranks_of_the_job_have_taken_is_not_missing",),
    ),
    Fault(
        "a process initialises again with another rank",
        "results are right",
        (ENDS + "test_a_process_may_initialise_again_with_another_rank",),
    ),
)  # fmt: skip


def matrix() -> dict[str, list[interruptions.Cell]]:
    return {
        one.what: [interruptions.Cell(one, seconds) for seconds in interruptions.SECONDS]
        for one in interruptions.INTERRUPTIONS
    }


def reference(test: str) -> str:
    return "`tests/" + test.replace("unit ", "unit/test_").replace(": ", ".cpp: ") + "`"


PROMISED, NOT_RUN, FAILED = "as expected", "**not run**", "**FAILED**"


def unit_test(test: str) -> tuple[str, str] | None:
    """(file, case) of a C++ test, or None."""
    match = re.fullmatch(r"unit (\w+): (\w+)", test)
    return (f"test_{match[1]}", match[2]) if match else None


def outcome(test: str) -> str:
    if unit := unit_test(test):  # `make faults` runs them first and stops if one fails
        name, case = unit
        text = (ROOT / "tests" / "unit" / f"{name}.cpp").read_text()
        return PROMISED if f"TEST({case})" in text else NOT_RUN
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", str(ROOT / "tests" / test)]
        status = subprocess.run(command, cwd=ROOT).returncode
        return FAILED if status != 0 else PROMISED if all_ran(report.read_text()) else NOT_RUN


def all_ran(report: str) -> bool:
    """Whether pytest's XML report has tests, none of them skipped."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    return bool(cases) and not any(case.find("skipped") is not None for case in cases)


def outcome_of_all(outcomes: Iterable[str]) -> str:
    return max(outcomes, key=(PROMISED, NOT_RUN, FAILED).index)  # the worst


def in_words(seen: interruptions.Seen) -> str:
    if problems := seen.problems():
        return "**" + "; ".join(problems) + "**"
    lines = len(seen.warnings)
    shown = "no warning" if lines == 0 else "1 warning" if lines == 1 else f"{lines} warnings"
    return f"continues after {seen.after:.1f} s, {shown}"


def time_to_notify(measured: losses.Outcome) -> str:
    if problems := measured.problems():
        return "**" + "; ".join(problems) + "**"
    late = measured.seconds > losses.LIMIT
    return f"**{measured.seconds:.1f} s**" if late else f"{measured.seconds:.1f} s"


def table(cells: dict[str, list[str]], losses_seen: dict[str, str], faults: Sequence[str]) -> str:
    lines = [
        "| a healthy job at default settings is interrupted for | "
        + " | ".join(f"{s} s" for s in interruptions.SECONDS)
    ]
    lines[0] += " |"
    lines.append("|---" * (len(interruptions.SECONDS) + 1) + "|")
    lines += [f"| {what} | " + " | ".join(row) + " |" for what, row in cells.items()]
    lines += ["", "| a rank is lost | the last survivor is notified after |", "|---|---|"]
    lines += [f"| {what} | {seen} |" for what, seen in losses_seen.items()]
    lines += ["", "| fault | expected | result | test |", "|---|---|---|---|"]
    for fault, seen in zip(FAULTS, faults, strict=True):
        tests = ", ".join(map(reference, fault.tests))
        lines.append(f"| {fault.what} | {fault.promise} | {seen} | {tests} |")
    return "\n".join(lines)


def parts(page: str) -> tuple[str, str, str]:
    before, rest = page.split(BEGIN)
    inside, after = rest.split(END)
    return before, inside, after


def unit_tests() -> list[str]:
    """The unit-test programs that main() assumes to have passed."""
    units = (unit_test(test) for fault in FAULTS for test in fault.tests)
    return sorted({unit[0] for unit in units if unit})


def main() -> int:
    if sys.argv[1:] == ["--unit-tests"]:
        print(*unit_tests())
        return 0
    with contextlib.ExitStack() as stack:
        rows = matrix()
        every = [cell for row in rows.values() for cell in row]
        bed = Testbed(stack, len(every))
        # One by one, because seconds count.
        measured = {loss: losses.run(bed, loss) for loss in losses.LOSSES}
        seen = interruptions.run_all(bed, every)
    for one in [*measured.values(), *seen]:
        if one.problems():
            print(one.story(), file=sys.stderr)
    cells = {what: [in_words(s) for s in seen if s.cell.interruption.what == what] for what in rows}
    tests = {test: outcome(test) for test in dict.fromkeys(t for fault in FAULTS for t in fault.tests)}
    faults = [outcome_of_all(tests[t] for t in fault.tests) for fault in FAULTS]
    text = table(cells, {str(loss): time_to_notify(one) for loss, one in measured.items()}, faults)
    before, _, after = parts(PAGE.read_text())
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    print(text)
    return int("**" in text)


if __name__ == "__main__":
    sys.exit(main())
