"""Software GPUs that leave something out are noticed: each fence, barrier and volatile access of the kernels,
each wait of a stream for a flag or for an event, and each write of a flag, one at a time, where memory is as
weak as PTX allows. With --full all of them, else ten."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from support import mutants, simgpu_build

MISSING = simgpu_build.missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))

# What nothing notices, and why it cannot matter.
HARMLESS: dict[str, str] = {}
# The ten: of each kind, and what is noticed soon.
TEN: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def program():
    return mutants.build()


@pytest.fixture(scope="module")
def come_to(program, tmp_path_factory):
    return mutants.come_to(program, tmp_path_factory.mktemp("places"))


def test_what_is_left_out_is_noticed(program, come_to, pytestconfig):
    cases, limits = come_to
    named = {place: name for place in cases if (name := mutants.host_place(program, place))}
    named |= {place: name for place, name in mutants.ptx_places().items() if place in cases}
    assert len(named) >= 40
    full = pytestconfig.getoption("--full")
    chosen = {place: name for place, name in named.items() if name not in HARMLESS and (full or name in TEN)}
    assert full or len(chosen) == 10
    with ThreadPoolExecutor(3) as pool:  # most of the time they wait
        ends = pool.map(lambda place: mutants.outcome(program, place, cases[place], limits), chosen)
        found = dict(zip(chosen, ends, strict=True))
    for place, end in found.items():
        print(f"{chosen[place]} ({place}): {end or 'NOT NOTICED'}")
    assert [chosen[place] for place, end in found.items() if end is None] == []
