// The algorithm that a selection table chooses for a call.
#pragma once

#include <string>

#include "collectives/selection_table.hpp"

namespace mpi_gdr {

inline CollectiveSpec call(Collective collective, int size, std::uint64_t bytes,
                           DataType dtype = DataType::Float32) {
  CollectiveSpec spec{.collective = collective, .size = size};
  spec.dtype = reduces(collective) ? dtype : DataType::UInt8;
  spec.count = collective == Collective::Barrier ? 0 : bytes / item_size(spec.dtype);
  return spec;
}

inline std::string chosen(const SelectionTable& table, const CollectiveSpec& spec, bool native = false,
                          Reach reach = Reach::None) {
  return select_row(spec, native, reach, table).algorithm->name;
}

}  // namespace mpi_gdr
