"""`mpi-gdr doctor`: a node and the network, with facts of working and broken sites."""

from types import SimpleNamespace

from support.cases import cases
from support.sites import (
    ALONE,
    ETHERNET,
    HYDRA,
    INFINIBAND,
    MPICH,
    SRUN,
    WORKS,
    extension,
    found,
    only,
    raise_timeout,
    site,
)

from mpi_backend import descriptors
from mpi_backend.doctor import facts, network, node
from mpi_backend.doctor.findings import GpuFacts

# ---- between the nodes ------------------------------------------------------------------------------------


@cases(
    ("files", "case", "level", "text"),
    (ETHERNET, {}, "good", "ucx; here: eth0"),
    (INFINIBAND, {}, "good", "here: mlx5_0, eth0"),
    (ETHERNET, {"network": None}, "not known", "does not report"),
    (ETHERNET, {"network": "ofi"}, "remark", "sockets"),
    (ETHERNET, {"network": "ofi", "env": {"FI_PROVIDER": "sockets"}}, "remark", "sockets"),
    (ETHERNET, {"network": "ofi", "env": {"FI_PROVIDER": "tcp"}}, "good", "ofi"),
    (ETHERNET, {"network": "ofi", "mpi": MPICH | {"library": "Intel(R) MPI"}}, "good", "ofi"),
    (INFINIBAND, {"network": "ofi"}, "good", "ofi"),
    (INFINIBAND, {"env": {"UCX_NET_DEVICES": "mlx5_0:1"}}, "good", "ucx"),
    (ETHERNET, {"env": {"UCX_NET_DEVICES": "all"}}, "good", "ucx"),
    (ETHERNET, {"env": {"FI_VERBS_IFACE": "et"}}, "good", "ucx"),  # a prefix of eth0
)
def test_the_network_of_one_node(tmp_path, files, case, level, text):
    finding = only(network.check_network, tmp_path, files=files, **case)
    assert finding.level == level and text in finding.what


def test_the_network_of_several_nodes(tmp_path):
    def levels(files, folder, **known):
        findings = found(network.check_network, tmp_path / folder, job=SRUN, files=files, **known)
        return [finding.level for finding in findings]

    assert levels(ETHERNET, "a") == ["good", "not known"]
    assert levels({"sys/class/net/lo/operstate": "unknown"}, "b") == ["bad", "not known"]
    assert levels(ETHERNET | {"sys/class/net/eth0/operstate": "down"}, "c")[0] == "bad"
    assert levels(INFINIBAND, "d", network="ofi") == ["not known", "not known"]
    assert levels(ETHERNET, "e", env={"UCX_NET_DEVICES": "ib0"}) == ["bad", "good", "not known"]


def test_this_hosts_name(tmp_path):
    def query(**known):
        return only(network.check_names, tmp_path, **known)

    assert query().level == "good"
    assert query(resolve=lambda name: ("127.0.1.1",)).level == "good"
    assert query(resolve=lambda name: ()).level == "remark"
    assert query(resolve=raise_timeout).level == "not known"
    several = query(job=SRUN, resolve=lambda name: ("127.0.1.1",))
    assert several.level == "remark" and "announces 10.0.0.1" in several.cost
    assert query(job=SRUN, resolve=lambda name: (), outward_addresses=lambda: ()).level == "bad"


def test_names_of_the_allocations_nodes(tmp_path):
    def resolve(name):
        return raise_timeout(name) if name == "n3" else () if name == "n4" else ("10.0.0.1",)

    def query(nodes):
        return found(network.check_names, tmp_path, env={"SLURM_JOB_NODELIST": nodes}, resolve=resolve)[1:]

    assert [f.level for f in query("n[1-2]")] == ["good"]
    unknown, quiet = query("n[1-4]")
    assert unknown.level == "remark" and "1 of 3" in unknown.what and unknown.what.endswith("n4")
    assert quiet.level == "not known" and quiet.what.endswith("n3")
    hosts = tmp_path / "hosts"
    hosts.write_text("n2\nn2\nn4 slots=3\n")
    batch = site(tmp_path, env={"PBS_NODEFILE": str(hosts)})
    assert network.nodes_of_allocation(batch) == ["n2", "n4"]


