// Folders into which no other user can have written: torch's analyzer unpickles flight logs, so a name in
// /tmp must not be trusted. Thread-safe.
#pragma once

#include <string>
#include <utility>

namespace mpi_gdr {

enum class FolderUse {
  Job,   // created by this job under an unguessable name: owned and writable only by this user
  Named  // chosen by the user: owned by this user or root; writable by others only with the sticky bit
};

class TrustedFolder {
 public:
  // Creates missing folders (also a Job's last one). "": the current folder. Throws Error(System).
  TrustedFolder(const std::string& path, FolderUse use);
  ~TrustedFolder();
  TrustedFolder(const TrustedFolder&) = delete;
  TrustedFolder& operator=(const TrustedFolder&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// "folder", "file" of "folder/file"; "" and the name of a plain name.
std::pair<std::string, std::string> split_path(const std::string& path);

}  // namespace mpi_gdr
