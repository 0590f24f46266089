#include "diagnostics/trusted_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/error.hpp"

namespace mpi_gdr {
namespace {

constexpr int kOpen = O_PATH | O_DIRECTORY | O_CLOEXEC;

[[noreturn]] void fail_at(const char* call, const std::string& path) {
  fail(ErrorCode::System, call, " ", path, ": ", std::strerror(errno));
}

// Owner only: the files may contain names of files and hosts.
void make_directories(const std::string& path) {
  if (path.empty() || ::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return;
  if (errno != ENOENT) fail_at("mkdir", path);
  make_directories(split_path(path).first);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail_at("mkdir", path);
}

void check(int descriptor, const std::string& path, FolderUse use) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) fail_at("stat", path);
  const bool job = use == FolderUse::Job;
  if (status.st_uid != ::geteuid() && (job || status.st_uid != 0))
    fail(ErrorCode::System, path, " belongs to uid ", status.st_uid,
         ", who can put other files there; expected a folder of this user (", ::geteuid(),
         job ? ")" : ") or of root");
  const bool sticky = status.st_mode & S_ISVTX;
  if (job ? status.st_mode & (S_IWGRP | S_IWOTH) : status.st_mode & S_IWOTH && !sticky) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(status.st_mode) & 07777u);
    fail(ErrorCode::System, "other users can write to ", path, " (mode ", mode,
         "), and so put other files there; expected a folder that ",
         job ? "only this user can write to" : "they cannot write to, or one with the sticky bit");
  }
}

}  // namespace

std::pair<std::string, std::string> split_path(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return {"", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

TrustedFolder::TrustedFolder(const std::string& path, FolderUse use) {
  if (use == FolderUse::Named) {
    make_directories(path);
    descriptor_ = ::open(path.empty() ? "." : path.c_str(), kOpen);
  } else {
    const auto [parent, name] = split_path(path);
    const TrustedFolder around(parent, FolderUse::Named);
    if (::mkdirat(around.descriptor(), name.c_str(), 0700) != 0 && errno != EEXIST) fail_at("mkdir", path);
    descriptor_ = ::openat(around.descriptor(), name.c_str(), kOpen | O_NOFOLLOW);
  }
  if (descriptor_ < 0) fail_at("open", path);
  try {
    check(descriptor_, path, use);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TrustedFolder::~TrustedFolder() { ::close(descriptor_); }

}  // namespace mpi_gdr