def test_lists_of_nodes():
    names = ["rack1n03", "rack1n04", "rack1n9", "rack2n03", "rack2n04", "rack2n9", "login"]
    assert network.expand_slurm("rack[1-2]n[03-04,9],login") == names
    assert network.expand_slurm("n[08-11]") == ["n08", "n09", "n10", "n11"]


# ---- a node -----------------------------------------------------------------------------------------------


@cases(
    ("case", "text"),
    ({}, None),
    ({"job": HYDRA._replace(ranks_here=9, size=9)}, "9 ranks here share 8 cores"),
    ({"cpus": frozenset([3])}, None),  # bound: other ranks have other cores
    ({"cpus": frozenset(range(3))}, "4 ranks here share 3 cores"),
    ({"env": {"SLURM_CPUS_ON_NODE": "2"}, "cpus": frozenset([0, 1])}, "4 ranks here share 2 cores"),
    ({"files": {"sys/fs/cgroup/cpu.max": "200000 100000"}}, "quota is 2 cores, for 4 ranks"),
    ({"files": {"sys/fs/cgroup/cpu.max": "max 100000"}}, None),
)
def test_cores(tmp_path, case, text):
    finding = only(node.check_processors, tmp_path, **case)
    assert finding.level == ("remark" if text else "good") and (text or "") in finding.what


def test_threads(tmp_path):
    def query(**known):
        return found(node.check_threads, tmp_path, **{"job": HYDRA, **known})

    assert [f.level for f in query(threads=2)] == ["good"]
    many = query(threads=8)
    assert many[0].level == "remark" and many[0].advice == "OMP_NUM_THREADS=1"
    assert query(threads=8, job=ALONE)[0].level == "good"  # `mpi-gdr run` sets it
    bound = query(extension=extension(bound="bound to processor 3 alone"))
    assert [f.what for f in bound] == ["bound to processor 3 alone"]


@cases(
    ("case", "level"),
    ({}, "good"),
    ({"extension": extension(shared=("/dev/shm has 1024 KiB free", ""))}, "bad"),
    ({"extension": extension(shared=("", "may crash"))}, "remark"),
    ({"shared_memory": None}, "not known"),
    ({"extension": None}, "not known"),
)
def test_shared_memory(tmp_path, case, level):
    assert only(node.check_shared_memory, tmp_path, **case).level == level


def test_locked_memory(tmp_path):
    def level(folder, files, limit):
        return only(node.check_locked_memory, tmp_path / folder, files=files, locked_memory=limit).level

    assert level("a", ETHERNET, 65536) == "good"
    assert level("b", INFINIBAND, 65536) == "remark"
    assert level("c", INFINIBAND, None) == "good"


def test_open_files(tmp_path, monkeypatch):
    assert only(node.check_files, tmp_path).level == "good"
    asked = []
    monkeypatch.setattr(descriptors, "shortage", lambda env: asked.append(env) or "may open 1024 files")
    finding = only(node.check_files, tmp_path, job=ALONE._replace(size=4000))
    assert (finding.level, finding.what) == ("bad", "may open 1024 files")
    assert asked[0].items() >= {"RANK": "0", "WORLD_SIZE": "4000"}.items()  # as on rank 0


FIRST = {f"proc/self/ns/{name}": inode for name, inode in node.FIRST_NAMESPACES.items()}
YAMA = "proc/sys/kernel/yama/ptrace_scope"
STATUS = "proc/self/status"


