"""Property tests of the builders and the checker.

The checker must accept every algorithm for any group up to 64 ranks, count, root, operation and tuning.
tests/unit/test_schedule.cpp breaks each step of small groups, which it must reject.
"""

import os
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpi_backend._tools import schedule

pytestmark = pytest.mark.long

BUILDERS = [(a["collective"], a["name"]) for a in schedule.algorithms() if not a["native"]]
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
UNEVEN = ("all_gather", "reduce_scatter")
OPS = ("sum", "avg", "premul_sum", "product", "min", "max")
MAX_SIZE = 64

quick = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
every_builder = pytest.mark.parametrize(("collective", "algorithm"), BUILDERS)


def counts(size):
    """0, small, around multiples of the group's size, and large."""
    return st.one_of(
        st.integers(0, 3 * size + 1),
        st.sampled_from([size - 1, size, size + 1, 4096 * size - 1, 4096 * size + 65]),
        st.integers(0, 1 << 40),
    )


@st.composite
def groups(draw, collective, algorithm, max_size=MAX_SIZE, min_size=1, count=None):
    """The schedules of all ranks of a group, in rank order."""
    size = draw(st.integers(min_size, max_size))
    how = {
        "count": 0 if collective == "barrier" else draw(counts(size) if count is None else count),
        "dtype": draw(st.sampled_from(["float32", "float16", "float64"])),
        "op": draw(st.sampled_from(OPS)) if collective in REDUCTIONS else "sum",
        "root": draw(st.integers(0, size - 1)) if collective in ROOTED else 0,
        "max_lanes": draw(st.integers(1, 16)),
    }
    if collective in UNEVEN and draw(st.booleans()):
        block = st.one_of(st.just(0), st.integers(0, 1 << 30)) if count is None else count
        how["counts"] = draw(st.lists(block, min_size=size, max_size=size))
    # From one lane and chunk to a few dozen; more would be slower to check. For all_gather and reduce_scatter
    # the count is already one rank's block.
    largest = max(how.get("counts", [how["count"]]))
    how["chunk_bytes"] = max(8, largest * 8 // draw(st.integers(1, 16 if collective in UNEVEN else 4 * size)))
    # A few chunks through shared memory, of which a rank may hold one per other rank.
    how["staging_bytes"] = max(16, largest * 8 * size // draw(st.integers(1, 4)))
    if collective != "all_to_all":
        return [schedule.build(collective, algorithm, rank, size, **how) for rank in range(size)]
    # Few different numbers, including zeros, in an irregular pattern; Bruck's algorithm needs a single one.
    block = st.integers(0, 1 << 30) if count is None else count
    base = draw(st.lists(block, min_size=1, max_size=1 if algorithm == "bruck" else 5))
    # As above, but by block: the count is unused here.
    how["staging_bytes"] = max(16, max(base) * 16 * size // draw(st.integers(1, 4)))
    how["chunk_bytes"] = max(8, max(base) * 8 // draw(st.integers(1, 32)))  # for zero_copy: some are short
    stride = draw(st.integers(1, 7))
    sent = [[base[(stride * a + b) % len(base)] for b in range(size)] for a in range(size)]
    received = [[sent[b][a] for b in range(size)] for a in range(size)]
    return [
        schedule.build(
            collective, algorithm, rank, size, **how, send_counts=sent[rank], recv_counts=received[rank]
        )
        for rank in range(size)
    ]


@every_builder
@quick
@given(data=st.data())
def test_every_builder_is_right(collective, algorithm, data):
    group = data.draw(groups(collective, algorithm))
    result = schedule.check(group)
    assert result.ok, result.error


@every_builder
@quick
@given(data=st.data(), synchronous=st.booleans(), queue=st.booleans(), aliased=st.booleans())
def test_every_mode_by_itself(collective, algorithm, data, synchronous, queue, aliased):
    group = data.draw(groups(collective, algorithm, max_size=12))
    result = schedule.check(group, synchronous_sends=synchronous, device_queue=queue, aliased=aliased)
    assert result.ok, result.error


@every_builder
@quick
@given(data=st.data())
def test_lanes_are_numbered_alike(collective, algorithm, data):
    group = data.draw(groups(collective, algorithm, max_size=16))
    assert len({len(member.lanes()) for member in group}) == 1


def test_a_schedule_is_shown_as_text():
    first, second = (schedule.build("broadcast", "binomial", rank, 2, count=4).lanes() for rank in range(2))
    assert first == [[["send peer 1, sources output[0:4]"]]]
    assert second == [[["recv peer 0 output[0:4]"]]]


# Algorithms with lg p messages per rank: steps for p = 2^n. For larger groups: MPI_GDR_TEST_RANKS=16384
# pytest tests/test_schedules.py -k thousands
LOG_DEPTH = [
    ("all_reduce", "recursive_doubling", lambda n: n),
    ("all_reduce", "rabenseifner", lambda n: 2 * n),
    ("reduce", "rabenseifner", lambda n: 2 * n),
    ("reduce", "binomial", lambda n: n),
    ("broadcast", "binomial", lambda n: n),
    ("gather", "binomial", lambda n: n),
    ("scatter", "binomial", lambda n: n),
    ("barrier", "dissemination", lambda n: n),
]


@pytest.mark.parametrize(
    ("collective", "algorithm", "steps"), LOG_DEPTH, ids=[f"{c}-{a}" for c, a, _ in LOG_DEPTH]
)
def test_thousands_of_ranks(collective, algorithm, steps):
    size = int(os.environ.get("MPI_GDR_TEST_RANKS", "1024"))
    how = {"count": 0 if collective == "barrier" else 1 << 14, "chunk_bytes": 1 << 30}
    group = [schedule.build(collective, algorithm, rank, size, **how) for rank in range(size)]
    result = schedule.check(group)
    assert result.ok, result.error
    if size & (size - 1) == 0:
        assert result.steps == steps(size.bit_length() - 1)


@pytest.mark.parametrize("reach", ["none", "segments", "all"])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 64, 1024])
def test_selection_table_covers_all_bytes(size, reach):
    rows = schedule.selection_ranges(size, reach)
    for collective in {collective for collective, _ in BUILDERS}:
        mine = [row for row in rows if row["collective"] == collective]
        assert mine[0]["from_bytes"] == 0
        assert mine[-1]["to_bytes"] == 2**64 - 1
        for before, after in pairwise(mine):
            assert before["to_bytes"] == after["from_bytes"]
            assert before["algorithm"] != after["algorithm"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"root": 4}, "root=4, expected 0..3"),
        ({"rank": 4}, "rank=4, expected 0..3"),
        ({"op": "mean"}, "op='mean', expected one of: sum"),
        ({"algorithm": "tree"}, "algorithm='tree'"),
        ({"algorithm": "native"}, "algorithm='native' has no schedule"),
        ({"max_lanes": 17}, "max_lanes=17"),
    ],
)
def test_bad_arguments_are_named(wrong, message):
    arguments = {"collective": "all_reduce", "algorithm": "ring", "rank": 0, "size": 4} | wrong
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        schedule.build(**arguments)
