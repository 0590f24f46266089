// Measurements of earlier jobs (execution/rivals.hpp): a file in the user's cache folder per processor, MPI
// library, number of ranks and table, read by a group's rank 0. Files with errors are ignored. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/selection_source.hpp"
#include "execution/rivals.hpp"

namespace mpi_gdr {

using MeasuredChoices = std::vector<RivalChoices::Report>;

// "AMD EPYC 7B13 | 64 cores | MPICH Version: 4.3.2 | 4 ranks | table 5d0ee0ac35ef5ea7"
std::string choices_key(const std::string& library, std::size_t ranks,
                        const std::vector<SharedSetting>& settings);

// One line per choice and a last line. parse_choices() throws Error(System) naming the invalid line.
std::string to_text(const MeasuredChoices& choices);
MeasuredChoices parse_choices(const std::string& text);

class ChoiceCache {
 public:
  struct File {
    std::string path, key;
    MeasuredChoices choices;
    std::string problem;  // why the file is ignored; "": valid or missing
  };
  // `folder` need not exist; "": nothing is stored.
  explicit ChoiceCache(std::string folder = user_folder()) : folder_(std::move(folder)) {}
  // $XDG_CACHE_HOME/mpi-gdr or ~/.cache/mpi-gdr; "" if this user owns no home.
  static std::string user_folder();

  const std::string& folder() const { return folder_; }
  File read(const std::string& key) const;
  std::vector<File> all() const;  // by path
  // Merges into the file and replaces it atomically; blocks for 1 s at most. Returns an error, or "".
  std::string save(const std::string& key, const MeasuredChoices& choices) const;
  // Use user_folder() as of the first read_users(). A file system that hangs blocks a process for about 2 s
  // in all, and the cache is then unused.
  static File read_users(const std::string& key);
  static std::string save_users(const std::string& key, const MeasuredChoices& choices);

 private:
  std::string path_of(const std::string& key) const;

  const std::string folder_;
};

}  // namespace mpi_gdr
