// Arguments of Group::issue(): collectives and messages. Values and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "execution/simple_executions.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

// On host memory or a device's (IssueOptions::stream). Buffers as in schedule/spec.hpp.
struct CollectiveCall {
  CollectiveSpec spec;
  const void* input = nullptr;
  void* output = nullptr;
  double factor = 1.0;  // PreMulSum
  // The tensors' dtype (a string literal) and its bytes, for the CallRecord; empty: those of `spec`.
  std::string_view dtype = {};
  std::uint64_t item_size = 1;
};

// Two collectives, sizes then data: one part of an operation, which takes both sequence numbers at once.
struct ChainedCall {
  CollectiveCall first;
  // Called once, with the progress role, after `first`. Returns the second stage (not an all_to_all) or
  // nothing, alike on all ranks, and owns its memory. Must not block, use torch or the GIL. The stage is
  // never a native collective: the library matches those in the order in which they start.
  std::function<std::optional<CollectiveCall>()> next;
};

using Call = std::variant<CollectiveCall, MessageCall, ChainedCall>;

bool is_all_to_all(const Call& call);
// The spec on which ranks agree: the first stage of a chained call. Not for messages.
const CollectiveSpec& spec_of(const Call& call);
// Throws InvalidUsage unless a group of this shape may run these calls as the operation of this name.
struct GroupShape {
  const std::string& name;
  int rank, size, max_tag;
};
void check(const std::vector<Call>& calls, std::string_view operation, const GroupShape& group);
void check(const CollectiveSpec& spec, std::string_view operation, const GroupShape& group);
// Tags differ between consecutive collectives and, if there are enough tags, between different calls.
struct CollectiveTags {
  explicit CollectiveTags(int max_tag);
  int base(const CallRecord& call) const {
    return static_cast<int>(call.sequence % slots + slots * (call.history % kinds)) * kTagsPerCollective;
  }
  int header(std::uint64_t sequence) const {  // equal on all ranks, even for different calls
    return static_cast<int>(sequence % slots) * kTagsPerCollective + kHeaderTag;
  }
  std::uint64_t slots;  // sequence numbers until tags repeat
  std::uint64_t kinds;  // tag ranges per sequence number; 1: different calls may match
};
// The fields that must be equal on all ranks; others are zero. `history`: of earlier calls.
CallRecord record_of(const CollectiveCall& c, std::uint64_t sequence = 0, std::uint64_t history = 0);

struct ResolvedCall {
  std::uint64_t sequences = 0;       // sequence numbers that it takes; 0: a message
  std::uint64_t bytes = 0;           // this rank's contribution; a message's size
  std::uint64_t largest_buffer = 0;  // bytes
  CallRecord record = {};            // empty for messages
};
ResolvedCall resolve(const Call& call, std::uint64_t sequence = 0, std::uint64_t history = 0);

}  // namespace mpi_gdr
