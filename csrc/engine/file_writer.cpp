#include "engine/file_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "common/quiet_thread.hpp"

namespace mpigdr {
namespace {

// Files of one process are written one after the other.
std::mutex& writing() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::string because(const char* call, const std::string& path) {
  return std::string(call) + " " + path + ": " + std::strerror(errno);
}

// Of a path without its last part; empty if it has only one.
std::string parent(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// For the owner only: texts may name files and hosts.
std::string make_directories(const std::string& path) {
  if (path.empty() || mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return "";
  if (errno != ENOENT) return because("mkdir", path);
  if (std::string problem = make_directories(parent(path)); !problem.empty()) return problem;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? "" : because("mkdir", path);
}

}  // namespace

std::string replace_file(const std::string& path, const std::string& content) {
  if (std::string problem = make_directories(parent(path)); !problem.empty()) return problem;
  // Not like the final name: an analyzer that reads the folder meanwhile must not take it for a log.
  const std::size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  // With the final name: ranks of two hosts that share the folder may have one process number.
  const std::string name = path.substr(folder.size());
  const std::string partial = folder + ".partial-" + name + '-' + std::to_string(getpid()) + "~";
  unlink(partial.c_str());  // of an earlier process of this number
  const int fd = open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return because("open", partial);
  std::string problem;
  for (std::size_t done = 0; done < content.size() && problem.empty();) {
    const ssize_t n = write(fd, content.data() + done, content.size() - done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      problem = because("write", partial);
    }
  }
  if (close(fd) != 0 && problem.empty()) problem = because("close", partial);
  if (problem.empty() && rename(partial.c_str(), path.c_str()) != 0) problem = because("rename to", path);
  if (!problem.empty()) unlink(partial.c_str());
  return problem;
}

FileWriter::Result FileWriter::write(const std::string& path, std::function<std::string()> content,
                                     std::chrono::milliseconds patience) const {
  Result result{path, ""};
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::string problem;
  };
  try {
    // Several groups may fail at once, one after the other on the thread that carries all of them: only the
    // first waits for a file system that hangs, else they would look like a thread stuck in MPI.
    if (late_->load(std::memory_order_relaxed)) patience = std::chrono::milliseconds(0);
    auto shared = std::make_shared<Shared>();
    quiet_thread("mpigdr-file", [shared, content = std::move(content), late = late_, path] {
      std::string problem;
      try {
        std::lock_guard one_at_a_time(writing());
        problem = replace_file(path, content());
      } catch (const std::bad_alloc&) {
        problem = "no memory";  // so short that it needs none
      } catch (const std::exception& e) {
        problem = e.what();
      }
      std::lock_guard lock(shared->mutex);
      late->store(false, std::memory_order_relaxed);
      shared->problem = std::move(problem);
      shared->done = true;
      shared->changed.notify_all();
    }).detach();
    std::unique_lock lock(shared->mutex);
    // wait_until on the system clock: wait_for would need a call that older ThreadSanitizers do not know.
    const auto until = std::chrono::system_clock::now() + patience;
    if (shared->changed.wait_until(lock, until, [&] { return shared->done; })) {
      result.problem = shared->problem;
    } else {
      late_->store(true, std::memory_order_relaxed);
      result.problem = "writing " + result.path + " takes long; it goes on";
    }
  } catch (const std::exception& e) {  // no memory, no thread
    result.problem = e.what();
  }
  return result;
}

}  // namespace mpigdr
