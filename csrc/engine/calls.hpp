// What is handed to Group::issue(): collectives and messages. Values and pure functions.
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

// A collective on memory of the host or a device (IssueOptions::stream). Buffers as in schedule/spec.hpp.
struct CollectiveCall {
  CollectiveSpec spec;
  const void* input = nullptr;
  void* output = nullptr;
  double factor = 1.0;  // PreMulSum
  // Of data that is only moved, for CallRecord: the tensors' dtype, a literal, and its bytes. Empty: as spec.
  std::string_view dtype = {};
  std::uint64_t item_size = 1;
};

// Two collectives of which the second depends on the result of the first: sizes, then data. One part of an
// operation, which takes both sequence numbers when it is issued.
struct ChainedCall {
  CollectiveCall first;
  // Called once by the holder of the progress role when `first` is done: what comes next, or nothing, equal
  // on all ranks; no all_to_all. Must not block, nor touch torch or the GIL; it allocates the memory of the
  // second stage and keeps it alive. Never run by the library's own collective, whose calls match in the
  // order in which they start.
  std::function<std::optional<CollectiveCall>()> next;
};

using Call = std::variant<CollectiveCall, MessageCall, ChainedCall>;

bool is_all_to_all(const Call& call);
// Of what the ranks agree on; of a chained call, what it begins with. Not of messages.
const CollectiveSpec& spec_of(const Call& call);
// Throws InvalidUsage unless a group of this shape may run these calls as one operation of this name.
struct GroupShape {
  const std::string& name;
  int rank, size, max_tag;
};
void check(const std::vector<Call>& calls, const std::string& operation, const GroupShape& group);
void check(const CollectiveSpec& spec, std::string_view operation, const GroupShape& group);
// The tags of collectives: distinct for consecutive ones, and, with enough tags, for calls that differ.
struct CollectiveTags {
  explicit CollectiveTags(int max_tag);
  int base(const CallRecord& call) const {
    return static_cast<int>(call.sequence % slots + slots * (call.history % kinds)) * kTagsPerCollective;
  }
  // Equal on ranks whose calls differ.
  int header(std::uint64_t sequence) const {
    return static_cast<int>(sequence % slots) * kTagsPerCollective + kHeaderTag;
  }
  std::uint64_t slots;  // sequence numbers before they repeat
  std::uint64_t kinds;  // of calls of one sequence number; 1: differing ones match
};
// What all ranks must call alike, the rest of it is zero. `history` of the calls before.
CallRecord record_of(const CollectiveCall& c, std::uint64_t sequence = 0, std::uint64_t history = 0);

// All that issuing needs to know of a call by itself.
struct ResolvedCall {
  std::uint64_t sequences = 0;       // numbers, and with them tags, that it takes; 0: a message
  std::uint64_t bytes = 0;           // that this rank brings in; of a message, all of it
  std::uint64_t largest_buffer = 0;  // bytes
  CallRecord record = {};            // of a message: nothing
};
ResolvedCall resolve(const Call& call, std::uint64_t sequence = 0, std::uint64_t history = 0);

}  // namespace mpi_gdr
