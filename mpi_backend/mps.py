"""`mpi-gdr run --mps`: an MPS control daemon of the job's own, on this node, for as long as the job runs.

Without MPS the kernels of processes that share a GPU take turns; with it they run side by side.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
SECONDS = 30  # for the daemon to start, and to end
FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}


class MpsError(Exception):
    """The daemon cannot be had; the message is for the user."""


def run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """The exit status of `command`, negative for a signal, run beside a daemon. Raises MpsError, or OSError
    if the command cannot be started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where a parent has left it ignored, statuses are lost
    awaited = {*FORWARDED, signal.SIGCHLD}
    # From here on no signal ends this process: it must live to stop the daemon.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        with daemon(env, before) as found:
            process = subprocess.Popen(list(command), env={**env, **found}, preexec_fn=unblock(before))
            while process.poll() is None:
                received = signal.sigwaitinfo(awaited)
                # What a process sent goes on to the command; what a terminal sent has reached it already.
                if received.si_signo != signal.SIGCHLD and received.si_code <= 0:
                    process.send_signal(received.si_signo)
        return process.returncode
    finally:
        while signal.sigtimedwait(awaited, 0) is not None:
            pass  # what came late was for the command, too
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock(mask: Iterable[int]) -> Callable[[], object]:
    """For a child: a blocked signal would stay blocked in the program that it becomes."""
    return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def daemon(env: Mapping[str, str], mask: Iterable[int] = ()) -> Iterator[dict[str, str]]:
    """The variables by which the ranks find the daemon, which runs inside the block; `mask`: the signals that
    are blocked in it. Raises MpsError."""
    if shutil.which(CONTROL, path=env.get("PATH")) is None:
        raise MpsError(f"--mps: {CONTROL} is not on PATH; it comes with NVIDIA's driver")
    # Not in TMPDIR: the daemon makes sockets there, whose paths may have 107 characters.
    folder = tempfile.mkdtemp(prefix="mpi-gdr-mps-", dir="/tmp")
    found = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    own = {**env, **found}
    # With indices here the daemon would number the GPUs anew, and those of the ranks would mean others. Names
    # mean the same everywhere.
    if any(entry.strip().isdecimal() for entry in env.get("CUDA_VISIBLE_DEVICES", "").split(",")):
        del own["CUDA_VISIBLE_DEVICES"]
    try:
        try:
            control(own, mask, "-d")
            yield found
        finally:
            stop(own, mask, Path(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def control(env: Mapping[str, str], mask: Iterable[int], *arguments: str, say: str = "") -> None:
    """Runs the control program. Raises MpsError with what it wrote."""
    command = [CONTROL, *arguments]
    # Output into a file: the daemon keeps what it inherits, and a pipe would stay open.
    with tempfile.TemporaryFile("w+") as output:
        try:
            process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=unblock(mask),
                start_new_session=True,  # Ctrl-C is for the ranks: they end better while the daemon is there
            )
            process.communicate(say, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise MpsError(f"--mps: `{' '.join(command)}` took longer than {SECONDS} s") from None
        except OSError as error:
            raise MpsError(f"--mps: cannot start {CONTROL}: {error.strerror}") from None
        if process.returncode != 0:
            output.seek(0)
            text = " ".join(output.read().split()) or "no output"
            raise MpsError(f"--mps: `{' '.join(command)}` ended with {process.returncode}: {text}")


def stop(env: Mapping[str, str], mask: Iterable[int], folder: Path) -> None:
    """By its own command; if that does not work, by its process id. A daemon that did not start has none."""
    pid_file = folder / f"{CONTROL}.pid"
    try:
        control(env, mask, say="quit\n")
    except MpsError:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(pid_file.read_text()), signal.SIGKILL)


def end_like(status: int) -> int:
    """As a process that became the launcher would have ended: by the same signal, if it was one."""
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        return 128 - status  # this one does not end a process
    return status
