"""In place of Python for jobs of tests: has a server (warm.py) run the program, which need not import torch.

Its arguments are the Python that it stands for, the servers' sockets, "--", and the program with its own
arguments. Hands over all that exec would hand over, passes signals on, and ends as the program ends. Where no
server takes the program, this process becomes the Python.
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
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def inheritable_files():
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            if os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def hand_over(server, files):
    """True if the server runs the program."""
    mask = os.umask(0)
    os.umask(mask)
    request = marshal.dumps(
        {
            "arguments": ARGUMENTS,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "files": files,
            "umask": mask,
            "cores": list(os.sched_getaffinity(0)),
            "executable": os.path.join(os.path.dirname(SERVERS[0]), "python"),
        }
    )
    socket.send_fds(server, [struct.pack("=I", len(request))], files)
    server.sendall(request)
    return server.recv(1) == b"y"


def stand_for_it(server, parent):
    """Until the program has ended, or this process's parent has: the program shall end then, too."""

    def pass_on(number, _):
        with contextlib.suppress(OSError):  # it has ended
            server.send(bytes([number]))

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    answer = b""
    ended = "the process that started it has"
    if server in select.select([server, parent], [], [])[0]:
        ended = "its server has"
        with contextlib.suppress(OSError):
            answer = server.recv(4)
    if len(answer) < 4:
        os.write(2, f"{sys.argv[0]}: ends the program, since {ended} ended\n".encode())
        end_as(signal.SIGKILL)
    end_as(struct.unpack("=i", answer)[0])


def end_as(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left one
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
        # By chance: ranks shall not all have the same addresses and the same order of sets.
        server.connect(random.choice(SERVERS))
        taken = hand_over(server, files)
    if not taken:
        os.execv(PYTHON, [PYTHON, *ARGUMENTS])
    stand_for_it(server, parent)


main()
