"""Checks what simgpu guarantees about order, streams and memory; run by simgpu_program.py."""

import os
import threading
import time

import torch
from fakecuda import simgpu

# ms: long enough to distinguish "at once" from "after the kernel".
SLOW = 150
POISON = 0xF7
DEVICES = int(os.environ.get("FAKECUDA_DEVICES", "1"))


def poison(dtype):
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.full((size,), POISON, dtype=torch.uint8).view(dtype).item()


def on_device(values, **options):
    return torch.tensor(values, device="simgpu", **options)


def stream_apart():
    """A stream that shares no hardware queue with the current one, if there are several."""
    for _ in range(8):
        side, event = torch.Stream(), torch.Event()
        simgpu.sleep(30)
        event.record(side)
        event.synchronize()
        if not simgpu.current_stream().query():
            break
    simgpu.synchronize()
    return side


class Stopwatch:
    def __enter__(self):
        self.began = time.monotonic()
        return self

    def __exit__(self, *exception):
        self.ms = (time.monotonic() - self.began) * 1e3


def check_torch_has_the_accelerator():
    assert torch.accelerator.current_accelerator() == torch.device("simgpu")
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == DEVICES
    assert torch.accelerator.current_device_index() == torch.simgpu.current_device() == 0
    assert torch.get_device_module("simgpu") is torch.simgpu
    tensor = torch.ones(2, device="simgpu")
    assert tensor.device == torch.device("simgpu", 0) and tensor.is_simgpu and not tensor.is_cpu
    assert repr(tensor) == "tensor([1., 1.], device='simgpu:0')"


def check_kernels_run_later_and_in_order():
    tensor = torch.zeros(1000, device="simgpu")
    torch.accelerator.synchronize()
    with Stopwatch() as issue:
        simgpu.fill_later(tensor, 3, SLOW)
        doubled = tensor * 2
        doubled += 1
        tensor.zero_()
        copied = doubled.clone()
        rows = copied.view(10, 100).sum(dim=1)
    assert issue.ms < SLOW / 2, issue.ms
    assert not simgpu.current_stream().query()
    assert rows.tolist() == [700] * 10  # waits
    assert simgpu.current_stream().query() and tensor.cpu().eq(0).all()


def check_other_streams_do_not_wait():
    tensor, side = torch.zeros(4, device="simgpu"), stream_apart()
    torch.accelerator.synchronize()
    simgpu.fill_later(tensor, 5, SLOW)
    with side, Stopwatch() as read:
        early = tensor.tolist()
    assert read.ms < SLOW / 2 and early == [0] * 4
    torch.accelerator.synchronize()
    assert tensor.tolist() == [5] * 4


def check_events_order_streams():
    tensor = torch.zeros(4, device="simgpu")
    main, side = simgpu.current_stream(), stream_apart()
    event = torch.Event()
    assert event.query()
    event.wait(side)  # without a record
    simgpu.fill_later(tensor, 5, SLOW)
    event.record()
    with Stopwatch() as wait:
        event.wait(side)
    assert wait.ms < SLOW / 2 and not event.query()
    with side:
        assert simgpu.current_stream() == side != main
        assert tensor.tolist() == [5] * 4
    assert simgpu.current_stream() == main
    assert event.query()
    event.synchronize()


