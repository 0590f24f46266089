// From calls to an operation in the hands of the engine: what is checked, which algorithm runs, sequence
// numbers, the entry in the flight log.
#include <algorithm>
#include <new>
#include <numeric>
#include <set>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/memory_reserve.hpp"
#include "diagnostics/call_check.hpp"
#include "engine/calls.hpp"
#include "engine/engine.hpp"
#include "engine/join_execution.hpp"
#include "execution/device/program_part.hpp"
#include "execution/host/host_execution.hpp"
#include "execution/staged_execution.hpp"

namespace mpigdr {
namespace {

// One send in so many operations of a one-way collective waits for its receiver, so that a sender cannot run
// further ahead than this plus the window.
constexpr std::uint64_t kAcknowledgedEvery = 16;

// Bytes of a collective whose first steps cost the caller less than to wake the progress thread does. A
// message only has to be told of.
constexpr std::uint64_t kBegunHere = 64 * 1024;

// Message numbers of the flight log kept at most.
constexpr std::size_t kMessageNumbers = 65536;

bool sends_anything(const CollectiveSpec& spec) { return spec.count > 0 || !spec.counts.empty(); }

shm::CallId call_id(const CollectiveSpec& spec, std::uint64_t sequence) {
  const CallHeader::Call call = agreed_part(spec);
  return {sequence, call.count, call.root, call.collective, call.dtype, call.op};
}

// The operation's name and detail, wherever they have got to.
std::string text_of(const IssueOptions& options, const OperationInfo& info) {
  const std::string& name = info.name.empty() ? options.name : info.name;
  const std::string& detail = info.detail.empty() ? options.detail : info.detail;
  return (name.empty() ? "an operation" : name) + (detail.empty() ? "" : ' ' + detail);
}

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

}  // namespace

void Group::check(const CollectiveSpec& spec) const {
  if (spec.root < 0 || spec.root >= size_)
    fail(ErrorCode::InvalidUsage, mpigdr::name(spec.collective), ": root=", spec.root,
         " is not a rank of group ", name(), ": expected 0..", size_ - 1);
  if (!supports(spec.op, spec.dtype))
    fail(ErrorCode::InvalidUsage, mpigdr::name(spec.collective), ": op=", mpigdr::name(spec.op),
         " is not defined on ", mpigdr::name(spec.dtype), " tensors");
}

std::unique_ptr<Execution> Group::make_check(const std::vector<Call>& calls, const OperationInfo& info,
                                             std::string_view dtype) const {
  std::vector<const CollectiveSpec*> specs;
  for (const Call& call : calls) specs.push_back(&spec_of(call));
  const int tag = static_cast<int>(info.sequence % tag_slots()) * kTagsPerCollective + kHeaderTag;
  return std::make_unique<CallCheck>(specs, info.name, dtype, info.detail, info.sequence, info.channel, tag,
                                     *transport_);
}

void Group::check(const Call& call) const {
  std::visit(Overloaded{
                 [&](const CollectiveCall& c) { check(c.spec); },
                 [&](const StagedCall& s) { check(s.first.spec); },
                 [&](const MessageCall& m) {
                   const char* what = m.send ? "send" : "recv";
                   const bool any = !m.send && m.peer == kAnySource;
                   if (!any && (m.peer < 0 || m.peer >= size_))
                     fail(ErrorCode::InvalidUsage, what, ": peer=", m.peer, " is not a rank of group ",
                          name(), ": expected 0..", size_ - 1);
                   if (m.peer == rank_)
                     fail(ErrorCode::InvalidUsage, what, ": peer=", m.peer, " is this rank itself");
                   if (m.tag < 0 || m.tag > max_tag_)
                     fail(ErrorCode::InvalidUsage, what, ": tag=", m.tag, " is out of range: expected 0..",
                          max_tag_);
                 },
             },
             call);
}

std::unique_ptr<Execution> Group::make_part(const Call& call, Channel channel, std::uint64_t sequence,
                                            Counters& counters, std::string& algorithm) {
  if (const auto* message = std::get_if<MessageCall>(&call)) {
    algorithm = message_path_;
    return std::make_unique<MessageExecution>(*message, *transport_);
  }
  if (const auto* staged = std::get_if<StagedCall>(&call)) {
    auto next = [this, channel, sequence, next = staged->next]() -> std::unique_ptr<Execution> {
      const std::optional<CollectiveCall> second = next();
      return second ? make_second(*second, channel, sequence + 1) : nullptr;
    };
    return std::make_unique<StagedExecution>(
        make_collective(staged->first, channel, sequence, counters, algorithm), std::move(next));
  }
  return make_collective(std::get<CollectiveCall>(call), channel, sequence, counters, algorithm);
}

bool Group::is_acknowledged(bool one_way, const CollectiveSpec& spec, Counters& counters) {
  // Counted over those that send anything: an empty one acknowledges nothing. Both sides of a message must
  // agree, so that only what is equal on all ranks may count; uneven one-way blocks are not all empty.
  return one_way && sends_anything(spec) && counters.one_way++ % kAcknowledgedEvery == 0;
}

std::unique_ptr<Execution> Group::make_collective(const CollectiveCall& c, Channel channel,
                                                  std::uint64_t sequence, Counters& counters,
                                                  std::string& algorithm) {
  const Plan plan = planner_->plan(c.spec, has_native(c.spec), reach(false), options_.topology);
  algorithm = plan.algorithm->name;
  if (!plan.schedule) {
    const NativeCollective native{c.spec.collective, c.input,   c.output,   c.spec.count,
                                  c.spec.dtype,      c.spec.op, c.spec.root};
    return std::make_unique<NativeExecution>(native, channel, *transport_);
  }
  const bool acknowledged = is_acknowledged(plan.schedule->one_way, c.spec, counters);
  return run_schedule(plan, c, channel, sequence, acknowledged, plan.schedule->shared ? counters.slots++ : 0);
}

std::unique_ptr<Execution> Group::make_second(const CollectiveCall& c, Channel channel,
                                              std::uint64_t sequence) {
  check(c.spec);
  const Plan plan = planner_->plan(c.spec, false, Reach::None, options_.topology);
  // Not counted among the one-way ones, whose count belongs to the issuing threads: each acknowledges. Nor
  // among the uses of slots, for the same reason: it goes through the transport.
  return run_schedule(plan, c, channel, sequence, plan.schedule->one_way && sends_anything(c.spec), 0);
}

Binding Group::bind(const CollectiveCall& c, Channel channel, std::uint64_t sequence,
                    bool acknowledged) const {
  Binding binding;
  binding.input = c.input;
  binding.output = c.output;
  binding.dtype = c.spec.dtype;
  binding.op = c.spec.op;
  binding.factor = c.factor;
  binding.divisor = c.spec.op == ReduceOp::Avg ? static_cast<std::uint32_t>(size_) : 1;
  binding.channel = channel;
  binding.tag_base = static_cast<int>(sequence % tag_slots()) * kTagsPerCollective;
  binding.acknowledged = acknowledged;
  return binding;
}

std::unique_ptr<Execution> Group::run_schedule(const Plan& plan, const CollectiveCall& c, Channel channel,
                                               std::uint64_t sequence, bool acknowledged,
                                               std::uint64_t slot_use) {
  Binding binding = bind(c, channel, sequence, acknowledged);
  binding.node = options_.node.get();
  binding.slot_use = slot_use;
  binding.observer = engine_.trace().get();
  if (plan.schedule->shared) {
    binding.call = call_id(c.spec, sequence);
    binding.send_counts = c.spec.send_counts;
    binding.recv_counts = c.spec.recv_counts;
  }
  return std::make_unique<HostExecution>(plan.schedule, binding, *transport_, *scratch_);
}

std::uint64_t Group::bound_all_to_all(std::vector<Call>& calls, Channel channel, bool on_device) const {
  // Who sends to whom is known to nobody as a whole, and may be all one way. A barrier now and then holds the
  // ranks together; in shared memory the slots do.
  const std::uint64_t before = all_to_alls_[static_cast<int>(channel)];
  const std::uint64_t after =
      before + std::count_if(calls.begin(), calls.end(), [&](const Call& call) {
        return is_all_to_all(call) && !choose(spec_of(call), on_device).algorithm->shared;
      });
  if (before / kAcknowledgedEvery == after / kAcknowledgedEvery) return after;
  CollectiveCall barrier;
  barrier.spec.collective = Collective::Barrier;
  barrier.spec.rank = rank_;
  barrier.spec.size = size_;
  calls.emplace_back(std::move(barrier));
  return after;
}

void Group::log_operation(OperationInfo& info, const std::vector<Call>& calls, const IssueOptions& options) {
  const auto fill_common = [&](FlightEntry& entry) {
    entry.group = flight_group_;
    entry.name = info.name;
    entry.torch_name = options.profiler_name;
    entry.detail = info.detail;
    entry.algorithm = info.algorithm;
    entry.inputs = options.inputs;
    entry.outputs = options.outputs;
    entry.created = flight_->nanoseconds(info.issued);
    entry.timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(info.deadline - info.issued).count();
  };
  const bool collective = info.channel != Channel::PointToPoint;
  // A program may use a tag per message: then the numbers, which serve matching only, start anew now and
  // then.
  if (messages_.size() > kMessageNumbers) messages_.clear();
  info.entries = collective ? 1 : static_cast<std::uint32_t>(calls.size());
  info.first_entry = flight_->record(info.channel, info.entries, [&](FlightEntry& entry, std::uint32_t i) {
    fill_common(entry);
    if (collective) {
      entry.sequence = info.sequence;
      entry.sequences = info.sequences;
      for (const Call& call : calls) entry.bytes += bytes_of(call);
    } else {
      const auto& message = std::get<MessageCall>(calls[i]);
      entry.send = message.send;
      entry.peer = message.peer;
      entry.tag = message.tag;
      entry.bytes = message.bytes;
      entry.sequence = messages_[{message.send, message.peer, message.tag}]++;
    }
  });
}

void Group::check(const std::vector<Call>& calls, const std::string& name) const {
  std::uint64_t collectives = 0, messages = 0;  // sequence numbers that the calls take
  for (const Call& call : calls) {
    check(call);
    sequences_of(call) ? collectives += sequences_of(call) : ++messages;
  }
  if (collectives != 0 && messages != 0)
    fail(ErrorCode::InvalidUsage, name, ": collectives and messages in one operation: expected one kind");
  if (collectives > tag_slots() / 4)
    fail(ErrorCode::InvalidUsage, name, ": ", collectives,
         " collectives in one coalesced operation: at most ", tag_slots() / 4, " are supported");
}

Group::Preview Group::preview(const std::vector<Call>& calls, Channel channel, bool on_device) const {
  Preview preview;
  std::lock_guard lock(issue_mutex_);  // the transport goes only after shut()
  if (shut_ || failed()) return preview;
  try {
    check(calls, "preview");
    std::set<std::string_view> algorithms;
    for (const Call& call : calls) {
      preview.bytes += bytes_of(call);
      algorithms.insert(sequences_of(call) ? choose(spec_of(call), on_device).algorithm->name : "p2p");
    }
    if (!algorithms.empty()) preview.algorithm.clear();
    for (const std::string_view name : algorithms) {
      if (!preview.algorithm.empty()) preview.algorithm += '+';
      preview.algorithm += name;
    }
    if (!algorithms.count("p2p")) preview.sequence = next_sequence_[static_cast<int>(channel)];
    return preview;
  } catch (const std::exception&) {
    return {};  // issue() will say so
  }
}

OperationPtr Group::issue(std::vector<Call> calls, IssueOptions options) {
  check(calls, options.name);
  OperationInfo info;
  // The others carry the operation out: a later one of this rank must not be matched with it.
  const auto refusal = [&](const char* why) {
    std::string text = text_of(options, info) + ": " + why;
    fail_with("the group failed earlier: " + text, ErrorCode::System, options.stream);
    return text;
  };
  try {
    bool begin_here = false;
    OperationPtr operation = issue(std::move(calls), options, info, begin_here);
    engine_.carry(operation, begin_here);
    return operation;
  } catch (const NoMemory& e) {
    throw NoMemory(refusal(e.what()));
  } catch (const Error& e) {
    // Others are the caller's mistakes. And what has failed the group by now, as launch() does, says it all.
    if ((e.code() != ErrorCode::System && e.code() != ErrorCode::Internal) || failed()) throw;
    throw Error(e.code(), refusal(e.what()));
  } catch (const std::bad_alloc&) {
    release_memory_reserve();
    throw NoMemory(refusal(kNoMemoryForRecords));
  }
}

OperationPtr Group::issue(std::vector<Call> calls, IssueOptions& options, OperationInfo& info,
                          bool& begin_here) {
  // The order of sequence numbers is the order into the engine, and into a device's queues.
  std::lock_guard lock(issue_mutex_);
  info.name = std::move(options.name);
  info.detail = std::move(options.detail);
  // What follows asks the transport, which such a group has no more.
  if (failed()) fail(ErrorCode::Aborted, info.name, ": ", failure());
  if (shut_) fail(ErrorCode::InvalidUsage, info.name, ": group ", name(), " has been destroyed");

  const std::size_t asked_for = calls.size();
  const std::uint64_t all_to_alls = bound_all_to_all(calls, options.channel, options.stream);
  std::uint64_t collectives = 0;  // sequence numbers that the calls take
  for (const Call& call : calls) collectives += sequences_of(call);
  const Channel channel = collectives ? options.channel : Channel::PointToPoint;

  info.issued = Clock::now();
  info.deadline = info.issued + options.timeout.value_or(timeout());
  info.channel = channel;
  info.sequences = collectives;
  std::uint64_t& next = next_sequence_[static_cast<int>(channel)];
  info.sequence = next;
  std::vector<std::unique_ptr<Execution>> parts;
  parts.reserve(calls.size());
  std::uint64_t sequence = next;
  Counters counters = counters_[static_cast<int>(channel)];
  DeviceWork device;
  std::vector<std::shared_ptr<const bool>> done;  // by program of `device`
  std::size_t looked_at = 0;
  for (const Call& call : calls) {
    std::string algorithm;
    if (options.stream) {
      make_programs(std::get<CollectiveCall>(call), channel, sequence, counters, *options.stream, algorithm,
                    device);
      while (done.size() < device.programs.size()) {
        const DevicePart& made = device.programs[done.size()];
        std::vector<std::shared_ptr<const bool>> before;
        for (const int i : {made.follows, made.behind})
          if (i >= 0) before.push_back(done[static_cast<std::size_t>(i)]);
        auto part = std::make_unique<ProgramPart>(made.program, std::move(before));
        done.push_back(part->done());
        parts.push_back(std::move(part));
      }
    } else {
      parts.push_back(make_part(call, channel, sequence, counters, algorithm));
    }
    if (const auto* message = std::get_if<MessageCall>(&call)) {
      turns_taken_ = turns_taken_ || options.gate;
      if (turns_taken_)
        parts.back() =
            std::make_unique<GatedExecution>(std::move(parts.back()), options.gate, turns_.take(*message));
    }
    if (++looked_at <= asked_for) info.algorithm = std::move(algorithm);  // not the appended barrier's
    sequence += sequences_of(call);
  }
  if (options.join) parts.push_back(std::make_unique<JoinExecution>(std::move(options.join)));
  std::unique_ptr<Execution> check;
  if (options_.check_calls && collectives && size_ > 1) {
    const TensorShapes& shown = options.inputs.count() ? options.inputs : options.outputs;
    check = make_check(calls, info, shown.count() ? shown[0].dtype : "");
  }
  if (flight_) log_operation(info, calls, options);
  if (engine_.trace()) {
    for (const Call& call : calls) info.bytes += bytes_of(call);
    info.count = info.bytes / options.item_size;
    info.dtype = std::move(options.dtype);
  }
  const std::uint64_t first_entry = info.first_entry;
  const std::uint32_t entries = info.entries;
  if (!device.kept.empty())
    options.keepalive =
        std::make_shared<std::pair<std::shared_ptr<void>, std::vector<std::shared_ptr<void>>>>(
            std::move(options.keepalive), std::move(device.kept));
  const bool on_device = options.stream || options.gate;
  auto operation =
      std::make_shared<Operation>(shared_from_this(), std::move(info), std::move(parts),
                                  std::move(options.keepalive), options.background || on_device, on_device);
  if (on_device) operation->on_release_device(releases(device.programs, options.gate));
  if (check) operation->precede_by(std::move(check));
  if (log_enabled(LogLevel::Trace)) log_line(LogLevel::Trace, "COLL", operation->describe());
  if (options.on_finished)
    operation->on_finished([told = std::move(options.on_finished), operation] { told(*operation); });
  begin_here = operation->background() && operation->keeps_to_memory() &&
               (collectives ? calls.size() == 1 && largest_buffer(calls[0]) <= kBegunHere : !turns_taken_);
  outstanding_.fetch_add(1, std::memory_order_acq_rel);
  try {
    engine_.submit(operation);
  } catch (...) {
    for (std::uint32_t i = 0; i < entries; ++i) flight_->forget(first_entry + i);
    one_finished();
    Completer::Callbacks dropped;  // one of them holds the operation itself
    operation->try_finish(std::current_exception(), dropped);
    throw;
  }
  // Only now: an operation that was refused has used none of these.
  next = sequence;
  counters_[static_cast<int>(channel)] = counters;
  if (collectives) all_to_alls_[static_cast<int>(channel)] = all_to_alls;
  if (options.stream) {
    // It may be shut out half way, by a thread that waits for the device: what is there by then waits for
    // messages.
    engine_.carry(operation, false);
    launch(*operation, device, *options.stream);
  }
  return operation;
}

}  // namespace mpigdr
