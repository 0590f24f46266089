// Folders that another user has created or may write to. Uid 65534 plays that user, which needs root.
#include <sys/stat.h>

#include "diagnostics/flight_writer.hpp"
#include "diagnostics/trusted_folder.hpp"
#include "test.hpp"

using namespace mpi_gdr;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kOther = 65534;

// Like /tmp: world-writable with the sticky bit.
struct Shared : unit::Folder {
  Shared() { CHECK(chmod(path.c_str(), 01777) == 0); }
};

bool root() {
  if (geteuid() == 0) return true;
  std::printf("skipped: playing another user needs root\n");
  return false;
}

// Runs `call` as the other user in a child process; returns its result.
template <typename F>
bool as_other(F call) {
  return unit::in_child([&] { return setgid(kOther) == 0 && setuid(kOther) == 0 && call(); });
}

mode_t mode_of(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

// The problem of writing a flight log there, or "".
std::string log_problem(const std::string& folder, FolderUse use) {
  FlightWriterOptions options;
  options.directory = folder;
  options.use = use;
  return FlightWriter(std::make_shared<FlightLog>(4), options).write("test", 10s).problem;
}

}  // namespace

TEST(paths_are_split) {
  using Parts = std::pair<std::string, std::string>;
  CHECK(split_path("/a/b") == Parts("/a", "b") && split_path("/b") == Parts("/", "b"));
  CHECK(split_path("a/b") == Parts("a", "b") && split_path("b") == Parts("", "b"));
}

TEST(a_folder_of_ones_own_is_made_and_taken_again) {
  const Shared shared;
  const std::string job = shared.path + "/job", deep = shared.path + "/a/b/c";
  CHECK(log_problem(job, FolderUse::Job).empty() && log_problem(job, FolderUse::Job).empty());
  CHECK(mode_of(job) == 0700 && mode_of(job + "/mpi_gdr_trace_rank_0") == 0600);
  CHECK(log_problem(deep, FolderUse::Named).empty() && mode_of(shared.path + "/a") == 0700);
  CHECK(log_problem(shared.path, FolderUse::Named).empty());  // the sticky bit is set
}

TEST(a_folder_to_which_others_can_write_is_refused) {
  const Shared shared;
  const std::string job = shared.path + "/job";
  CHECK(mkdir(job.c_str(), 0700) == 0);
  for (const mode_t mode : {0770, 0707, 01777}) {
    CHECK(chmod(job.c_str(), mode) == 0);
    CHECK_CONTAINS(log_problem(job, FolderUse::Job), "only this user can write to");
  }
  CHECK(chmod(job.c_str(), 0777) == 0);
  CHECK(log_problem(job, FolderUse::Named).find("other users can write to " + job + " (mode 0777)") == 0);
  CHECK(chmod(job.c_str(), 02770) == 0);  // a group's folder that the user has named
  CHECK(log_problem(job, FolderUse::Named).empty());
  // A user who may rename the folder can replace it.
  CHECK(chmod(job.c_str(), 0700) == 0 && chmod(shared.path.c_str(), 0777) == 0);
  CHECK(log_problem(job, FolderUse::Job).find("other users can write to " + shared.path) == 0);
}

TEST(what_another_user_has_planted_is_refused) {
  if (!root()) return;
  const Shared shared;
  const std::string job = shared.path + "/job", link = shared.path + "/link",
                    victim = shared.path + "/victim";
  CHECK(mkdir(victim.c_str(), 0700) == 0);
  CHECK(as_other([&] {
    return mkdir(job.c_str(), 0777) == 0 && chmod(job.c_str(), 0755) == 0 &&
           symlink(victim.c_str(), link.c_str()) == 0;
  }));
  for (const FolderUse use : {FolderUse::Job, FolderUse::Named})
    CHECK(log_problem(job, use).find(job + " belongs to uid 65534") == 0);
  CHECK(fs::is_empty(job));
  CHECK(log_problem(link, FolderUse::Job).find("open " + link) == 0 && fs::is_empty(victim));
  const std::string named = shared.path + "/mpi_gdr_trace_rank_0";
  CHECK(as_other([&] { return symlink("/etc/passwd", named.c_str()) == 0; }));
  const std::string before = fs::read_symlink(named);
  log_problem(shared.path, FolderUse::Named);
  CHECK(fs::file_size("/etc/passwd") > 0 && (!fs::is_symlink(named) || fs::read_symlink(named) == before));
}

TEST(a_user_takes_roots_folders_only_where_named) {
  if (!root()) return;
  const Shared shared;
  const std::string job = shared.path + "/job";
  CHECK(mkdir(job.c_str(), 0755) == 0);
  CHECK(as_other([&] { return log_problem(job, FolderUse::Job).find("belongs to uid 0") > 0; }));
  CHECK(as_other([&] {  // the folder is accepted, the system refuses the file
    return log_problem(job, FolderUse::Named).find("Permission denied") != std::string::npos;
  }));
  CHECK(as_other([&] { return log_problem(shared.path, FolderUse::Named).empty(); }));
}

UNIT_MAIN()
