"""A barrier of all ranks over a store that is independent of the tested backend."""

import datetime
import time

import torch.distributed as dist


class StoreBarrier:
    """`folder`: shared by the ranks, for the store's port; `seconds`: until a rank that waits raises."""

    def __init__(self, folder, rank, size, seconds):
        self._size, self._seconds, self._count = size, seconds, 0
        port_file = folder / "port"
        if rank == 0:
            self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            partial = folder / "port.partial"
            partial.write_text(str(self.store.port))
            partial.rename(port_file)
        else:
            deadline = time.monotonic() + seconds
            while not port_file.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            self.store = dist.TCPStore("127.0.0.1", int(port_file.read_text()), is_master=False)

    def wait(self, key=None, seconds=None, passed=True):
        """Whether all ranks have passed. `key`: by default this rank's number of such calls."""
        if key is None:
            self._count += 1
            key = f"barrier{self._count}"
        if not passed:
            self.store.add(f"{key}/failed", 1)
        if self.store.add(f"{key}/arrived", 1) == self._size:
            self.store.set(f"{key}/all", "")
        self.store.wait([f"{key}/all"], datetime.timedelta(seconds=seconds or self._seconds))
        return self.store.add(f"{key}/failed", 0) == 0
