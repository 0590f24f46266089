#include "diagnostics/file_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "common/host_name.hpp"
#include "common/quiet_thread.hpp"

namespace mpi_gdr {
namespace {

std::string because(const char* call, const std::string& path) {
  return std::string(call) + " " + path + ": " + std::strerror(errno);
}

}  // namespace

std::string replace_file(const std::string& path, const std::string& content, FolderUse use) {
  const auto [where, name] = split_path(path);
  const TrustedFolder folder(where, use);
  const int at = folder.descriptor();
  // A killed process leaves this file, so its name must not contain the final one, which torch's analyzer
  // searches for. Hosts that share the folder may have equal process ids.
  static std::atomic<unsigned> files{0};
  const std::string partial = ".partial-" + host_name() + '-' + std::to_string(getpid()) + '-' +
                              std::to_string(files.fetch_add(1, std::memory_order_relaxed)) + "~";
  unlinkat(at, partial.c_str(), 0);  // left by an earlier process with this id
  const int fd = openat(at, partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return because("open", where + '/' + partial);
  std::string problem;
  for (std::size_t done = 0; done < content.size() && problem.empty();) {
    const ssize_t n = write(fd, content.data() + done, content.size() - done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      problem = because("write", where + '/' + partial);
    }
  }
  if (close(fd) != 0 && problem.empty()) problem = because("close", where + '/' + partial);
  if (problem.empty() && renameat(at, partial.c_str(), at, name.c_str()) != 0)
    problem = because("rename to", path);
  if (!problem.empty()) unlinkat(at, partial.c_str(), 0);
  return problem;
}

FileWriter::Result FileWriter::write(const std::string& path, std::function<std::string()> content,
                                     std::chrono::milliseconds patience, FolderUse use) const {
  Result result{path, ""};
  const auto ended = [](const Written& written, std::chrono::milliseconds patience) {
    return written.wait_for(patience) == std::future_status::ready;
  };
  try {
    // Groups may fail one after the other on the progress thread, which must not wait for each.
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->late.valid() && !ended(state_->late, {})) patience = {};
    }
    const Written written =
        run_apart("mpigdr-file", [content = std::move(content), state = state_, path, use]() -> std::string {
          try {
            const std::lock_guard one_at_a_time(state->writing);
            return replace_file(path, content(), use);
          } catch (const std::bad_alloc&) {
            return "no memory";  // short enough to need no allocation
          } catch (const std::exception& e) {
            return e.what();
          }
        }).share();
    if (ended(written, patience)) {
      result.problem = written.get();
    } else {
      const std::lock_guard lock(state_->mutex);
      state_->late = written;
      result.problem = "writing " + result.path + " is slow; it continues in the background";
    }
  } catch (const std::exception& e) {  // out of memory, or no thread could be created
    result.problem = e.what();
  }
  return result;
}

}  // namespace mpi_gdr
