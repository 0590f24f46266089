// Files that tell of a job that may be failing: the flight log, the trace.
//
// A file is written on a thread of its own: a file system that hangs delays no caller beyond its patience,
// and while a late one goes on, none at all. Thread-safe; never throws but for replace_file().
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "diagnostics/trusted_folder.hpp"

namespace mpi_gdr {

class FileWriter {
 public:
  struct Result {
    std::string path;
    std::string problem;  // empty: the file is there
  };
  // Has replace_file(path, content(), use) run; `content` on the thread that writes, one file of this writer
  // after the other. Waits for the end of it for `patience` at most; `content` may run later than that.
  Result write(const std::string& path, std::function<std::string()> content,
               std::chrono::milliseconds patience, FolderUse use = FolderUse::Named) const;

 private:
  struct State {
    std::mutex writing;             // held by the thread that writes
    std::atomic<bool> late{false};  // a write has outlasted a caller's patience, and none has ended since
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // shared with the threads that write
};

// Puts a file with this content, for the owner only, in the place of what is there in one step: readers never
// see half of it. Returns what went wrong, or "". Throws std::bad_alloc, and what TrustedFolder throws.
std::string replace_file(const std::string& path, const std::string& content, FolderUse use);

}  // namespace mpi_gdr
