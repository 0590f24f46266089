#include "bootstrap/launch_mode.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "bootstrap/host.hpp"
#include "bootstrap/shared_memory.hpp"
#include "common/error.hpp"
#include "common/record.hpp"

namespace mpi_gdr {
namespace {

bool has(const char* variable) { return std::getenv(variable) != nullptr; }

int number(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value <= 1 << 30 ? static_cast<int>(value) : -1;
}

const char* pmi_launcher_name() {
  if (has("PALS_RANKID")) return "Cray PALS";
  if (has("SLURM_PROCID")) return "srun";
  if (has("I_MPI_HYDRA_BOOTSTRAP") || has("I_MPI_MPIRUN")) return "mpirun (Intel)";
  if (has("MVP_COMM_WORLD_LOCAL_RANK") || has("MV2_COMM_WORLD_LOCAL_RANK")) return "mpirun_rsh";
  return "mpiexec";
}

// A process that a rank spawned inherits the value of PMI_FD but not the descriptor.
bool pmi_descriptor_is_open() {
  return !has("PMI_FD") || (number("PMI_FD") >= 0 && ::fcntl(number("PMI_FD"), F_GETFD) != -1);
}

std::string launch_command(int size) {
  const std::string n = std::to_string(size);
  return "`mpirun -n " + n + " python script.py` or `mpi-gdr run -n " + n + " script.py`";
}

// The launcher whose variables this process has, whichever MPI it starts; "": none.
std::string launcher_in_environment() {
  if (has("OMPI_COMM_WORLD_RANK")) return "the mpirun of Open MPI";
  if ((has("PMI_RANK") || has("PMI_ID")) && !has("SLURM_PROCID"))
    return std::string("the ") + pmi_launcher_name() + " of an MPI of the MPICH family";
  if (has("SLURM_PROCID")) return "srun with an --mpi type that this MPI does not support";
  return has("PMIX_NAMESPACE") ? "a PMIx launcher" : "";
}

// Valid for both families: a plain `mpirun` may again be the wrong one.
std::string own_launch_command(int size) {
  const std::string n = std::to_string(size);
  std::string text = "Start with `mpi-gdr run -n " + n + " script.py`, which uses the launcher of this MPI";
  if (has("SLURM_PROCID")) text += ", or with `srun --mpi=pmix` or `--mpi=pmi2`";
  return text;
}

std::string describe(const std::optional<Launcher>& launcher) {
  if (!launcher) return "none";
  return launcher->name + " (rank " + std::to_string(launcher->rank) + ", size " +
         (launcher->size < 0 ? "unknown" : std::to_string(launcher->size)) + ")";
}

bool launcher_covers(const std::vector<Proposal>& proposals) {
  const int size = static_cast<int>(proposals.size());
  std::vector<bool> seen(proposals.size(), false);
  for (const Proposal& p : proposals) {
    if (p.initialised) continue;
    if (!p.launcher || (p.launcher->size != -1 && p.launcher->size != size)) return false;
    const int r = p.launcher->rank;
    if (r < 0 || r >= size || seen[static_cast<std::size_t>(r)]) return false;
    seen[static_cast<std::size_t>(r)] = true;
  }
  return true;
}

// True for containers on one host: launchers treat them as one node, and MPI would wait for ever.
bool containers_divide_a_host(const std::vector<Proposal>& proposals) {
  std::map<std::string, std::string> identity_of_host;
  for (const Proposal& p : proposals)
    if (identity_of_host.emplace(p.host.substr(0, p.host.rfind('|')), p.host).first->second != p.host)
      return true;
  return false;
}

BootstrapMode mode_of(const std::string& text) {
  if (const auto mode = named<BootstrapMode>(text)) return *mode;
  fail(ErrorCode::Remote, "a rank's bootstrap record: bootstrap mode is '", shown(text),
       "', expected auto, launcher or store");
}

}  // namespace

std::optional<Launcher> find_launcher(MpiFamily family) {
  const bool open_mpi_launcher = number("OMPI_COMM_WORLD_RANK") >= 0 && number("OMPI_COMM_WORLD_SIZE") > 0;
  if (open_mpi_launcher) {
    // Its PMIx daemon cannot start an MPI of the MPICH family; our PMI server can, under any launcher.
    if (family == MpiFamily::Mpich) return std::nullopt;
    return Launcher{"mpirun (Open MPI)", number("OMPI_COMM_WORLD_RANK"), number("OMPI_COMM_WORLD_SIZE")};
  }
  // An MPICH-family MPI without PMIx aborts under a PMIx launcher; our PMI server starts it.
  const bool speaks_pmix = family == MpiFamily::OpenMpi || ::dlsym(RTLD_DEFAULT, "PMIx_Init");
  if (has("PMIX_NAMESPACE") && number("PMIX_RANK") >= 0 && speaks_pmix)
    return Launcher{has("SLURM_PROCID") ? "srun (PMIx)" : "PMIx launcher", number("PMIX_RANK"), -1};
  // Open MPI up to version 4 uses Slurm's PMI-2, but not hydra's.
  if (family == MpiFamily::OpenMpi && !has("SLURM_PROCID")) return std::nullopt;
  if (number("PMI_RANK") >= 0 && number("PMI_SIZE") > 0) {
    if (!pmi_descriptor_is_open()) return std::nullopt;
    return Launcher{pmi_launcher_name(), number("PMI_RANK"), number("PMI_SIZE")};
  }
  if (has("PMI_PORT") && number("PMI_ID") >= 0)
    return Launcher{pmi_launcher_name(), number("PMI_ID"),
                    std::max(number("MVP_COMM_WORLD_SIZE"), number("MV2_COMM_WORLD_SIZE"))};
  // Cray's PMI reads Slurm's rank and a file of the job step, and sets no PMI_RANK.
  const bool cray = has("PALS_APID") || has("PALS_APINFO") || has("PMI_SHARED_SECRET");
  if (cray && number("PALS_RANKID") >= 0) return Launcher{"Cray PALS", number("PALS_RANKID"), -1};
  if (cray && number("SLURM_PROCID") >= 0 && has("SLURM_STEP_NUM_TASKS"))
    return Launcher{"srun (Cray PMI)", number("SLURM_PROCID"), number("SLURM_STEP_NUM_TASKS")};
  return std::nullopt;
}

std::string explain_launcher_mismatch(MpiFamily family, BootstrapMode request, const std::string& mpi_version,
                                      int size) {
  const std::string settle = "set MASTER_ADDR and MASTER_PORT to rank 0's host and a free port there";
  if (size == 1) return "";
  if (request == BootstrapMode::Store) return "MPI_GDR_BOOTSTRAP=store needs a store: " + settle;
  const auto launcher = find_launcher(family);
  if (launcher && (launcher->size == -1 || launcher->size == size)) return "";
  const std::string found = launcher_in_environment();
  const std::string ranks = "these " + std::to_string(size) + " ranks", mpi = "(" + mpi_version + ")";
  std::string text =
      found.empty() ? "no launcher that this MPI can use " + mpi + " started " + ranks
      : !has("OMPI_COMM_WORLD_RANK") && !pmi_descriptor_is_open()
          ? "the launcher's connection (PMI_FD) is closed: a rank or a wrapper started this process"
          : ranks + " were started by " + found + ", which cannot start the MPI that mpi-gdr uses " + mpi;
  text += ". " + own_launch_command(size);
  if (family == MpiFamily::Mpich) text += ", or " + settle + ": MPI then starts over torch's store";
  return text;
}

Proposal propose(MpiFamily family, BootstrapMode request) {
  Proposal p;
  p.request = request;
  p.launcher = find_launcher(family);
  p.elastic = has("TORCHELASTIC_RUN_ID");
  p.host = host_identity();
  p.namespaces = namespaces();
  p.nonce = random_nonce();
  p.shared_memory = free_shared_memory();
  return p;
}

std::string serialise(const Proposal& p) {
  const Launcher none;
  const Launcher& l = p.launcher ? *p.launcher : none;
  return pack({p.error, std::string(name(p.request)), l.name, std::to_string(l.rank), std::to_string(l.size),
               p.elastic ? "1" : "0", p.initialised ? "1" : "0", p.host, p.namespaces, p.nonce, p.mpi_version,
               p.process.host, std::to_string(p.process.domain), std::to_string(p.process.pid),
               std::to_string(p.process.started), p.shared_memory ? std::to_string(*p.shared_memory) : ""});
}

Proposal parse_proposal(const std::string& text) {
  constexpr int kMostRanks = 1 << 30;
  RecordReader record("a rank's bootstrap record (is the same version of mpi-gdr on all nodes?)", text);
  Proposal p;
  p.error = record.text("error");
  p.request = mode_of(record.text("bootstrap mode"));
  Launcher launcher;
  launcher.name = record.text("launcher");
  launcher.rank = record.number("launcher's rank", -1, kMostRanks);
  launcher.size = record.number("launcher's size", -1, kMostRanks);
  if (!launcher.name.empty()) p.launcher = launcher;
  p.elastic = record.flag("elastic");
  p.initialised = record.flag("initialised");
  p.host = record.text("host");
  p.namespaces = record.text("namespaces");
  p.nonce = record.text("nonce");
  if (p.nonce.size() > 16 || p.nonce.find_first_not_of("0123456789abcdef") != std::string::npos)
    fail(ErrorCode::Remote, "a rank's bootstrap record: nonce is '", shown(p.nonce),
         "', expected up to 16 hexadecimal digits");  // part of file names and keys
  p.mpi_version = record.text("MPI's version");
  p.process.host = record.text("host's name");
  p.process.domain = record.number<std::uint64_t>("domain");
  p.process.pid = record.number<std::int64_t>("pid", 0, kMaxPid);
  p.process.started = record.number<std::uint64_t>("start time");
  if (!record.blank()) p.shared_memory = record.number<std::uint64_t>("shared memory");
  record.end();
  return p;
}

Bootstrap decide(MpiFamily family, const std::vector<Proposal>& proposals) {
  const int size = static_cast<int>(proposals.size());
  bool elastic = false, initialised = false;
  for (int r = 0; r < size; ++r) {
    const Proposal& p = proposals[static_cast<std::size_t>(r)];
    if (!p.error.empty()) fail(ErrorCode::Remote, "rank ", r, " cannot start MPI: ", p.error);
    if (p.request != proposals[0].request)
      fail(ErrorCode::InvalidUsage, "MPI_GDR_BOOTSTRAP is '", name(p.request), "' on rank ", r, " and '",
           name(proposals[0].request), "' on rank 0; it must be the same on all ranks");
    if (p.mpi_version != proposals[0].mpi_version)
      fail(ErrorCode::InvalidUsage, "rank ", r, " loaded '", p.mpi_version, "' and rank 0 '",
           proposals[0].mpi_version,
           "'; all ranks must load the same MPI library: check LD_LIBRARY_PATH on all nodes");
    elastic = elastic || p.elastic;
    initialised = initialised || p.initialised;
  }
  const BootstrapMode request = proposals[0].request;
  const bool covered = launcher_covers(proposals);
  if (initialised) {
    // That MPI was started by a launcher or is a single rank; the other ranks must join it the same way.
    if (!covered)
      fail(ErrorCode::InvalidUsage,
           "MPI was initialised before init_process_group on some ranks only, and the others were not "
           "started by the "
           "same MPI launcher. Import mpi4py.MPI on all ranks or after init_process_group");
    return Bootstrap::Launcher;
  }
  if (request == BootstrapMode::Launcher) {
    if (covered) return Bootstrap::Launcher;
    for (int r = 0; r < size; ++r) {
      const auto& launcher = proposals[static_cast<std::size_t>(r)].launcher;
      if (!launcher || launcher->size != size)
        fail(ErrorCode::InvalidUsage, "MPI_GDR_BOOTSTRAP=launcher, but rank ", r,
             " finds this MPI launcher in its environment: ", describe(launcher), "; expected size ", size,
             ". Start with ", launch_command(size), ", or unset MPI_GDR_BOOTSTRAP");
    }
    fail(ErrorCode::InvalidUsage, "MPI_GDR_BOOTSTRAP=launcher, but two ranks have the same launcher rank");
  }
  const bool divided = family == MpiFamily::Mpich && containers_divide_a_host(proposals);
  if (request == BootstrapMode::Auto && covered && !elastic && !divided) return Bootstrap::Launcher;
  if (size == 1) return Bootstrap::Singleton;
  if (const std::string found = launcher_in_environment();
      family == MpiFamily::OpenMpi && !found.empty() && !elastic)
    fail(ErrorCode::InvalidUsage, "the MPI of this process is Open MPI, and these ", size,
         " ranks were started by ", found, ", which cannot start it. ", own_launch_command(size));
  if (family == MpiFamily::OpenMpi)
    fail(ErrorCode::InvalidUsage, "Open MPI can only be started by its own launcher, and these ", size,
         " ranks were ",
         elastic ? std::string("started by torchrun")
                 : "started without it (launcher on rank 0: " + describe(proposals[0].launcher) + ")",
         ". Start with ", launch_command(size), "; torchrun and spawn need an MPI of the MPICH ABI");
  return Bootstrap::Store;
}

}  // namespace mpi_gdr
