#include "diagnostics/call_check.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "common/error.hpp"
#include "common/fnv1a.hpp"
#include "common/rank_list.hpp"
#include "engine/operation.hpp"

namespace mpi_gdr {
namespace {

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view text) {
  to[text.copy(to, N - 1)] = 0;
}

CallHeader::Call call_of(const CollectiveSpec& spec) {
  const CallRecord agreed = record_of(CollectiveCall{spec});
  return {agreed.collective, spec.dtype, agreed.op, 0, agreed.root, agreed.count};
}

bool equal(const CallHeader& a, const CallHeader& b) {
  return a.digest == b.digest && std::strcmp(a.dtype, b.dtype) == 0;
}

}  // namespace

void check_received(CallHeader& header, int rank) {
  header.name[sizeof header.name - 1] = header.dtype[sizeof header.dtype - 1] =
      header.detail[sizeof header.detail - 1] = 0;
  for (const CallHeader::Call& call : header.call)
    if (static_cast<int>(call.collective) >= kCollectiveCount ||
        static_cast<int>(call.dtype) >= kDataTypeCount || static_cast<int>(call.op) >= kReduceOpCount)
      fail(ErrorCode::Remote, "rank ", rank, " sent a malformed call (collective ",
           static_cast<int>(call.collective), ", dtype ", static_cast<int>(call.dtype), ", op ",
           static_cast<int>(call.op), "); check that all ranks run the same version of mpi-gdr");
}

CallCheck::CallCheck(const std::vector<const CollectiveSpec*>& calls, std::string_view name,
                     std::string_view dtype, std::string_view detail, std::uint64_t sequence, Channel channel,
                     int tag, Transport& transport)
    : channel_(channel),
      tag_(tag),
      transport_(transport),
      rank_(transport.rank()),
      size_(transport.size()),
      theirs_(size_) {
  CallHeader header{};
  header.sequence = sequence;
  header.calls = static_cast<std::uint32_t>(calls.size());
  copy_text(header.name, name);
  copy_text(header.dtype, dtype);
  copy_text(header.detail, detail);
  Fnv1a hash;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const CallHeader::Call call = call_of(*calls[i]);
    static_assert(std::has_unique_object_representations_v<CallHeader::Call>);
    hash.add(&call, sizeof call);
    if (i < CallHeader::kCalls) header.call[i] = call;
  }
  header.digest = hash.value();
  ours_.assign(size_, header);
  for (std::size_t i = 0; i < calls.size() && i < CallHeader::kCalls; ++i) {
    const CollectiveSpec& spec = *calls[i];
    if (spec.collective != Collective::AllToAll) continue;
    pairs_ = true;
    const std::uint64_t item = item_size(spec.dtype);
    for (int r = 0; r < size_; ++r) {
      ours_[r].pair[i].to_you = spec.send_counts[r] * item;
      ours_[r].pair[i].from_you = spec.recv_counts[r] * item;
    }
  }
  theirs_[rank_] = ours_[rank_];
}

bool CallCheck::advance() {
  if (phase_ == Phase::Start) {
    exchange(ours_.data(), theirs_.data(), sizeof(CallHeader), false);
    phase_ = Phase::Headers;
  }
  if (phase_ == Phase::Headers) {
    if (!all_arrived()) return false;
    for (int r = 0; r < size_; ++r) check_received(theirs_[r], r);
    compare_headers();
    ++rounds_done_;
    phase_ = pairs_ ? Phase::Verdicts : Phase::Done;
    if (pairs_) {
      judge_pairs();
      exchange(&verdicts_[rank_], verdicts_.data(), sizeof(Verdict), true);
    }
  }
  if (phase_ == Phase::Verdicts) {
    if (!all_arrived()) return false;
    compare_verdicts();
    ++rounds_done_;
    phase_ = Phase::Done;
  }
  return true;
}

void CallCheck::exchange(const void* to, void* from, std::size_t bytes, bool same_to_all) {
  messages_.clear();
  for (int r = 0; r < size_; ++r)
    if (r != rank_)
      messages_.push_back(
          {transport_.irecv(channel_, static_cast<char*>(from) + r * bytes, bytes, r, tag_), r, true});
  for (int i = 1; i < size_; ++i) {  // spreads the load
    const int r = (rank_ + i) % size_;
    const char* const data = static_cast<const char*>(to) + (same_to_all ? 0 : r * bytes);
    messages_.push_back({transport_.isend(channel_, data, bytes, r, tag_), r, false});
  }
}

bool CallCheck::all_arrived() {
  // std::erase_if leaves copies behind if test() throws: abandon() would release a request twice.
  for (std::size_t i = 0; i < messages_.size();) {
    RecvStatus status;
    Message& message = messages_[i];
    if (!transport_.test(message.request, message.receive ? &status : nullptr)) {
      ++i;
      continue;
    }
    message = messages_.back();
    messages_.pop_back();
  }
  return messages_.empty();
}

