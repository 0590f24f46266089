"""`mpi-gdr run --mps`: an MPS control daemon on this node for the duration of the job.

Without MPS the kernels of processes that share a GPU take turns; with it they run concurrently.
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
    """The daemon is not available; the message is for the user."""


def run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs `command` beside a daemon; returns its exit status, negative for a signal. Raises MpsError, or
    OSError if the command cannot be started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited SIG_IGN would discard statuses
    awaited = {*FORWARDED, signal.SIGCHLD}
    # Blocked, because this process must live to stop the daemon.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        with daemon(env, before) as found:
            process = subprocess.Popen(list(command), env={**env, **found}, preexec_fn=unblock(before))
            while process.poll() is None:
                received = signal.sigwaitinfo(awaited)
                # Forwards signals that a process sent. The terminal sends its signals to the command, too.
                if received.si_signo != signal.SIGCHLD and received.si_code <= 0:
                    process.send_signal(received.si_signo)
        return process.returncode
    finally:
        while signal.sigtimedwait(awaited, 0) is not None:
            pass  # the command has ended: discards signals that came too late for it
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock(mask: Iterable[int]) -> Callable[[], object]:
    """Returns a preexec_fn that sets `mask`. Without it the child's program inherits the blocked signals."""
    return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def daemon(env: Mapping[str, str], mask: Iterable[int] = ()) -> Iterator[dict[str, str]]:
    """Yields the variables by which ranks find the daemon. `mask`: its signal mask. Raises MpsError."""
    if shutil.which(CONTROL, path=env.get("PATH")) is None:
        raise MpsError(f"--mps: {CONTROL} is not on PATH; it comes with NVIDIA's driver")
    # Not in TMPDIR: paths of the daemon's sockets are limited to 107 characters.
    folder = tempfile.mkdtemp(prefix="mpi-gdr-mps-", dir="/tmp")
    found = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    own = {**env, **found}
    # With a list of indices the daemon renumbers the GPUs, and the ranks' indices select wrong ones.
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


def control(env: Mapping[str, str], mask: Iterable[int], *arguments: str, input_text: str = "") -> None:
    """Runs the control program. Raises MpsError with its output."""
    command = [CONTROL, *arguments]
    # To a file: the daemon inherits the output, so a pipe would stay open.
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
                start_new_session=True,  # Ctrl-C must not end the daemon before the ranks
            )
            process.communicate(input_text, timeout=SECONDS)
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
    """Stops the daemon by its `quit` command. If that fails, kills the process in its pid file, if any."""
    pid_file = folder / f"{CONTROL}.pid"
    try:
        control(env, mask, input_text="quit\n")
    except MpsError:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(pid_file.read_text()), signal.SIGKILL)


def exit_like(status: int) -> int:
    """If a signal ended the launcher, ends this process by the same signal. Else returns the exit status."""
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        return 128 - status  # for signals that do not end a process
    return status
