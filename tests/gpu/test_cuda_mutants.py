"""Software GPUs that omit something are detected: each fence, barrier and volatile access of the kernels,
each wait of a stream for a flag or an event, and each write of a flag, one at a time, on the weakest memory
that PTX allows. All with --full, otherwise ten."""

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import mutants, simgpu_build
from support.spmd import run_spmd
from test_gpu import GPUS, WAYS

MISSING = simgpu_build.missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))

# Undetected, but harmless: the kernel reads these once, after the lane's Wait for their writers
# (execution/device/peer_execution.cpp), and a wait leaves nothing stale in the cache. A rank that fails
# announces it before its device continues.
READ_ONCE = "behind a wait, and once"
HARMLESS = {f"volatile {k} of resolve_kernel": READ_ONCE for k in range(4)}
# Ten places, some of each kind, that these cases detect quickly.
SOON = (
    "every_fold_gives_the_bits_of_the_host", "flags_by_kernels", "carried_from_the_device",
    "peers_by_memory_operations", "group_memory_by_memory_operations",
)  # fmt: skip
TEN = (
    "fence 0 of wait_kernel",
    "fence 0 of write_kernel",
    "barrier 8 of fold_resolved_kernel of reduce_floats",
    "volatile 2 of wait_kernel",
    "stream_wait peer_rounds.hpp: queue.wait_flag(&node->notices(node->rank(), slot, peer), stamp(n), "
    "replays);",
    "stream_wait stream_execution.cpp: if (host_before > awaited) queue.wait_flag(flags_.host(lane), "
    "flags_.base + host_before);",
    "flag_write peer_execution.cpp: queue.write_flag(&words[0].value, shown_input_);",
    "flag_write stream_execution.cpp: caller.write_flag(flags_.start(), flags_.base + 1);",
    "event peer_execution.cpp: device.order(caller, queue);",
    "event stream_execution.cpp: for (std::size_t q = 0; q < used; ++q) device.order(caller, *queues[q]);",
)


def test_what_is_left_out_is_noticed(tmp_path, pytestconfig):
    programs = mutants.build()
    full = pytestconfig.getoption("--full")
    cases, limits = mutants.come_to(programs, tmp_path, mutants.CASES if full else SOON, 20 if full else 5)
    ptx = mutants.ptx_places()
    assert not full or set(ptx) <= set(cases), "no test comes to some of the PTX"
    host = {place: mutants.host_place(programs[mutants.HOST], place) for place in cases}
    named = {place: ptx.get(place) or host[place] for place in cases}
    assert not full or len(named) >= 120
    chosen = {place: name for place, name in named.items() if name not in HARMLESS and (full or name in TEN)}
    assert full or len(chosen) == 10
    with ThreadPoolExecutor(3) as pool:  # they mostly wait
        ends = pool.map(lambda place: mutants.outcome(programs, place, cases[place], limits), chosen)
        found = dict(zip(chosen, ends, strict=True))
    for place, end in found.items():
        print(f"{chosen[place]} ({place}): {end or 'NOT NOTICED'}")
    assert [chosen[place] for place, end in found.items() if end is None] == []


def notices(tmp_path, way, timeout, **environment):
    """Errors of tests/gpu/ranks; "" if all pass."""
    size, gpus, chosen, env = WAYS[way]
    reports = tmp_path / f"reports-{time.monotonic()}"
    env = {**env, **GPUS[gpus], "SPMD_DEVICE": "simgpu", "SPMD_GROUP_SECONDS": "15", **environment}
    try:
        run_spmd(reports, "mpi-gdr run", size, "gpu/ranks", "-k", chosen, timeout=timeout, **env)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.full
def test_what_the_rest_of_the_extension_leaves_out_is_noticed(tmp_path):
    (library,) = (simgpu_build.CHECKOUT / "mpi_backend").glob("_C*.so")
    ways, limits = defaultdict(list), {}
    for way in ("two nodes", "by messages", "graphs on four ranks"):
        places_file = tmp_path / way
        began = time.monotonic()
        assert notices(tmp_path, way, 240, FAKECUDA_PLACES=str(places_file)) == ""
        limits[way] = 60 + 3 * (time.monotonic() - began)
        for place in set(places_file.read_text().split()):
            ways[place].append(way)
    named = {place: name for place in ways if (name := mutants.binding_place(library, place))}
    assert len(named) >= 3
    silent = []
    for place, name in sorted(named.items()):
        notice = ""
        for way in ways[place]:
            notice = notice or notices(tmp_path, way, limits[way], FAKECUDA_MUTANT=place)
        print(f"{name} ({place}): {notice[:150] or 'NOT NOTICED'}", flush=True)
        silent += [] if notice else [name]
    assert silent == []
