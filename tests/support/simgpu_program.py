"""Checks simgpu's promises in one process, because torch allows one such device per process.

Runs all functions check_*, here and in simgpu_streams.py, except those named by arguments.
"""

import ctypes
import io
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
import torch
from fakecuda import simgpu
from torch import nn

from support import simgpu_build, simgpu_streams
from support.simgpu_streams import DEVICES, SLOW, on_device


def check_operators():
    torch.manual_seed(1)
    a, b = torch.randn(6, 5), torch.randn(5, 4)
    x, y = a.to("simgpu"), b.to("simgpu")

    def expect(device, host):
        assert device.device.type == "simgpu"
        torch.testing.assert_close(device.cpu(), host)

    expect(x @ y, a @ b)
    expect(x.mean(), a.mean())
    expect(torch.cat([x, x[:2]]), torch.cat([a, a[:2]]))
    expect(x[x > 0], a[a > 0])
    expect(x.nonzero(), a.nonzero())
    expect(x.sort(dim=1).indices, a.sort(dim=1).indices)
    expect(x.unfold(0, 2, 2), a.unfold(0, 2, 2))
    expect(x.to(torch.bfloat16), a.to(torch.bfloat16))
    expect(torch.view_as_complex(x[:, :4].reshape(6, 2, 2).contiguous()).conj() * 2,
           torch.view_as_complex(a[:, :4].reshape(6, 2, 2).contiguous()).conj() * 2)  # fmt: skip
    expect(torch.nn.functional.conv1d(x[None], y.t()[:, None, :3].expand(4, 6, 3)),
           torch.nn.functional.conv1d(a[None], b.t()[:, None, :3].expand(4, 6, 3)))  # fmt: skip
    expect(torch.view_as_complex(x[:, :2].contiguous()).conj().imag, -a[:, 1])
    expect(torch.add(x, 1, out=torch.empty(0, device="simgpu")), a + 1)
    kept = on_device([1.0, 2.0])
    kept.resize_(4)[2:] = 3
    expect(kept, torch.tensor([1.0, 2, 3, 3]))
    kept.untyped_storage().resize_(0)
    kept.untyped_storage().resize_(16)
    kept.fill_(1)
    expect(kept, torch.ones(4))
    assert torch.equal(x, x.clone()) and x.sum().item() == x.sum().cpu().item()
    torch.manual_seed(2)
    drawn = torch.randn(7, device="simgpu")
    torch.manual_seed(2)
    expect(drawn, torch.randn(7))
    for wrong in (lambda: x @ x, lambda: x + x[:, :3], lambda: x[7]):
        with pytest.raises((RuntimeError, IndexError)):
            wrong()


def check_training_gives_what_the_host_gives():
    def train(device):
        torch.manual_seed(3)
        layers = (nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
        model = nn.Sequential(*layers).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for step in range(5):
            inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(step)).to(device)
            labels = (inputs.sum(dim=1) > 0).long()
            if device == "simgpu":
                simgpu.sleep(10)
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        return [*(loss.cpu() for loss in losses), *(p.detach().cpu() for p in model.parameters())]

    torch.testing.assert_close(train("simgpu"), train("cpu"))


def check_several_devices():
    if DEVICES == 1:
        return
    near, far = torch.zeros(5, device="simgpu:0"), torch.zeros(5, device="simgpu:1")
    with torch.simgpu.device(1):
        assert torch.empty(1, device="simgpu").device.index == torch.simgpu.current_device() == 1
    assert torch.simgpu.current_device() == 0
    simgpu.fill_later(near, 1, SLOW)
    far.copy_(near)
    near.fill_(2)
    assert far.tolist() == [1] * 5 and near.tolist() == [2] * 5
    simgpu.fill_later(far, 3, SLOW)
    ready = torch.Event("simgpu:1")
    ready.record(torch.simgpu.current_stream("simgpu:1"))
    ready.wait(torch.simgpu.current_stream("simgpu:0"))
    assert (near + 1).device.index == 0 and (far + 1).device.index == 1
    torch.simgpu.synchronize("simgpu:0")
    assert ready.query() and far.tolist() == [3] * 5


def check_forked_children_get_an_error():
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        return
    try:
        os._exit(7 if torch.simgpu._is_in_bad_fork() and not torch.simgpu.is_available() else 1)
    finally:
        os._exit(2)


def check_storages_travel():
    file = io.BytesIO()
    torch.save(on_device([1.0, 2.0]), file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded.device.type == "simgpu" and loaded.tolist() == [1, 2]
    file.seek(0)
    assert torch.load(file, map_location="cpu").tolist() == [1, 2]


def check_graphs():
    given, result = on_device([1.0]), on_device([0.0])
    side, graph = torch.Stream(), simgpu.Graph()
    with simgpu.graph(graph):
        stream = simgpu.current_stream()
        between = torch.empty(1, device="simgpu")
        address = between.data_ptr()
        between.copy_(given)
        event = torch.Event(device="simgpu")
        event.record()
        with side:  # joins the capture by waiting
            event.wait()
            result.copy_(between)
            event.record()
        event.wait()
        for refused in (stream.query, side.synchronize, event.query, result.item):
            with pytest.raises(RuntimeError, match="captur"):
                refused()
    del between
    assert stream.query() and result.item() == 0
    for value in (3.0, 4.0):
        given.fill_(value)
        graph.replay()
        others = [torch.empty(1, device="simgpu") for _ in range(20)]
        assert result.item() == value and address not in [other.data_ptr() for other in others]
    graph.reset()
    with stream:
        assert torch.empty(1, device="simgpu").data_ptr() == address
    with pytest.raises(RuntimeError, match="unjoined"), simgpu.graph(graph):
        event.record()
        with side:
            event.wait()
            result.zero_()
    result.fill_(5)
    assert result.item() == 5


def check_the_library_for_the_backend():
    assert simgpu.device_library() == simgpu.device_library() != 0
    folder = simgpu_build.compiled().parent
    exported = ctypes.CDLL(str(folder / "libmpi_gdr_cuda.so")).mpi_gdr_device_library
    exported.restype = ctypes.c_void_p
    answers = [exported(interface) for interface in range(-1, 100)]
    assert answers.count(simgpu.device_library()) == 1 and answers.count(None) == 100 and answers[0] is None
    assert torch.Stream(device="simgpu").native_handle


def check_failures_are_raised():
    """Runs last: the device stays broken."""
    index = on_device([99])
    with pytest.raises((RuntimeError, IndexError), match="index out of range"):
        torch.zeros(3, device="simgpu").index_select(0, index)
        simgpu.synchronize()


if __name__ == "__main__":
    failed = []
    for name, check in {**vars(simgpu_streams), **globals()}.items():
        if not name.startswith("check_") or name.removeprefix("check_") in sys.argv[1:]:
            continue
        try:
            check()
        except Exception:
            traceback.print_exc()
            failed.append(name)
        else:
            print(f"passed: {name}", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
