#include "common/call_record.hpp"

#include <algorithm>

namespace mpi_gdr {

std::string text_of(const CallRecord& call) {
  if (static_cast<int>(call.collective) >= kCollectiveCount || static_cast<int>(call.op) >= kReduceOpCount)
    return "a call unknown to this release of mpi-gdr";
  std::string text(name(call.collective));
  text += " #" + std::to_string(call.sequence);
  if (!has_count(call.collective)) return text;
  if (call.uneven)
    text += " of uneven blocks of";
  else
    text += " of " + std::to_string(call.count) + " x";
  text += ' ' + std::string(call.dtype.begin(), std::find(call.dtype.begin(), call.dtype.end(), '\0'));
  if (reduces(call.collective)) text += ", op=" + std::string(name(call.op));
  if (has_root(call.collective)) text += ", root=" + std::to_string(call.root);
  return text;
}

std::string difference(int rank, const CallRecord& theirs, const CallRecord& ours) {
  const std::string there = text_of(theirs), here = text_of(ours);
  std::string text = "rank " + std::to_string(rank) + " called " + there;
  text += there == here ? " as this rank did, but another call before it" : ", this rank called " + here;
  return text + ". Expected equal calls in the same order on all ranks of the group";
}

}  // namespace mpi_gdr