@cases(
    ("files", "refused", "hidden", "level", "text"),
    ({}, {}, False, "good", "can copy each other's memory"),
    ({YAMA: "0"}, {}, False, "good", "can copy each other's memory"),
    ({YAMA: "1", STATUS: "CapEff:\t0000000000000000"}, {}, False, "remark", "ptrace_scope is 1"),
    ({YAMA: "1", STATUS: "CapEff:\t0000000000080000"}, {}, False, "good", "can copy each other's memory"),
    ({YAMA: "3", STATUS: "CapEff:\t0000000000080000"}, {}, False, "remark", "ptrace_scope is 3"),
    ({}, {"process_vm_readv": "Operation not permitted"}, False, "remark", "seccomp"),
    ({}, {"dumpable": "no"}, False, "remark", "non-dumpable"),
    ({}, {"memfd_create": "Function not implemented"}, False, "remark", "memfd_create fails"),
    ({}, {}, True, "not known", "a PID namespace"),
)
def test_copies(tmp_path, files, refused, hidden, level, text):
    known = {"refused_calls": lambda: WORKS | refused, "launcher_in_other_namespace": lambda: hidden}
    finding = only(node.check_copies, tmp_path, files=files, links=FIRST, **known)
    assert finding.level == level and text in finding.what


def test_copies_that_cannot_be_tried(tmp_path):
    assert only(node.check_copies, tmp_path, refused_calls=lambda: {"memfd_create": ""}).level == "not known"


NETWORK = {"proc/self/ns/net": "net:[1]", "proc/1/ns/net": "net:[1]"}
OWN = FIRST | {"proc/self/ns/pid": "pid:[4026532000]"}


@cases(
    ("links", "case", "level", "text"),
    (FIRST | NETWORK, {}, "good", "the host's"),
    (FIRST, {}, "good", "the host's"),
    (OWN, {}, "good", "a container (pid of its own)"),
    (FIRST | NETWORK | {"proc/1/ns/net": "net:[2]"}, {}, "good", "a container (network of its own)"),
    (OWN, {"job": SRUN}, "not known", "whether the ranks of a node share it"),
    (OWN, {"job": HYDRA, "env": {"PMI_FD": "5"}}, "good", "with its launcher inside"),
    (OWN, {"job": HYDRA, "env": {}}, "not known", "whether the ranks of a node share it"),
    (OWN, {"launcher_in_other_namespace": lambda: True}, "not known", "launcher is in another PID namespace"),
    ({}, {}, "not known", "/proc does not show them"),
)
def test_containers(tmp_path, links, case, level, text):
    finding = only(node.check_namespaces, tmp_path, links=links, **case)
    assert finding.level == level and text in finding.what


def gpus(count, path="on streams of the device", **problems):
    accelerator = {"type": "cuda" if count else None, "count": count, "path": path}
    return lambda: GpuFacts(accelerator, *(problems.get(name) for name in ("shortage", "problem", "queues")))


@cases(
    ("case", "level"),
    ({"gpus": gpus(0)}, "good"),
    ({"gpus": gpus(4), "job": HYDRA}, "good"),
    ({"gpus": gpus(2), "job": HYDRA}, "remark"),
    ({"gpus": gpus(1, "copies through host memory, blocking")}, "remark"),
    ({"gpus": gpus(1, problem="the driver is older than CUDA 12")}, "remark"),
    ({"gpus": gpus(1, shortage="8 ranks on a node do not fit")}, "bad"),
)
def test_gpus(tmp_path, case, level):
    assert only(node.check_gpus, tmp_path, **case).level == level


def test_too_few_hardware_queues(tmp_path):
    text = "CUDA_DEVICE_MAX_CONNECTIONS=1: 7 streams"
    first, second = found(node.check_gpus, tmp_path, gpus=gpus(1, queues=text))
    assert (first.level, first.what, second.level) == ("remark", text, "good")


def test_why_there_is_no_cuda_library(monkeypatch):
    found = {"type": "cuda", "count": 1, "path": "copies through host memory, blocking"}
    monkeypatch.setattr(facts.info, "accelerator", lambda built: found)
    monkeypatch.setattr(facts, "build_info", lambda: {"cuda": None, "no_cuda": "no nvcc found"})
    extension = SimpleNamespace(cuda_info=lambda: {"problem": "not built", "queues": None})
    assert facts.gpus(extension).problem == "no nvcc found"
