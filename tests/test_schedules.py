"""Property tests of the builders and the checker.

The checker must accept every algorithm for any group up to 64 ranks, count, root, operation and tuning, and
reject a dropped step, a wrong rank or a wrong slice.
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


def drop_step(draw, lanes, lane, number, step, size):
    if step.kind == "wait":  # its peer may send nothing, or be ordered via a third rank
        return False
    lanes[lane][number].remove(step)
    if not lanes[lane][number]:
        del lanes[lane][number]
    return True


def swap_peer(draw, lanes, lane, number, step, size):
    if step.peer < 0 or size < 3 or step.kind == "wait":
        return False
    step.peer = (step.peer + draw(st.integers(1, size - 1))) % size
    return True


def shift_slice(draw, lanes, lane, number, step, size):
    by = draw(st.sampled_from([-1, 1]))

    def shifted(a_slice):
        buffer, offset, count, owner = a_slice
        return (buffer, offset + by, count, owner)

    if step.sources and (step.dst is None or draw(st.booleans())):
        which = draw(st.integers(0, len(step.sources) - 1))
        moved, rest = step.sources[which], step.sources
        if moved[1] + by < 0:
            return False
        rest[which] = shifted(moved)
        step.sources = rest
        return True
    if step.dst is None or step.dst[1] + by < 0:
        return False
    step.dst = shifted(step.dst)
    return True


def shorten_message(draw, lanes, lane, number, step, size):
    if step.kind not in ("send", "recv"):
        return False
    buffer, offset, count, owner = step.sources[0] if step.kind == "send" else step.dst
    if count < 2:
        return False
    if step.kind == "send":
        step.sources = [(buffer, offset, count - 1, owner)]
    else:
        step.dst = (buffer, offset, count - 1, owner)
    return True


@every_builder
@pytest.mark.parametrize("mutation", [drop_step, swap_peer, shift_slice, shorten_message])
@settings(quick, max_examples=20)
@given(data=st.data())
def test_broken_schedules_are_caught(collective, algorithm, mutation, data):
    if collective == "barrier" and mutation in (shift_slice, shorten_message):
        return  # a barrier's messages are empty
    # At least two elements per rank, to shift and to shorten.
    group = data.draw(
        groups(collective, algorithm, min_size=3, max_size=8, count=st.integers(24, 400)), label="group"
    )
    draw = data.draw
    victim = draw(st.integers(0, len(group) - 1), label="rank")
    lanes = group[victim].lanes()
    places = [
        (lane, number, position)
        for lane, rounds in enumerate(lanes)
        for number, steps in enumerate(rounds)
        for position in range(len(steps))
    ]
    lane, number, position = draw(st.sampled_from(places), label="lane, round, step")
    step = lanes[lane][number][position]
    if not mutation(draw, lanes, lane, number, step, len(group)):
        return
    group[victim] = group[victim].with_lanes(lanes)
    assert not schedule.check(group).ok


def test_an_error_names_the_place():
    group = [schedule.build("broadcast", "binomial", rank, 2, count=4) for rank in range(2)]
    group[0] = group[0].with_lanes([])
    result = schedule.check(group)
    assert "rank 1, lane 0, round 0, step 0 waits forever to receive from rank 0" in result.error


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


def test_float_reductions_are_never_native_by_default():
    for count in (1, 1000, 1 << 24):
        for collective in REDUCTIONS:
            assert schedule.select(collective, 4, count, "float32", native_exact=True) != "native"
    assert schedule.select("all_reduce", 4, 10, "int64", native_exact=True) == "native"


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
