#include "bootstrap/pmi_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "bootstrap/shared_memory.hpp"
#include "bootstrap/watchdog.hpp"
#include "common/error.hpp"
#include "common/exit_status.hpp"
#include "common/quiet_thread.hpp"

namespace mpi_gdr {
namespace {

constexpr std::size_t kMaxLine = 1 << 16;
// vallen_max is even: MPICH splits long values by (max-2)/2 when it puts and by (max-1)/2 when it gets.
constexpr const char* kMaxes = "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024";
constexpr std::size_t kMaxKey = 64, kMaxValue = 1024;
constexpr std::string_view kMaxesOfLauncher = "cmd=maxes ", kValueLimit = "vallen_max=";
constexpr long kLongestCommand = 1024, kBesideValue = 128;
constexpr char kFinalizeAck[] = "cmd=finalize_ack rc=0\n";

// The field `key` of "cmd=put kvsname=x key=k value=v w"; the last field, `value`, may contain blanks.
std::string field(const std::string& line, const std::string& key) {
  std::size_t at = line.rfind(key + "=", 0) == 0 ? 0 : line.find(" " + key + "=");
  if (at == std::string::npos) return "";
  at = line.find('=', at) + 1;
  return line.substr(at, key == "value" ? std::string::npos : line.find(' ', at) - at);
}

// `text` comes from another rank and becomes part of a line to the MPI library: it must not end that line.
const std::string& checked(const std::string& text, std::size_t most) {
  if (text.size() > most || text.find_first_of(std::string_view("\n\0", 2)) != std::string::npos)
    fail(ErrorCode::Remote, "a rank's values for MPI: '", shown(text), "' has ", text.size(),
         " bytes, expected one line of at most ", most);
  return text;
}

// Lowers the value limit in the launcher's answer to get_maxes; other texts pass. Short answers arrive whole.
std::string with_smaller_limit(std::string text) {
  const std::size_t limit = text.find(kValueLimit);
  if (!text.starts_with(kMaxesOfLauncher) || limit == text.npos || text.back() != '\n') return text;
  const std::size_t digits = limit + kValueLimit.size();
  const long announced = std::atol(text.c_str() + digits);
  if (announced > kLongestCommand || announced <= 2 * kBesideValue) return text;
  return text.replace(digits, text.find_first_of(" \n", digits) - digits,
                      std::to_string(announced - kBesideValue));
}

// Used by the fork handler of the child, which may only make system calls.
int shielded_fd = -1;
dev_t shielded_device;
ino_t shielded_inode;

void shield_in_child() {
  struct stat now{};
  if (shielded_fd < 0 || ::fstat(shielded_fd, &now) != 0 || now.st_dev != shielded_device ||
      now.st_ino != shielded_inode)
    return;  // the MPI library closed it, and the number may be the application's now
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    ::close(shielded_fd);
    return;
  }
  // Answers in advance the only command that the child sends, "finalize" at exit; pair[1] stays open for it.
  const ssize_t written = ::write(pair[1], kFinalizeAck, sizeof kFinalizeAck - 1);
  (void)written;
  ::dup3(pair[0], shielded_fd, O_CLOEXEC);
  ::close(pair[0]);
}

PmiServer* exit_server = nullptr;

}  // namespace

void shield_pmi_from_forks(int fd) {
  struct stat now{};
  if (::fstat(fd, &now) != 0 || !S_ISSOCK(now.st_mode)) return;
  const bool first = shielded_fd < 0;
  shielded_fd = fd;
  shielded_device = now.st_dev;
  shielded_inode = now.st_ino;
  if (first) ::pthread_atfork(nullptr, nullptr, shield_in_child);
}

PmiServer& PmiServer::start(PmiServerOptions options) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    fail(ErrorCode::System, "socketpair for the PMI server: ", std::strerror(errno));
  auto* server = new PmiServer(std::move(options), pair[0], pair[1]);  // leaked
  shield_pmi_from_forks(server->client_);
  exit_server = server;
  std::atexit([] { exit_server->finish_at_exit(); });
  quiet_thread("mpigdr-pmi", [server] {
    server->options_.launcher >= 0 ? server->relay() : server->serve();
    ::shutdown(server->server_, SHUT_RDWR);  // the library must not wait for an answer
  }).detach();
  return *server;
}

PmiServer::PmiServer(PmiServerOptions options, int client, int server)
    : options_(std::move(options)), client_(client), server_(server), pid_(::getpid()) {
  if (options_.process_mapping) values_["PMI_process_mapping"] = *options_.process_mapping;
}

void PmiServer::on_abort(std::function<void(const std::string&)> announce) {
  const std::lock_guard lock(announce_mutex_);
  announce_ = std::move(announce);
}

void PmiServer::finish_at_exit() {
  if (::getpid() != pid_) return;
  // MPICH calls exit() when MPI_Init fails.
  if (in_init_.load(std::memory_order_acquire)) unlink_mpich_shared_memory();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (int unread = 1; unread > 0 && std::chrono::steady_clock::now() < limit; ::usleep(1000)) {
    const std::unique_lock<std::mutex> idle(
        busy_, std::try_to_lock);  // a barrier may hold it for longer than `limit`
    if (idle && ::ioctl(server_, FIONREAD, &unread) != 0) return;
  }
}

