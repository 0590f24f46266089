"""A rank that prints the addresses at which it listens, without its launcher's and torch's store's."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct

import torch
import torch.distributed as dist


def sockets(pid: int) -> set[str]:
    links = (os.path.join(f"/proc/{pid}/fd", name) for name in os.listdir(f"/proc/{pid}/fd"))
    targets = (os.readlink(link) for link in links if os.path.lexists(link))
    return {target[len("socket:[") : -1] for target in targets if target.startswith("socket:[")}


def address(text: str) -> str:
    """Converts "0100007F:1F90" of /proc/net/tcp."""
    words, port = text.split(":")
    raw = b"".join(struct.pack("=I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    host = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return f"{host}:{int(port, 16)}"


def listeners(inodes: set[str]) -> list[str]:
    found = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as lines:
            rows = [line.split() for line in lines][1:]
        found += [address(row[1]) for row in rows if row[3] == "0A" and row[9] in inodes]
    return found


dist.init_process_group("mpi-gdr")
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert tensor[0] == dist.get_world_size()
own = sockets(os.getpid()) - sockets(os.getppid())
store = f":{os.environ['MASTER_PORT']}" if "MASTER_PORT" in os.environ else ":-"
mine = [found for found in listeners(own) if not found.endswith(store)]
getenv = ctypes.CDLL(None).getenv  # Python only has the environment at its start
getenv.restype = ctypes.c_char_p
inherited = any(getenv(name) for name in (b"UCX_NET_DEVICES", b"FI_TCP_IFACE", b"FI_SOCKETS_IFACE"))
print("listeners " + json.dumps({"listeners": mine, "inherited": inherited}), flush=True)
dist.barrier()
dist.destroy_process_group()
