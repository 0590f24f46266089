"""torch's suite for process-group backends has the results that the lists beside this file give.

passing.txt    (case, number of ranks) that passes
exclusions.txt (case, number of ranks, reason) otherwise: `skipped` with the suite's words, or `failed` with a
part of the error in quotes and a justification
gloo.txt       (case, number of ranks) that Gloo passes in the same runner
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from conformance.job import run_cases

FOLDER = Path(__file__).parent
RANKS = [3, 4]  # torch uses 3 for this suite; a few cases need exactly 4
JOB_SECONDS = 400


class Exclusion(NamedTuple):
    result: str
    text: str


def read_names(file):
    lines = (FOLDER / file).read_text().splitlines()
    pairs = [line.split() for line in lines if line and not line.startswith("#")]
    assert len({name for name, _ in pairs}) == len(pairs), f"{file} names a case twice"
    return {(name, int(ranks)) for name, ranks in pairs}


def read_exclusions():
    found = {}
    for line in (FOLDER / "exclusions.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r'(\w+) (\d+) (?:(skipped): (.+)|(failed): "(.+?)" (.{20,}))', line)
        assert match, f"exclusions.txt: not of the form of its head: {line}"
        name, ranks, skipped, reason, failed, fragment, _ = match.groups()
        assert (name, int(ranks)) not in found, f"exclusions.txt names {name} twice"
        found[name, int(ranks)] = Exclusion(skipped or failed, reason or fragment)
    return found


def test_nothing_that_gloo_passes_is_lost():
    """The suite skips nothing for mpi-gdr that it runs for Gloo, except failures justified in
    exclusions.txt."""
    missing = read_names("gloo.txt") - read_names("passing.txt")
    exclusions = read_exclusions()
    assert {
        case for case in missing if case not in exclusions or exclusions[case].result != "failed"
    } == set()


@pytest.mark.parametrize("ranks", RANKS)
def test_suite(tmp_path, ranks):
    passing = {name for name, r in read_names("passing.txt") if r == ranks}
    excluded = {name: e for (name, r), e in read_exclusions().items() if r == ranks}
    assert not passing & excluded.keys()
    verdicts = run_cases("mpi-gdr", ranks, [*sorted(passing), *sorted(excluded)], tmp_path, JOB_SECONDS)
    problems = []
    for name, verdict in verdicts.cases.items():
        expected = excluded.get(name)
        if verdict.result == "passed" and expected:
            problems.append(f"{name} passes on {ranks} ranks: move it from exclusions.txt to passing.txt")
        elif verdict.result != "passed" and not expected:
            problems.append(f"{name} {verdict.result} on {ranks} ranks:\n{verdict.text}")
        elif expected and verdict.result != expected.result:
            problems.append(f"{name} {verdict.result}, exclusions.txt says {expected}:\n{verdict.text}")
        elif expected and expected.text not in verdict.text:
            problems.append(
                f"{name}: exclusions.txt gives {expected.text!r} as the reason, it is\n{verdict.text}"
            )
    listed = {name for name, _ in read_names("passing.txt") | read_exclusions().keys()}
    problems += [f"{name} is in neither list" for name in verdicts.suite if name not in listed]
    assert not problems, "\n\n".join(problems)
    assert verdicts.jobs == 1


@pytest.mark.full
@pytest.mark.parametrize("ranks", RANKS)
def test_list_of_gloo(tmp_path, ranks):
    names = {name for name, r in read_names("passing.txt") | read_exclusions().keys() if r == ranks}
    verdicts = run_cases("gloo", ranks, sorted(names), tmp_path, JOB_SECONDS)
    assert verdicts.of("passed") == {name for name, r in read_names("gloo.txt") if r == ranks}
