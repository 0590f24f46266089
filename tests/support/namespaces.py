"""Linux namespaces that simulate a machine, so that its faults affect only the ranks of one test."""

from __future__ import annotations

import os
import shutil
import subprocess

TOOLS = ("ip", "unshare", "nsenter", "mount", "hostname")


def why_unavailable() -> str:
    if os.geteuid() != 0:
        return "making namespaces needs root"
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        return f"needs {', '.join(missing)}"
    if subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False).returncode:
        return "this root may not make namespaces"
    return ""


class Namespaces:
    """A context manager. The first process in the namespaces is a shell, which reaps orphans. The shell ends
    when its input closes, also if the process of the tests dies, and all processes inside end with it."""

    def __init__(self, name: str, setup: str) -> None:
        kinds = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        hold = "exec 3<&0 && { cat <&3 >&2 & } && wait $!"
        command = ["unshare", *kinds, "sh", "-c", f"hostname {name} && {setup} && echo up && {hold}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        # Ctrl-C must reach only the tests; __exit__() ends the shell.
        self._holder = subprocess.Popen(command, start_new_session=True, **pipes)
        first_line = self._holder.stdout.readline()
        children = f"/proc/{self._holder.pid}/task/{self._holder.pid}/children"
        with open(children) as file:
            self.pid = file.read().split()[0] if first_line else ""
        if not first_line:
            self.__exit__()
            raise RuntimeError(f"could not set up the namespaces of {name}")

    def inside(self, path: str) -> str:
        """Returns the path, as seen from outside, of the file at the absolute path `path` inside."""
        return f"/proc/{self.pid}/root{path}"

    def enter(self, *kinds: str) -> list[str]:
        """Prefix of a command that runs inside."""
        return ["nsenter", "-t", self.pid, *(kinds or ("-n", "-u", "-i", "-m", "-p")), "--"]

    def ip(self, *words: str) -> None:
        subprocess.run([*self.enter("-n"), "ip", *words], check=True, timeout=20)

    def __enter__(self) -> Namespaces:
        return self

    def __exit__(self, *exception: object) -> None:
        self._holder.kill()  # its child ends, too
        self._holder.wait()
        self._holder.stdin.close()
        self._holder.stdout.close()
