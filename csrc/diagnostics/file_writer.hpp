// Writes each file on a thread of its own: a file system that hangs delays a caller by at most its patience,
// and not at all while an earlier write is late. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "diagnostics/trusted_folder.hpp"

namespace mpi_gdr {

class FileWriter {
 public:
  struct Result {
    std::string path;
    std::string problem;  // empty: the file was written
  };
  // Runs replace_file(path, content(), use), one file at a time; `content` may run later. Returns errors.
  Result write(const std::string& path, std::function<std::string()> content,
               std::chrono::milliseconds patience, FolderUse use = FolderUse::Named) const;

 private:
  using Written = std::shared_future<std::string>;  // the problem
  struct State {
    std::mutex writing;  // held by the writing thread
    std::mutex mutex;    // guards `late`
    Written late;        // the last write that exceeded its caller's patience
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // shared with the writing threads
};

// Replaces a file atomically, readable by its owner only. Returns an error, or "". Throws as TrustedFolder.
std::string replace_file(const std::string& path, const std::string& content, FolderUse use);

}  // namespace mpi_gdr
