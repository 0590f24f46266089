// Loads the rows of a group's selection table, and the settings that its ranks must have alike. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "collectives/selection_table.hpp"
#include "common/env.hpp"

namespace mpi_gdr {

// A variable with Env::Ranks::Equal, an option of a group, or the built-in table.
struct SharedSetting {
  std::string name;   // "MPI_GDR_LANES"
  std::string value;  // compared; for rows: their digest
  std::string shown;  // "4"
};

struct Selection {
  SelectionTable table;
  std::vector<SharedSetting> settings;  // all of them, in a fixed order
  bool has_user_rows = false;           // the user gave rows, not only a forced algorithm
};

// Options of a group, as MPI_GDR_SELECT and MPI_GDR_BITS. `rows` follow the environment's; `bits`, unless
// empty, replaces the environment's.
struct GroupSelection {
  std::string rows, bits;
};

// The table's rows in the order in which they are tried: MPI_GDR_<COLLECTIVE>_ALGO, MPI_GDR_SELECT, the
// group's, the file of MPI_GDR_TUNING, the built-in table. Throws InvalidUsage that names the source.
Selection load_selection(const Env& env, const GroupSelection& group = {});

// Throws InvalidUsage that names `argument` unless it is "any", "order" or "exact".
Bits parse_bits(const std::string& argument, const std::string& text);

// "MPI_GDR_LANES is 4 on ranks 0, 2 and 8 on rank 1"; "" if equal. `by_rank`: Selection::settings of a group.
std::string disagreement(const std::vector<std::vector<SharedSetting>>& by_rank);

}  // namespace mpi_gdr
