// What groups of earlier jobs have measured (execution/rivals.hpp): a file in the user's cache folder
// for each processor, MPI library, number of ranks and table. The group's rank 0 reads it; its other ranks
// get what was read with the member's record. A file counts once all of it has been checked. Thread-safe.
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

// A line for each, and one that ends them; and back: throws Error(System) that names the wrong line.
std::string to_text(const MeasuredChoices& choices);
MeasuredChoices parse_choices(const std::string& text);

class ChoiceCache {
 public:
  struct File {
    std::string path, key;
    MeasuredChoices choices;
    std::string problem;  // why the file is ignored; "": it is not, or there is none
  };
  // `folder` need not exist; "": none, nothing is remembered.
  explicit ChoiceCache(std::string folder = user_folder()) : folder_(std::move(folder)) {}
  // $XDG_CACHE_HOME/mpi-gdr or ~/.cache/mpi-gdr; "" without a home of this user's.
  static std::string user_folder();

  const std::string& folder() const { return folder_; }
  File read(const std::string& key) const;
  std::vector<File> all() const;  // by path
  // Replaces the file in one step. Classes that only the file has are kept. Returns what went wrong, or "".
  // Waits for a slow file system for a second at most.
  std::string save(const std::string& key, const MeasuredChoices& choices) const;
  // Both for the folder that the user had at the first of these calls, on threads of their own: a file system
  // that hangs delays a process for a second or two in all, and then nothing is remembered.
  static File read_users(const std::string& key);
  static std::string save_users(const std::string& key, const MeasuredChoices& choices);

 private:
  std::string path_of(const std::string& key) const;

  const std::string folder_;
};

}  // namespace mpi_gdr
