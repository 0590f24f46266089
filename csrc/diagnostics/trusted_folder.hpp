// Folders for files of this job: made where they are missing, and opened in such a way that no other user can
// have put them there, or put anything into them. Who reads a flight log runs what stands in it (torch's
// analyzer unpickles), so that a folder in /tmp must not be taken on its name alone. Thread-safe.
#pragma once

#include <string>
#include <utility>

namespace mpi_gdr {

enum class FolderUse {
  Job,   // made by and for this job, under a name that cannot be guessed: of this user, who alone may write
  Named  // the user has chosen it: of this user or root; others may write only if the sticky bit is set
};

class TrustedFolder {
 public:
  // Makes what is missing of the path (of a Job's the last part, too), for the owner only. "": the current
  // folder. Throws Error(System), a sentence that says what was expected.
  TrustedFolder(const std::string& path, FolderUse use);
  ~TrustedFolder();
  TrustedFolder(const TrustedFolder&) = delete;
  TrustedFolder& operator=(const TrustedFolder&) = delete;

  // For openat() and the like, not for reading.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// "folder", "file" of "folder/file"; of a plain name "" and that name.
std::pair<std::string, std::string> split_path(const std::string& path);

}  // namespace mpi_gdr