def check_an_event_stands_for_its_latest_record():
    first, second, tensor = torch.zeros(3, 4, device="simgpu").unbind()
    side, event = stream_apart(), torch.Event()
    simgpu.fill_later(first, 1, SLOW // 3)
    event.record()
    event.wait(side)  # this record, not later ones
    simgpu.fill_later(second, 2, SLOW)
    event.record()
    with side:
        tensor.copy_(first + second)
        ready = torch.Event()
        ready.record()
    ready.synchronize()
    if os.environ.get("FAKECUDA_QUEUES") != "1":
        assert not event.query()
    event.synchronize()
    assert tensor.tolist() == [1] * 4 and second.tolist() == [2] * 4


def check_events_measure_time():
    begin, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
    begin.record()
    simgpu.sleep(SLOW)
    end.record()
    end.synchronize()
    assert SLOW <= begin.elapsed_time(end) < 20 * SLOW


def check_streams_of_the_pool():
    streams = [torch.Stream() for _ in range(5)]
    assert len({stream.stream_id for stream in streams}) == 5
    assert simgpu.default_stream().stream_id == 0
    assert simgpu.current_stream() == simgpu.default_stream()
    seen = []
    with streams[0]:
        thread = threading.Thread(target=lambda: seen.append(simgpu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [simgpu.default_stream()]  # each thread has its own current stream


def check_memory_is_reused_at_once():
    before = simgpu.allocations()
    tensor = torch.ones(3000, device="simgpu")
    address = tensor.data_ptr()
    simgpu.sleep(SLOW)
    with Stopwatch() as reuse:
        del tensor
        tensor = torch.empty(3000, device="simgpu")
    assert reuse.ms < SLOW / 2 and tensor.data_ptr() == address
    assert tensor.eq(poison(torch.float32)).all().item()
    after = simgpu.allocations()
    assert after.allocated - before.allocated == after.freed - before.freed + 1
    # Another stream gets other memory.
    del tensor
    with torch.Stream():
        assert torch.empty(3000, device="simgpu").data_ptr() != address
    tensor = torch.empty(3000, device="simgpu")
    assert tensor.data_ptr() == address


def check_late_readers_read_poison():
    """A stream reads a freed tensor if a backend neither keeps the tensor nor records the stream."""
    for keep in (False, True):
        main, side = simgpu.current_stream(), stream_apart()
        tensor = torch.ones(100, dtype=torch.uint8, device="simgpu")
        copied = torch.zeros(100, dtype=torch.uint8, device="simgpu")
        side.wait_stream(main)
        with side:
            simgpu.sleep(SLOW)
            copied.copy_(tensor)
        if keep:
            tensor.record_stream(side)
        del tensor
        torch.empty(100, dtype=torch.uint8, device="simgpu").fill_(7)
        torch.accelerator.synchronize()
        expected = [[1], [POISON, 7]][not keep]
        assert copied.unique().tolist()[0] in expected, (keep, copied)


def check_copies():
    host = torch.arange(1000.0)
    device = torch.empty(1000, device="simgpu")
    simgpu.sleep(SLOW)
    with Stopwatch() as issue:
        device.copy_(host, non_blocking=True)
    host.zero_()  # has been read already
    assert issue.ms < SLOW / 2
    back = torch.empty(1000)
    back.copy_(device, non_blocking=True)  # pageable: waits
    assert back.tolist() == list(range(1000))
    # Differing layouts and types.
    turned = device.view(20, 50).t()
    assert torch.equal(turned.cpu(), back.view(20, 50).t())
    assert torch.equal(turned.to(torch.int64).contiguous().cpu(), back.view(20, 50).t().long())
    device.view(20, 50)[:, 1::2] = torch.ones(25).to("simgpu")
    assert device.cpu().view(20, 50)[:, 1::2].eq(1).all()
    # From one stream to another, by event.
    side = torch.Stream()
    simgpu.fill_later(device, 4, SLOW)
    side.wait_stream(simgpu.current_stream())
    with side:
        assert device.clone().eq(4).all()


def check_pinned_memory():
    pinned = torch.empty(1000, pin_memory=True)
    assert pinned.is_pinned() and pinned[10:20].is_pinned() and not torch.empty(3).is_pinned()
    assert torch.ones(3).pin_memory().is_pinned()
    device = torch.zeros(1000, device="simgpu")
    simgpu.fill_later(device, 6, SLOW)
    pinned.fill_(1)
    with Stopwatch() as issue:
        pinned.copy_(device, non_blocking=True)
    early = pinned.tolist()
    assert issue.ms < SLOW / 2 and early == [1] * 1000
    simgpu.synchronize()
    assert pinned.tolist() == [6] * 1000
    # The device reads pinned memory late: it sees the host's later writes.
    simgpu.sleep(SLOW)
    device.copy_(pinned, non_blocking=True)
    pinned.fill_(8)
    assert device.eq(8).all().item()
    # Freed pinned memory is not reused before the device has read it.
    simgpu.sleep(SLOW)
    device.copy_(torch.full((1000,), 9.0).pin_memory(), non_blocking=True)
    torch.empty(1000, pin_memory=True).fill_(10)
    assert device.eq(9).all().item()


def check_allocation_waits_for_the_device():
    tensor = torch.zeros(1, device="simgpu")
    simgpu.synchronize()
    simgpu.fill_later(tensor, 1, SLOW)
    with Stopwatch() as malloc:
        thread = threading.Thread(target=simgpu.malloc_free)
        thread.start()
        time.sleep(SLOW / 4 / 1e3)
        with torch.Stream(), Stopwatch() as submit:  # CUDA calls on any stream block meanwhile
            torch.zeros(1, device="simgpu")
        thread.join()
    assert malloc.ms >= SLOW * 0.9 and submit.ms >= SLOW / 4, (malloc.ms, submit.ms)
    assert simgpu.current_stream().query()
