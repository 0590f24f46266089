"""Replaces Python in tests' jobs: a server (warm.py) runs the program without an import of torch.

Arguments: the replaced Python, the servers' sockets, "--", the program with its arguments. Passes on all that
exec would, forwards signals, and ends like the program. If no server takes the program, this process becomes
Python.
"""

import contextlib
import marshal
import os
import random
import resource
import select
import signal
import socket
import struct
import sys

END = sys.argv.index("--")
PYTHON, *SERVERS = sys.argv[1:END]
ARGUMENTS = sys.argv[END + 1 :]
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def inheritable_files():
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            if os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def send_request(server, files):
    """Whether the server runs the program."""
    mask = os.umask(0)
    os.umask(mask)
    what = {
        "arguments": ARGUMENTS, "environment": dict(os.environ), "folder": os.getcwd(), "files": files,
        "umask": mask, "cores": list(os.sched_getaffinity(0)),
        "executable": os.path.join(os.path.dirname(SERVERS[0]), "python"),
    }  # fmt: skip
    request = marshal.dumps(what)
    socket.send_fds(server, [struct.pack("=I", len(request))], files)
    server.sendall(request)
    return server.recv(1) == b"y"


def wait_for_program(server, parent):
    """Waits for the program's end; if this process's parent ends first, the program must end, too."""

    def forward_signal(number, _):
        with contextlib.suppress(OSError):  # it has ended
            server.send(bytes([number]))

    for number in FORWARDED:
        signal.signal(number, forward_signal)
    answer = b""
    ended = "the process that started it has"
    if server in select.select([server, parent], [], [])[0]:
        ended = "its server has"
        with contextlib.suppress(OSError):
            answer = server.recv(12)
    if len(answer) < 12:
        os.write(2, f"{sys.argv[0]}: ends the program, since {ended} ended\n".encode())
        exit_like(signal.SIGKILL)
    exit_like(struct.unpack("=id", answer)[0])


def exit_like(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written one
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def main():
    server = socket.socket(socket.AF_UNIX)
    files = inheritable_files()
    taken = False
    with contextlib.suppress(OSError):
        parent = os.pidfd_open(os.getppid())
        # At random: ranks must differ in addresses and in the order of sets.
        server.connect(random.choice(SERVERS))
        taken = send_request(server, files)
    if not taken:
        os.execv(PYTHON, [PYTHON, *ARGUMENTS])
    wait_for_program(server, parent)


main()