void CallCheck::compare_headers() const {
  if (std::all_of(theirs_.begin(), theirs_.end(), [&](const CallHeader& h) { return equal(h, theirs_[0]); }))
    return;
  // Depends on the headers only, so that all ranks report the same text.
  std::uint32_t first = 0;
  const auto same_call = [&](std::uint32_t i) {
    return std::all_of(theirs_.begin(), theirs_.end(), [&](const CallHeader& h) {
      return i < h.calls && i < theirs_[0].calls && h.call[i] == theirs_[0].call[i];
    });
  };
  while (first < CallHeader::kCalls && same_call(first)) ++first;
  if (std::all_of(theirs_.begin(), theirs_.end(),
                  [&](const CallHeader& h) { return h.digest == theirs_[0].digest; }))
    first = 0;  // equal calls with different dtypes
  std::ostringstream text;
  text << "the ranks called different collectives: ";
  std::vector<bool> listed(size_, false);
  for (int r = 0; r < size_; ++r) {
    if (listed[r]) continue;
    std::vector<int> alike;
    for (int other = r; other < size_; ++other)
      if (equal(theirs_[other], theirs_[r])) alike.push_back(other), listed[other] = true;
    text << (r ? "; " : "") << (alike.size() > 1 ? "ranks " : "rank ") << rank_list(alike) << " called "
         << text_of(theirs_[r], first);
  }
  fail(ErrorCode::Mismatch, text.str());
}

std::string CallCheck::text_of(const CallHeader& header, std::uint32_t call) const {
  std::ostringstream text;
  text << header.name << " seq=" << header.sequence;
  if (header.detail[0]) text << ' ' << header.detail;
  // The detail comes from the torch side and may be equal for different calls.
  if (call >= header.calls || call >= CallHeader::kCalls) {
    text << " (" << header.calls << (header.calls == 1 ? " call)" : " calls)");
    return text.str();
  }
  const CallHeader::Call& c = header.call[call];
  text << " (";
  if (header.calls > 1) text << "call " << call + 1 << " of " << header.calls << ": ";
  text << mpi_gdr::name(c.collective);
  if (reduces(c.collective))
    text << ' ' << mpi_gdr::name(c.dtype) << " count=" << c.count << " op=" << mpi_gdr::name(c.op);
  else if (c.collective != Collective::Barrier)
    text << ' ' << header.dtype;
  if (!reduces(c.collective) && c.count) text << " bytes=" << c.count * item_size(c.dtype);
  if (has_root(c.collective)) text << " root=" << c.root;
  text << ')';
  return text.str();
}

void CallCheck::judge_pairs() {
  verdicts_.assign(size_, Verdict{0, -1, -1, 0, 0});
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(ours_[0].calls, CallHeader::kCalls); ++i)
    for (int r = 0; r < size_; ++r) {
      const CallHeader::Pair &mine = ours_[r].pair[i], &yours = theirs_[r].pair[i];
      if (mine.to_you != yours.from_you) {
        verdicts_[rank_] = {i, rank_, r, mine.to_you, yours.from_you};
        return;
      }
      if (mine.from_you != yours.to_you) {
        verdicts_[rank_] = {i, r, rank_, yours.to_you, mine.from_you};
        return;
      }
    }
}

void CallCheck::compare_verdicts() const {
  std::ostringstream text;
  std::vector<std::pair<int, int>> listed;  // both ranks of a pair report it
  for (const Verdict& v : verdicts_) {
    const std::pair pair{v.sender, v.receiver};
    if (v.sender < 0 || std::find(listed.begin(), listed.end(), pair) != listed.end()) continue;
    listed.push_back(pair);
    text << (listed.size() > 1 ? "; " : "") << "rank " << v.sender << " sends " << v.sent << " bytes to rank "
         << v.receiver << ", which expects " << v.expected << " bytes from it";
    if (ours_[0].calls > 1) text << " (call " << v.call + 1 << " of " << ours_[0].calls << ')';
  }
  if (!listed.empty())
    fail(ErrorCode::Mismatch, "the ranks called ", ours_[0].name, " seq=", ours_[0].sequence,
         " with splits that do not match: ", text.str());
}

std::vector<int> CallCheck::pending_peers() const {
  std::vector<int> peers;
  for (const Message& message : messages_)
    if (message.receive) peers.push_back(message.peer);
  if (peers.empty())
    for (const Message& message : messages_) peers.push_back(message.peer);
  return peers;
}

void CallCheck::abandon() noexcept {
  for (Message& message : messages_) abandon_quietly(transport_, message.request);
  messages_.clear();
}

std::unique_ptr<Execution> CallChecker::before(const Operation& operation, const std::vector<Call>& calls,
                                               Transport& transport, int tag) {
  const OperationInfo& info = operation.info();
  std::vector<const CollectiveSpec*> specs;
  for (const Call& call : calls) specs.push_back(&spec_of(call));
  const TensorShapes& shown = info.inputs.count() ? info.inputs : info.outputs;
  return std::make_unique<CallCheck>(specs, info.name, shown.count() ? shown[0].dtype : "", info.detail.str(),
                                     info.sequence, info.channel, tag, transport);
}

}  // namespace mpi_gdr
