"""A Slurm cluster on this machine: a controller, which is also the login node, and nodes with slurmd.

Controller and nodes each have their own namespaces (network, host name, PID, /dev/shm), connected by a bridge
in the controller's network namespace. All share this machine's file system. Several clusters can coexist,
because they use no global names. A cluster ends with the process that created it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support import namespaces, processes
from support.namespaces import Namespaces

COMMANDS = ("slurmctld", "slurmd", "srun", "munged")
PMIX = Path("/usr/lib/x86_64-linux-gnu/pmix2/lib")
INSTALL = "tests/slurm/install.sh"
NODES = ("n1", "n2", "n3", "n4")
KILLED_NODE = "n4"  # a test kills it
CPUS = 6  # per node, as configured in Slurm; limits the number of concurrent jobs
START_SECONDS = 40
# Slurm's times in seconds.
KILL_WAIT = 3  # from SIGTERM to SIGKILL
NODE_TIMEOUT = 20  # until a silent node is down
CREDENTIAL = 10  # a requeued job waits until its credential has expired

CONF = """\
ClusterName=tests
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire={credential}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdTimeout={node_timeout}
KillWait={kill_wait}
InactiveLimit=0
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
NodeName=n[1-4] CPUs={cpus} RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
PartitionName=rest Nodes=n[3-4] MaxTime=INFINITE State=UP
"""


def why_unavailable() -> str:
    """Missing requirements; "" if none."""
    if missing := [name for name in COMMANDS if not shutil.which(name, path=search_path())]:
        return f"needs {', '.join(missing)}: {INSTALL}"
    if not PMIX.exists():
        return f"needs {PMIX}: {INSTALL}"
    return namespaces.why_unavailable()


def search_path() -> str:
    return f"{processes.BIN}:/usr/sbin:/usr/bin:/sbin:/bin"


def address(place: int) -> str:
    """Address of node `place`, from 1; 0: the controller."""
    return f"10.77.0.{place + 1}"


class Cluster:
    """Context manager; `folder` holds its state and its users' files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[str, Namespaces] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as stack:
            self._write_files()
            self._login = stack.enter_context(Namespaces("ctl", self._setup_of_controller()))
            for place, name in enumerate(NODES, 1):
                self.nodes[name] = stack.enter_context(Namespaces(name, self._setup_of_node(name)))
                self._connect(name, place)
            self._start_daemons()
            self._wait_until_idle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    # ---- starting -----------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        for name in ("state", "log", "node", *(f"spool/{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True)
        times = {"kill_wait": KILL_WAIT, "node_timeout": NODE_TIMEOUT, "credential": CREDENTIAL}
        (self.folder / "slurm.conf").write_text(CONF.format(folder=self.folder, cpus=CPUS, **times))
        # No cgroups are used, but slurmd must know their version, which it cannot detect in a node's /sys.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        # Slurm's PMIx plugin loads a name that only Debian's development package has.
        shutil.copytree(PMIX, self.folder / "pmix", symlinks=True)
        (self.folder / "pmix" / "libpmix.so").symlink_to("libpmix.so.2")
        (self.folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={self.folder}/node\n")  # each node's own
        names = ["ctl", *NODES]
        lines = ["127.0.0.1 localhost", *(f"{address(place)} {name}" for place, name in enumerate(names))]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        (self.folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # none: fails fast
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)

    def _setup_of_controller(self) -> str:
        bridge = f"ip link add br0 up type bridge && ip addr add {address(0)}/24 dev br0"
        return f"{self._setup()} && {bridge}"

    def _setup_of_node(self, name: str) -> str:
        # UCX searches /sys for its network devices.
        memory = "mount -t tmpfs -o size=1g tmpfs /dev/shm && mount -t sysfs sysfs /sys"
        return f"{self._setup()} && {memory} && mount --bind {self.folder}/spool/{name} {self.folder}/node"

    def _setup(self) -> str:
        mounts = {"hosts": "/etc/hosts", "resolv.conf": "/etc/resolv.conf", "pmix": PMIX}
        binds = [f"mount --bind {self.folder}/{name} {path}" for name, path in mounts.items()]
        return " && ".join(["ip link set lo up", *binds])

    def _connect(self, name: str, place: int) -> None:
        node = self.nodes[name]
        self._login.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", node.pid)
        self._login.ip("link", "set", name, "master", "br0", "up")
        node.ip("addr", "add", f"{address(place)}/24", "dev", "eth0")
        node.ip("link", "set", "eth0", "up")

    def _start_daemons(self) -> None:
        """Each daemon ends with its namespaces."""
        file = {name: f"--{name}={self.folder}/munge.{end}" for name, end in MUNGE_FILES.items()}
        self._daemon(self._login, "munged", "--foreground", "--force", *file.values())
        processes.wait_until((self.folder / "munge.sock").exists, START_SECONDS)
        self._daemon(self._login, "slurmctld", "-D")
        for name, node in self.nodes.items():
            self._daemon(node, "slurmd", "-D", "-N", name)

    def _daemon(self, where: Namespaces, *words: str) -> None:
        """Starts a daemon. Its parent exits immediately, so that the namespaces' init adopts it."""
        with open(self.folder / "log" / "output", "ab") as output:
            command = [*where.enter(), "sh", "-c", '"$@" &', "sh", *words]
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            environment = self._environment()
            subprocess.run(command, env=environment, check=True, timeout=START_SECONDS, **streams)

    def _wait_until_idle(self) -> None:
        def states() -> set[str]:
            return set(self.ask("sinfo", "-h", "-o", "%t").split())

        if not processes.wait_until(lambda: states() == {"idle"}, START_SECONDS):
            raise RuntimeError(
                f"the nodes are not idle, but {states()}; Slurm's messages:\n{self.messages()}"
            )

    def messages(self) -> str:
        logs = sorted((self.folder / "log").iterdir())
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    # ---- using --------------------------------------------------------------------------------------------

    def _environment(self, **variables: str) -> dict[str, str]:
        conf = str(self.folder / "slurm.conf")
        home = {"PATH": search_path(), "HOME": str(self.folder), "SLURM_CONF": conf}
        return processes.clean_environment(**{**home, **variables})

    def start(self, words: Sequence[str | Path], cwd: Path, **variables: str) -> processes.Program:
        """Starts a command on the login node with a login shell's environment."""
        change = ["sh", "-c", 'cd "$0" && exec "$@"', str(cwd)]  # entering namespaces changes to their root
        return processes.Program(
            [*self._login.enter(), *change, *map(str, words)], self._environment(**variables)
        )

    def ask(self, *words: str) -> str:
        """Output of a Slurm command; "" if it fails."""
        with self.start(words, self.folder) as program:
            result = program.finish(15)
        return result.output if result.status == 0 else ""

    def kill_node(self, name: str) -> None:
        """Kills all processes of a node, as a power failure does."""
        self.nodes.pop(name).__exit__()

    # ---- what is left -------------------------------------------------------------------------------------

    def shared_memory(self) -> list[str]:
        found = [Path(node.inside("/dev/shm")) for node in self.nodes.values()]
        return sorted(
            f"{name}: {path.name}"
            for name, folder in zip(self.nodes, found, strict=True)
            for path in folder.iterdir()
        )

    def processes(self) -> list[str]:
        """The nodes' processes other than slurmd."""
        found = []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                space = os.readlink(f"/proc/{pid}/ns/pid")
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                for name, node in self.nodes.items():
                    if space == os.readlink(f"/proc/{node.pid}/ns/pid") and words[0] not in OWN:
                        found.append(f"{name}: {' '.join(words)[:200]}")
        return found


MUNGE_FILES = {"socket": "sock", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
OWN = ("sh", "cat", "slurmd", "")  # "": a zombie
