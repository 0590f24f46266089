// State and queries, none of which starts MPI.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>

#include "common/env.hpp"
#include "common/error.hpp"
#include "transport/mpi/mpi_network.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {

State& state() {
  static auto* s = new State;
  return *s;
}

bool mpi_is_initialized() {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

bool mpi_is_finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

namespace {

std::string library_text() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string lines(text);
  std::replace(lines.begin(), lines.end(), '\t', ' ');
  return lines;
}

// The rest of the line after `head`, trimmed; empty: no such line.
std::string line_after(const std::string& lines, std::string_view head) {
  std::size_t begin = lines.find(head);
  if (begin == std::string::npos) return {};
  begin = lines.find_first_not_of(' ', begin + head.size());
  const std::size_t end = lines.find('\n', begin);
  return begin == std::string::npos || begin == end ? "" : lines.substr(begin, end - begin);
}

}  // namespace

std::string library_version() {
  const std::string lines = library_text();
  return lines.substr(0, lines.find('\n'));
}

const char* thread_level_name(int level) {
  if (level == MPI_THREAD_SINGLE) return "single";
  if (level == MPI_THREAD_FUNNELED) return "funneled";
  if (level == MPI_THREAD_SERIALIZED) return "serialized";
  return level == MPI_THREAD_MULTIPLE ? "multiple" : "unknown";
}

MpiFamily MpiNetwork::family() {
#ifdef MPI_ABI_VERSION
  return library_version().starts_with("Open MPI") ? MpiFamily::OpenMpi : MpiFamily::Mpich;
#elif defined(OPEN_MPI)
  return MpiFamily::OpenMpi;
#else
  return MpiFamily::Mpich;
#endif
}

NetworkInfo MpiNetwork::info() const {
  const State& s = state();
  NetworkInfo i;
  i.version = library_version();
  Dl_info where{};
  if (::dladdr(reinterpret_cast<void*>(&MPI_Get_library_version), &where) && where.dli_fname)
    i.path = where.dli_fname;
#ifdef MPI_ABI_VERSION
  i.abi = "MPI standard ABI";
#else
  i.abi = family() == MpiFamily::OpenMpi ? "Open MPI" : "MPICH ABI";
#endif
  int major = 0, minor = 0;
  MPI_Get_version(&major, &minor);
  i.device = line_after(library_text(), " Device:");  // MPICH and MVAPICH only
  i.standard = std::to_string(major) + "." + std::to_string(minor);
  if (mpi_is_initialized() && !mpi_is_finalized()) {
    int level = 0, length = 0;
    char processor[MPI_MAX_PROCESSOR_NAME] = "";
    if (MPI_Query_thread(&level) == MPI_SUCCESS) i.thread_level = thread_level_name(level);
    if (MPI_Get_processor_name(processor, &length) == MPI_SUCCESS) i.processor = processor;
    i.initialized_by = s.started_by_us ? "mpi-gdr" : "another library in this process";
  }
  if (s.ready.load(std::memory_order_acquire)) {
    i.bootstrap = s.bootstrap;
    i.rank = s.rank;
    i.size = s.size;
    const auto members = membership();
    const std::vector<int>& nodes = members->node_of_rank;
    i.node = nodes[static_cast<std::size_t>(s.rank)];
    i.nodes = 1 + *std::max_element(nodes.begin(), nodes.end());
    i.rank_on_node = static_cast<int>(std::count(nodes.begin(), nodes.begin() + s.rank, i.node));
    i.ranks_on_node = static_cast<int>(std::count(nodes.begin(), nodes.end(), i.node));
  }
  return i;
}

MpiNetwork& network() {
  static auto* n = new MpiNetwork;
  return *n;
}

extern "C" __attribute__((visibility("default"))) Network* mpi_gdr_network(void* mpi) {
  state().handle = mpi;
  return &network();
}

bool MpiNetwork::started() const { return state().ready.load(std::memory_order_acquire); }
const char* MpiNetwork::failure() const noexcept { return state().failure.load(std::memory_order_acquire); }
void MpiNetwork::mark_failed(const char* why) noexcept {
  const char* none = nullptr;
  state().failure.compare_exchange_strong(none, why, std::memory_order_acq_rel);
}
std::shared_ptr<const Membership> MpiNetwork::membership() const {
  const std::lock_guard lock(state().members_mutex);
  return state().members;
}

void MpiNetwork::on_abort(std::function<void(const std::string&)> announce) {
  if (state().pmi) state().pmi->on_abort(std::move(announce));
}

std::string MpiNetwork::explain_launcher_mismatch(int ranks) const {
  return mpi_gdr::explain_launcher_mismatch(family(), Env::get().bootstrap, library_version(), ranks);
}

std::vector<std::string> MpiNetwork::summary() const {
  const NetworkInfo i = info();
  std::ostringstream how;
  how << "started by " << i.initialized_by << ", bootstrap " << i.bootstrap << ", thread level "
      << i.thread_level << ", " << i.nodes << " node(s), rank " << i.rank_on_node << " of " << i.ranks_on_node
      << " on node " << i.node;
  return {i.version + " (" + i.path + ", " + i.abi + ", MPI " + i.standard + ")", how.str()};
}

void raise(int code, const std::string& operation) {
  network().mark_failed("a call of the MPI library failed");
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  fail(ErrorCode::System, "rank ", state().rank, ": ", operation, " failed: ",
       length ? std::string(text, static_cast<std::size_t>(length)) : "error code " + std::to_string(code));
}

}  // namespace mpi_gdr::mpi
