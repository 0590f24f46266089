#include "engine/calls.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "common/error.hpp"
#include "common/fnv1a.hpp"

namespace mpi_gdr {
namespace {

// This rank's contribution in bytes; without an input, what it sends or receives.
std::uint64_t contribution(const CollectiveSpec& spec) {
  const bool any = traits(spec.collective).input != Contents::None;
  return (any ? input_count(spec) : spec.count) * item_size(spec.dtype);
}

const CollectiveCall& collective_of(const Call& call) {
  if (const auto* chained = std::get_if<ChainedCall>(&call)) return chained->first;
  return std::get<CollectiveCall>(call);
}

void check(const MessageCall& m, const GroupShape& group) {
  const char* what = m.send ? "send" : "recv";
  const bool any = !m.send && m.peer == kAnySource;
  if (!any && (m.peer < 0 || m.peer >= group.size))
    fail(ErrorCode::InvalidUsage, what, ": peer=", m.peer, " is not a rank of group ", group.name,
         ": expected 0..", group.size - 1);
  if (any && m.bytes > kMaxMessageBytes)
    fail(ErrorCode::InvalidUsage, "a receive from any source of ", m.bytes,
         " bytes: the pieces of such a message could come from different ranks; at most ", kMaxMessageBytes,
         " bytes are supported, or name the source");
  if (m.tag < 0 || m.tag > group.max_tag)
    fail(ErrorCode::InvalidUsage, what, ": tag=", m.tag, " is out of range: expected 0..", group.max_tag);
}

}  // namespace

CollectiveTags::CollectiveTags(int max_tag) {  // few tags go mostly to slots, which bound the calls in flight
  const std::uint64_t all = (static_cast<std::uint64_t>(max_tag) + 1) / kTagsPerCollective;
  kinds = all < 512 ? 1 : std::clamp<std::uint64_t>(all / 4096, 2, 31);
  slots = std::max<std::uint64_t>(all / kinds, 1);
}

void check(const CollectiveSpec& spec, std::string_view operation, const GroupShape& group) {
  if (spec.root < 0 || spec.root >= group.size)
    fail(ErrorCode::InvalidUsage, operation, ": root=", spec.root, " is not a rank of group ", group.name,
         ": expected 0..", group.size - 1);
  if (spec.collective == Collective::AllToAll)
    for (const auto* counts : {&spec.send_counts, &spec.recv_counts})
      if (counts->size() != static_cast<std::size_t>(group.size))
        fail(ErrorCode::InvalidUsage, operation, ": ", counts == &spec.send_counts ? "send" : "recv",
             "_counts has ", counts->size(), " entries, expected size=", group.size);
  if (!supports(spec.op, spec.dtype))
    fail(ErrorCode::InvalidUsage, operation, ": op=", name(spec.op), " is not defined on ", name(spec.dtype),
         " tensors");
}

void check(const std::vector<Call>& calls, std::string_view operation, const GroupShape& group) {
  std::uint64_t collectives = 0, messages = 0;
  for (const Call& call : calls) {
    if (const auto* message = std::get_if<MessageCall>(&call)) {
      check(*message, group);
      ++messages;
    } else {
      const CollectiveSpec& spec = spec_of(call);
      check(spec, operation.empty() ? name(spec.collective) : operation, group);
      collectives += std::holds_alternative<ChainedCall>(call) ? 2 : 1;
    }
  }
  if (collectives != 0 && messages != 0)
    fail(ErrorCode::InvalidUsage, operation,
         ": collectives and messages in one operation: expected one kind");
  if (const std::uint64_t most = CollectiveTags(group.max_tag).slots / 4; collectives > most)
    fail(ErrorCode::InvalidUsage, operation, ": ", collectives,
         " collectives in one coalesced operation: at most ", most, " are supported");
}

CallRecord record_of(const CollectiveCall& c, std::uint64_t sequence, std::uint64_t history) {
  const CollectiveSpec& spec = c.spec;
  CallRecord call;
  call.sequence = sequence;
  call.collective = spec.collective;
  if (reduces(spec.collective)) call.op = spec.op;
  if (has_root(spec.collective)) call.root = spec.root;
  // Pairs of ranks compare the counts of an all_to_all, elsewhere. Without data the dtype does not matter.
  std::uint64_t bytes = spec.collective == Collective::AllToAll ? 0 : spec.count * item_size(spec.dtype);
  call.uneven = !spec.counts.empty();
  if (call.uneven) {
    Fnv1a hash;
    hash.add(spec.counts.data(), spec.counts.size() * sizeof spec.counts[0]);
    bytes = hash.value();
  }
  const bool named = !c.dtype.empty() && bytes != 0;
  (named ? c.dtype : name(spec.dtype)).copy(call.dtype.data(), call.dtype.size());
  call.count = bytes / (named ? c.item_size : item_size(spec.dtype));
  Fnv1a hash;
  hash.add_word(history);
  hash.add_word(sequence << 24 | static_cast<std::uint64_t>(call.collective) << 16 |
                static_cast<std::uint64_t>(call.op) << 8 | static_cast<std::uint64_t>(spec.dtype));
  hash.add_word(static_cast<std::uint32_t>(call.root));
  hash.add_word(bytes);
  for (const std::uint64_t word : std::bit_cast<std::array<std::uint64_t, 2>>(call.dtype))
    hash.add_word(word);
  call.history = hash.value() ^ hash.value() >> 32;  // low bits of a product depend on few bits
  return call;
}

bool is_all_to_all(const Call& call) {
  const auto* collective = std::get_if<CollectiveCall>(&call);
  return collective && collective->spec.collective == Collective::AllToAll;
}

const CollectiveSpec& spec_of(const Call& call) { return collective_of(call).spec; }

ResolvedCall resolve(const Call& call, std::uint64_t sequence, std::uint64_t history) {
  if (const auto* message = std::get_if<MessageCall>(&call)) return {0, message->bytes, message->bytes};
  const CollectiveCall& collective = collective_of(call);
  const std::uint64_t bytes = contribution(collective.spec);
  const CallRecord record = record_of(collective, sequence, history);
  if (std::holds_alternative<ChainedCall>(call)) return {2, bytes, bytes, record};
  return {1, bytes, largest_buffer(collective.spec), record};
}

}  // namespace mpi_gdr
