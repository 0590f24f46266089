// Choices that are cached between jobs: what is restored, and which files are rejected.
#include <sys/stat.h>

#include "job/choice_cache.hpp"
#include "test.hpp"

using namespace mpi_gdr;
using unit::contains, unit::content, unit::Folder;
namespace fs = std::filesystem;
using C = Collective;

namespace {

const std::string kKey = "a processor | an MPI 1.0 | 2 ranks | table 0123456789abcdef";

MeasuredChoices some() {
  return {{C::AllReduce, 1 << 20, 1 << 21, false, 0, 1.25},
          {C::Broadcast, 65536, 131072, true, 1, 0.98},
          {C::Scatter, 0, 1, false, 1, 3}};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

// Why the file is ignored, or "".
std::string problem(const ChoiceCache& cache) {
  const ChoiceCache::File file = cache.read(kKey);
  CHECK(file.problem.empty() != file.choices.empty());
  return file.problem;
}

}  // namespace

TEST(what_was_measured_comes_back) {
  const Folder folder;
  const ChoiceCache cache(folder.path + "/mpi-gdr");
  CHECK(cache.read(kKey).choices.empty() && cache.read(kKey).problem.empty() && cache.all().empty());
  CHECK(cache.save(kKey, some()) == "");
  const MeasuredChoices found = cache.read(kKey).choices;
  CHECK(to_text(found) == to_text(some()) && found.size() == 3);
  CHECK(found[0].collective == C::AllReduce && found[0].to_bytes == 1 << 21 && !found[0].mapped);
  CHECK(found[0].rival == 0 && found[0].speedup == 1.25 && found[1].mapped && found[2].to_bytes == 1);
  CHECK(cache.save(kKey, {{C::AllReduce, 1 << 20, 1 << 21, false, 1, 2}, {C::Gather, 8, 16, false, 0, 1}}) ==
        "");
  const MeasuredChoices merged = cache.read(kKey).choices;
  CHECK(merged.size() == 4 && merged[0].rival == 1 && merged[0].speedup == 2);
  CHECK(cache.read("another key").choices.empty());
  const auto all = cache.all();
  CHECK(all.size() == 1 && all[0].key == kKey && all[0].choices.size() == 4 && all[0].problem.empty());
  struct stat status{};
  CHECK(stat(all[0].path.c_str(), &status) == 0 && (status.st_mode & 07777) == 0600);
}

TEST(a_damaged_file_is_ignored_and_replaced) {
  const Folder folder;
  const ChoiceCache cache(folder.path);
  CHECK(cache.save(kKey, some()) == "");
  const std::string path = cache.all()[0].path, good = content(path);
  for (const auto& [from, to, why] :
       std::vector<std::array<const char*, 3>>{{"choices 1", "choices 0", "format 0, expected 1"},
                                               {"choices 1", "choices 2", "format 2, expected 1"},
                                               {"mpi-gdr", "another", "does not begin with"},
                                               {"2 ranks", "4 ranks", "it is for a processor"},
                                               {"all_reduce", "all_reverse", "choice 1 is damaged"},
                                               {"1048576", "1048577", "choice 1 is damaged"},
                                               {"1048576", "99999999999999999999999", "choice 1 is damaged"},
                                               {"ordinary", "strange", "choice 1 is damaged"},
                                               {"zero_copy", "flag", "choice 1 is damaged"},
                                               {"1.25", "-1.25", "choice 1 is damaged"},
                                               {"1.25", "nan", "choice 1 is damaged"},
                                               {"1.25", "1e300", "choice 1 is damaged"},
                                               {"1.25", "1.25 x", "choice 1 is damaged"},
                                               {"65536", "", "choice 2 is damaged"},
                                               {"end 3", "end 4", "choice 4 is damaged"},
                                               {"end 3\n", "", "its end is missing"},
                                               {"end 3\n", "end 3\nmore\n", "choice 4 is damaged"}}) {
    std::string bad = good;
    bad.replace(bad.find(from), std::strlen(from), to);
    write(path, bad);
    CHECK_CONTAINS(problem(cache), why);
  }
  for (std::size_t bytes = 0; bytes + 1 < good.size(); ++bytes) {  // cut anywhere
    write(path, good.substr(0, bytes));
    CHECK(!problem(cache).empty());
  }
  for (const char* bytes : {"\xff", "\x1b[2J", "\r"}) {
    write(path, good.substr(0, 20) + bytes + good.substr(20));
    CHECK_CONTAINS(problem(cache), "not a text file");
  }
  write(path, std::string(std::size_t{100} << 10, 'x'));
  CHECK_CONTAINS(problem(cache), "more than 65536 bytes");
  CHECK(cache.all().size() == 1 && !cache.all()[0].problem.empty());
  CHECK(cache.save(kKey, some()) == "" && content(path) == good);
}

// The other ranks parse the first rank's serialised result.
TEST(what_is_accepted_once_is_accepted_again) {
  for (const char* speedup : {"1", "0.004", "1e-300", "1.2345678", "9e5", "899999.9", "1e5"}) {
    const std::string text = std::string("all_reduce 1024 group staged ") + speedup + "\nend 1\n";
    const MeasuredChoices again = parse_choices(to_text(parse_choices(text)));
    CHECK(again.size() == 1 && again[0].rival == 1);
  }
  for (const char* speedup : {"900001", "1e6", "0", "-1", "nan", "inf"})
    CHECK_THROWS(parse_choices(std::string("all_reduce 1024 group staged ") + speedup + "\nend 1\n"), Error,
                 "choice 1 is damaged");
  MeasuredChoices huge = some();
  huge[0].speedup = 1e300;
  CHECK(parse_choices(to_text(huge)).size() == huge.size());
}

TEST(a_file_that_others_may_have_written_is_ignored) {
  const Folder folder;
  const ChoiceCache cache(folder.path);
  CHECK(cache.save(kKey, some()) == "");
  const std::string path = cache.all()[0].path, good = content(path);
  for (const mode_t mode : {0620, 0602, 0666}) {
    CHECK(chmod(path.c_str(), mode) == 0);
    CHECK_CONTAINS(problem(cache), "other users can write");
  }
  CHECK(chmod(path.c_str(), 0644) == 0 && problem(cache).empty());
  fs::rename(path, folder.path + "/elsewhere");
  fs::create_symlink(folder.path + "/elsewhere", path);
  CHECK_CONTAINS(problem(cache), "symbolic link");
  fs::remove(path);
  CHECK(mkfifo(path.c_str(), 0600) == 0);
  CHECK_CONTAINS(problem(cache), "not a regular file");
  fs::remove(path);
  fs::create_directory(path);
  CHECK_CONTAINS(problem(cache), "not a regular file");
  fs::remove(path);
  if (geteuid() == 0) {  // only root can create another user's files
    write(path, good);
    CHECK(chown(path.c_str(), 65534, 65534) == 0);
    CHECK_CONTAINS(problem(cache), "belongs to uid 65534");
    CHECK(cache.save(kKey, some()) == "" && problem(cache).empty());
  }
  CHECK(chmod(folder.path.c_str(), 0777) == 0);
  CHECK_CONTAINS(cache.save(kKey, some()), "other users can write to");
}

TEST(without_a_home_nothing_is_remembered) {
  const Folder folder;
  setenv("XDG_CACHE_HOME", folder.path.c_str(), 1);
  CHECK(ChoiceCache::user_folder() == folder.path + "/mpi-gdr");
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("HOME", folder.path.c_str(), 1);
  CHECK(ChoiceCache::user_folder() == folder.path + "/.cache/mpi-gdr");
  setenv("HOME", (folder.path + "/none").c_str(), 1);
  CHECK(ChoiceCache::user_folder() == "");
  if (geteuid() == 0) {  // only root can create another user's files
    setenv("HOME", folder.path.c_str(), 1);
    CHECK(chown(folder.path.c_str(), 65534, 65534) == 0);
    CHECK(ChoiceCache::user_folder() == "");
  }
  unsetenv("HOME");
  const ChoiceCache none;
  CHECK(none.folder() == "" && none.all().empty() && none.read(kKey).choices.empty());
  CHECK(none.read(kKey).problem.empty() && contains(none.save(kKey, some()), "no home folder"));
  const ChoiceCache under_a_file("/dev/null/mpi-gdr");
  CHECK(under_a_file.read(kKey).problem.empty() && !under_a_file.save(kKey, some()).empty());
}

TEST(the_key_names_what_the_times_depend_on) {
  const std::vector<SharedSetting> settings = {{"a", "1", "1"}, {"b", "2", "2"}};
  const std::string key = choices_key("MPICH 4.3", 4, settings);
  CHECK_CONTAINS(key, " | MPICH 4.3 | 4 ranks | table ");
  CHECK(key == choices_key("MPICH 4.3", 4, settings));
  CHECK(key != choices_key("MPICH 4.4", 4, settings) && key != choices_key("MPICH 4.3", 2, settings));
  CHECK(key != choices_key("MPICH 4.3", 4, {{"a", "1", "1"}, {"b", "3", "3"}}));
  CHECK_CONTAINS(choices_key("two\nlines   more", 4, settings), "| two lines more |");
}

UNIT_MAIN()
