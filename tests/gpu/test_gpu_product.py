"""Every kind of software GPU: hardware queues, waits for flags, memory order. test_gpu.py has one per way."""

import itertools

import pytest
from support import processes, simgpu_build
from test_gpu import DEVICE, GPUS, WAYS, run

MISSING = simgpu_build.missing()
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(MISSING), reason=str(MISSING)),
    pytest.mark.skipif(DEVICE != "simgpu", reason="MPI_GDR_TEST_DEVICE is not simgpu"),
]
KINDS = {
    f"{queues} queues, {'memory operations' if words == '1' else 'flag kernels'}, {memory} memory": {
        "FAKECUDA_QUEUES": queues,
        "FAKECUDA_STREAM_WORDS": words,
        "FAKECUDA_MEMORY": memory,
        "FAKECUDA_SEED": str(seed),
    }
    for seed, (queues, words, memory) in enumerate(
        itertools.product(("1", "8", "32"), "10", ("strong", "weak")), 10
    )
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["test_cuda_peers", "test_software_cuda_device"])
def test_programs(name, kind):
    processes.run([simgpu_build.program(name)], timeout=1800, **KINDS[kind]).expect(0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_ways(tmp_path, way, kind):
    size, gpus, chosen, env = WAYS[way]
    run(tmp_path, size, "-k", chosen, **GPUS[gpus] | KINDS[kind] | env)


# Without MPS the kernels of processes on one GPU take turns.
@pytest.mark.parametrize("kind", KINDS)
def test_time_slices(tmp_path, kind):
    chosen = "(collectives and 1000 and float32) or streams or graphs"
    run(tmp_path, 2, "-k", chosen, FAKECUDA_DEVICES="1", FAKECUDA_SLICE_US="500", **KINDS[kind])