void PmiServer::serve() {
  std::string pending;
  char buffer[4096];
  for (;;) {
    pollfd ready{server_, POLLIN, 0};
    const bool init = in_init_.load(std::memory_order_acquire);
    const int n = ::poll(&ready, 1, init ? 500 : -1);
    if (n == 0 && init) watch_for_abort();
    if (n <= 0) continue;
    std::lock_guard<std::mutex> busy(busy_);
    const ssize_t got = ::recv(server_, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;  // the MPI library closed its end
    pending.append(buffer, static_cast<std::size_t>(got));
    for (std::size_t end; (end = pending.find('\n')) != std::string::npos;) {
      const std::string reply = answer(pending.substr(0, end));
      pending.erase(0, end + 1);
      if (!reply.empty()) {
        const std::string text = reply + "\n";
        if (::send(server_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
          return;  // the MPI library closed its end
      }
    }
    if (pending.size() > kMaxLine) {
      report(options_.rank, "the MPI library sent a PMI line of more than 64 KiB; the PMI server stops");
      return;
    }
  }
}

void PmiServer::relay() {
  const int ends[] = {server_, options_.launcher};
  const auto pass = [&](int from) {
    const std::lock_guard<std::mutex> busy(busy_);
    char buffer[4096];
    const ssize_t got = ::recv(ends[from], buffer, sizeof buffer, 0);
    if (got <= 0) return got < 0 && errno == EINTR;
    std::string text(buffer, static_cast<std::size_t>(got));
    if (from == 1) text = with_smaller_limit(std::move(text));
    return ::send(ends[1 - from], text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  };
  for (bool both = true; both;) {
    pollfd ready[] = {{server_, POLLIN, 0}, {options_.launcher, POLLIN, 0}};
    if (::poll(ready, 2, -1) <= 0) continue;
    for (const int from : {0, 1})
      if (both && ready[from].revents) both = pass(from);
  }
}

std::string PmiServer::answer(const std::string& line) {
  const std::string command = field(line, "cmd");
  if (command == "init") {
    if (field(line, "pmi_version") != "1") return "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1";
    return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1";
  }
  if (command == "get_maxes") return kMaxes;
  if (command == "get_appnum") return "cmd=appnum rc=0 appnum=0";
  if (command == "get_my_kvsname") return "cmd=my_kvsname rc=0 kvsname=" + options_.kvsname;
  if (command == "get_universe_size") return "cmd=universe_size rc=0 size=" + std::to_string(options_.size);
  if (command == "put") {
    const std::string key = field(line, "key"), value = field(line, "value");
    values_[key] = value;
    fresh_.insert(fresh_.end(), {key, value});
    return "cmd=put_result rc=0 msg=success";
  }
  if (command == "get") {
    const auto found = values_.find(field(line, "key"));
    if (found == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown";
    return "cmd=get_result rc=0 msg=success value=" + found->second;
  }
  if (command == "barrier_in") {
    barrier();
    return "cmd=barrier_out rc=0";
  }
  if (command == "finalize") return std::string(kFinalizeAck, sizeof kFinalizeAck - 2);
  if (command == "abort") abort_job(line);
  return "cmd=" + (command.empty() ? "unknown" : command) + "_result rc=-1 msg=not_supported";
}

void PmiServer::barrier() {
  const bool init = in_init_.load(std::memory_order_acquire);
  const Deadline deadline =
      init ? options_.init_deadline : std::chrono::steady_clock::now() + options_.later_timeout;
  const std::string key = options_.prefix + "/barrier" + std::to_string(barriers_++);
  try {
    for (const auto& blob :
         rendezvous(*options_.store, key, options_.rank, options_.size, pack(fresh_), deadline)) {
      RecordReader record("a rank's values for MPI", blob);
      while (record.more()) {
        const std::string name = checked(record.text("key"), kMaxKey);
        values_[name] = checked(record.text("value"), kMaxValue);
      }
    }
  } catch (const std::exception& e) {
    if (init) {
      // MPICH returns no error code to the caller of MPI_Init, so the process reports the error and ends.
      report(options_.rank, std::string("MPI_Init cannot continue: ") + e.what());
      unlink_mpich_shared_memory();
      ::_exit(kExitStuck);
    }
  }
  fresh_.clear();
}

void PmiServer::watch_for_abort() {
  try {
    const auto text = options_.store->try_get(options_.abort_key);
    if (!text) return;
    report(options_.rank, "another rank called MPI_Abort during MPI_Init: " + shown(*text));
    unlink_mpich_shared_memory();
    ::_exit(1);
  } catch (const std::exception&) {
    // A caller that needs the store reports its failure; MPI_Init may succeed without it.
  }
}

void PmiServer::abort_job(const std::string& line) {
  // In PMI, MPI_Abort returns and the launcher ends the job; this server acts as the launcher.
  const std::string code_text = field(line, "exitcode");
  int code = std::atoi(code_text.c_str()) & 0xff;
  if (code == 0) code = 1;
  const std::string text =
      "rank " + std::to_string(options_.rank) + " called MPI_Abort with code " + code_text;
  report(options_.rank, text);
  run_apart("mpigdr-abort", [this, text] {
    std::unique_lock lock(announce_mutex_);
    const auto announce = announce_;
    lock.unlock();
    announce ? announce(text) : options_.store->set(options_.abort_key, text);
  }).wait_for(std::chrono::seconds(3));
  unlink_mpich_shared_memory();
  ::_exit(code);
}

}  // namespace mpi_gdr
