#include "engine/group.hpp"

#include <new>
#include <numeric>
#include <set>

#include "common/error.hpp"
#include "common/keep_until_exit.hpp"
#include "common/log.hpp"
#include "common/memory_reserve.hpp"
#include "common/recycled.hpp"
#include "engine/engine.hpp"
#include "engine/join_execution.hpp"

namespace mpi_gdr {
namespace {

// Bytes up to which starting a collective costs less than waking the progress thread.
constexpr std::uint64_t kBegunHere = 64 * 1024;

GroupInfo info_of(const GroupOptions& options, int size) {
  GroupInfo info{options.name, "", options.is_default, options.uid, options.members};
  if (info.members.empty()) {
    info.members.resize(static_cast<std::size_t>(size));
    std::iota(info.members.begin(), info.members.end(), 0);
  }
  return info;
}

}  // namespace

Group::Group(Engine& engine, GroupOptions options, std::unique_ptr<Transport> transport,
             std::shared_ptr<Planner> planner)
    : GroupState(std::move(options), std::move(transport), engine.observers().one_by_one()),
      engine_(engine),
      message_path_(transport_->message_path()),
      timeout_(options_.timeout),
      programs_(
          {options_, std::move(planner), engine.scratch(), engine.observers().rounds(), &engine.traffic()},
          *transport_) {
  keep_memory_reserve();
  const GroupInfo info = info_of(options_, size_);
  engine.observers().each(observed_, [&](Observer& o, auto& group) { group = o.opened(info); });
}

void Group::describe(const std::string& description) {
  engine_.observers().each(observed_, [&](Observer& o, auto group) { o.describe(group, description); });
}

void Group::check(const std::vector<Call>& calls, std::string_view name) const {
  mpi_gdr::check(calls, name, shape());
}

std::string Group::algorithm(const CollectiveSpec& spec) const {
  mpi_gdr::check(spec, mpi_gdr::name(spec.collective), shape());
  if (failed()) fail(failure_code(), "the group failed earlier: ", failure());
  std::lock_guard lock(issue_mutex_);  // shut() precedes the end of the transport
  if (shut_) fail(ErrorCode::InvalidUsage, "algorithm: group ", name(), " has been destroyed");
  return programs_.algorithm(spec, false);
}

Group::Preview Group::preview(const std::vector<Call>& calls, Channel channel, bool on_device) const {
  Preview preview;
  std::lock_guard lock(issue_mutex_);  // shut() precedes the end of the transport
  if (shut_ || failed()) return preview;
  try {
    check(calls, "preview");
    std::set<std::string_view> algorithms;
    for (const Call& call : calls) {
      const ResolvedCall resolved = resolve(call);
      preview.bytes += resolved.bytes;
      algorithms.insert(resolved.sequences ? programs_.algorithm(spec_of(call), on_device) : "p2p");
    }
    if (!algorithms.empty()) preview.algorithm.clear();
    for (const std::string_view name : algorithms) {
      if (!preview.algorithm.empty()) preview.algorithm += '+';
      preview.algorithm += name;
    }
    if (!algorithms.count("p2p")) preview.sequence = next_sequence_[static_cast<int>(channel)];
    return preview;
  } catch (const std::exception&) {
    return {};  // issue() reports it
  }
}

void Group::check_open(std::string_view operation) const {
  if (failed()) fail(ErrorCode::Aborted, operation, ": ", failure());
  if (shut_) fail(ErrorCode::InvalidUsage, operation, ": group ", name(), " has been destroyed");
}

OperationPtr Group::issue(std::vector<Call> calls, IssueOptions&& options) {
  check(calls, options.name);
  Issue issue{std::move(calls), options};
  // Fails the group, because the other ranks run the operation and must not match it with this rank's next.
  const auto refusal = [&](const char* why) {
    std::string text = std::string(options.name.empty() ? "an operation" : options.name) +
                       (options.detail.empty() ? "" : ' ' + options.detail.str()) + ": " + why;
    fail_with("the group failed earlier: " + text, ErrorCode::System, options.stream);
    return text;
  };
  try {
    OperationPtr operation;
    {
      // One order for sequence numbers, the engine and a device's queues.
      std::lock_guard lock(issue_mutex_);
      check_open(options.name);  // the rest uses the transport
      operation = issue_locked(issue);
    }
    engine_.carry(operation, issue.begin_here);
    return operation;
  } catch (const NoMemory& e) {
    throw NoMemory(refusal(e.what()));
  } catch (const Error& e) {
    // Other errors are the caller's. A group that has already failed, as after launch(), keeps its reason.
    if ((e.code() != ErrorCode::System && e.code() != ErrorCode::Internal) || failed()) throw;
    throw Error(e.code(), refusal(e.what()));
  } catch (const std::bad_alloc&) {
    release_memory_reserve();
    throw NoMemory(refusal(kNoMemoryForRecords));
  }
}

OperationPtr Group::issue_locked(Issue& issue) {
  IssueOptions& options = issue.options;
  IssuedInfo& info = issue.info;
  const bool messages = issue.calls.empty() || std::holds_alternative<MessageCall>(issue.calls.front());
  info.channel = messages ? Channel::PointToPoint : options.channel;
  info.messages = messages ? static_cast<std::uint32_t>(issue.calls.size()) : 0;
  info.issued = Clock::now();
  info.deadline = info.issued + options.timeout.value_or(timeout());
  const auto channel = static_cast<std::size_t>(info.channel);
  info.sequence = next_sequence_[channel];
  issue.counters = counters_[channel];

  make_parts(issue);
  const OperationPtr operation = make_operation(issue);
  const std::uint64_t sequences = operation->info().sequences;
  outstanding_.fetch_add(1, std::memory_order_acq_rel);
  try {
    notify_observers(*operation, issue.calls);
    issue.begin_here =
        operation->background() && operation->uses_only_memory() &&
        (sequences ? issue.calls.size() == 1 && issue.largest_buffer <= kBegunHere : !turns_taken_);
    engine_.submit(operation);
  } catch (...) {
    engine_.observers().each(operation->numbers,
                             [&](Observer& o, const auto& number) { o.refused(*operation, number); });
    one_finished();
    try {
      static_cast<Description&>(options) = operation->info();
    } catch (const std::bad_alloc&) {
    }
    Completer::Callbacks dropped;  // a callback owns the operation: breaks the cycle
    operation->try_finish(std::current_exception(), Clock::now(), dropped);
    throw;
  }
  next_sequence_[channel] += sequences;  // a refused operation uses none of these
  counters_[channel] = issue.counters;
  history_[channel] = issue.counters.history;
  if (options.stream) {
    // Before launch(), which may block behind a thread that waits for the device.
    engine_.carry(operation, false);
    launch(*operation, issue.device, *options.stream);
  }
  return operation;
}

void Group::make_parts(Issue& issue) {
  const IssueOptions& options = issue.options;
  IssuedInfo& info = issue.info;
  std::vector<Operation::Part>& parts = issue.parts;
  const std::size_t requested = issue.calls.size();
  const Counters counted = issue.counters;
  parts.reserve(requested + (options.join ? 1 : 0));
  if (options.stream) issue.device.programs = std::make_shared<DeviceParts>();
  for (std::size_t i = 0; i < issue.calls.size(); ++i) {
    const Call& call = issue.calls[i];
    const ResolvedCall resolved = resolve(call, info.sequence + info.sequences, issue.counters.history);
    if (resolved.sequences) {
      info.call = record(info.channel, resolved.record.sequence) = resolved.record;
      issue.counters.history = resolved.record.history;
    }
    info.sequences += resolved.sequences;
    info.bytes += resolved.bytes;
    issue.largest_buffer = std::max(issue.largest_buffer, resolved.largest_buffer);
    std::string_view algorithm;
    const ProgramFactory::Numbered numbered{info.channel, resolved.record, issue.counters, algorithm};
    if (options.stream) {
      programs_.make_programs(std::get<CollectiveCall>(call), numbered, *options.stream, issue.device);
    } else {
      parts.push_back({programs_.make_part(call, numbered)});
    }
    if (const auto* message = std::get_if<MessageCall>(&call)) {
      turns_taken_ = turns_taken_ || options.gate;
      if (turns_taken_)
        parts.back().execution = std::make_unique<GatedExecution>(std::move(parts.back().execution),
                                                                  options.gate, turns_.take(*message));
    }
    if (i < requested) info.algorithm = algorithm;  // not an added barrier's
    if (i + 1 == requested && ProgramFactory::barrier_is_due(counted, issue.counters)) {
      CollectiveCall barrier;
      barrier.spec = {Collective::Barrier, rank_, size_};
      issue.calls.emplace_back(std::move(barrier));  // invalidates `call`
    }
  }
  if (options.stream) parts.push_back({progress_of(issue.device.programs)});
  if (options.join) parts.push_back({std::make_unique<JoinExecution>(std::move(issue.options.join))});
}

OperationPtr Group::make_operation(Issue& issue) {
  IssueOptions& options = issue.options;
  if (!issue.device.kept.empty())
    options.keepalive =
        std::make_shared<std::pair<std::shared_ptr<void>, std::vector<std::shared_ptr<void>>>>(
            std::move(options.keepalive), std::move(issue.device.kept));
  const bool on_device = options.stream || options.gate;
  auto operation = std::allocate_shared<Operation>(
      Recycled<Operation>(), shared_from_this(), std::move(static_cast<Description&>(options)), issue.info,
      std::move(issue.parts), std::move(options.keepalive), options.background || on_device, on_device);
  if (on_device)  // weak: the operation keeps neither
    operation->on_release_device([programs = std::weak_ptr<DeviceParts>(issue.device.programs),
                                  gate = std::weak_ptr<Gate>(options.gate)] {
      const auto held = programs.lock();
      const bool through = !held || held->release_device();
      if (const auto joined = gate.lock()) joined->open();
      return through;
    });
  if (log_enabled(LogLevel::Trace)) log_line(LogLevel::Trace, "COLL", operation->describe());
  if (options.on_finished)
    operation->on_finished([callback = std::move(options.on_finished), operation] { callback(*operation); });
  operation->on_ended = std::move(options.on_ended);
  return operation;
}

void Group::notify_observers(Operation& operation, const std::vector<Call>& calls) {
  const OperationInfo& info = operation.info();
  const int tag = programs_.tags().header(info.sequence);
  std::size_t i = 0;
  engine_.observers().each(observed_, [&](Observer& o, auto group) {
    std::unique_ptr<Execution> before;
    if (info.sequences && size_ > 1) before = o.before(operation, calls, *transport_, tag);
    if (before) operation.precede_by(std::move(before));
    operation.numbers[i++] = o.issued(group, operation, calls);
  });
}

void Group::launch(Operation& operation, const DeviceWork& work, const StreamTarget& target) {
  try {
    work.programs->launch(target);
    // The group may have failed meanwhile: unblock what was launched since.
    if (operation.finished() && operation.error()) operation.release_device();
  } catch (const std::exception& e) {
    // The caller gets no Work that would unblock the device.
    operation.on_finished([refused = operation.shared_from_this()] { unblock_device(refused); });
    if (operation.finished() && operation.error()) std::rethrow_exception(operation.error());  // it says why
    const std::string text = operation.describe() + ": the device refused its part: " + e.what();
    fail_with("the group failed earlier: " + text, ErrorCode::System, true);
    engine_.carry(operation.shared_from_this(), false);  // ends it
    fail(ErrorCode::System, text);
  }
}

void Group::capture(const std::vector<Call>& calls, const std::string& name, const StreamTarget& target,
                    std::function<void()> on_failure) {
  check(calls, name);
  std::lock_guard lock(issue_mutex_);
  check_open(name);
  const ProgramFactory::Captured captured = programs_.make_captured(calls, name, target);
  if (captured.waits) this->on_failure(FailureOf::Replays, std::move(on_failure));
  check_open(name);  // a later failure calls the callback
  programs_.record(captured, target);
}

void Group::share_devices(std::shared_ptr<const ipc::DeviceNode> node) {
  std::unique_lock lock(issue_mutex_);
  notify_on_failure(Notified::Devices, node);
  programs_.share_devices(node);
  lock.unlock();  // releasing the previous one may take long
  if (node && (failed() || programs_.captured())) keep_until_exit(std::move(node));
}

void Group::share_library(std::shared_ptr<nccl::Communicator> communicator) {
  std::unique_lock lock(issue_mutex_);
  const ipc::NodeFlags* const flags = communicator ? &communicator->node() : nullptr;
  notify_on_failure(Notified::Library, {communicator, flags});
  programs_.share_library(communicator);  // now `communicator` is the previous one
  lock.unlock();
  // The other ranks may be gone, and the end of a communicator waits for them.
  if (communicator && failed()) communicator->abort();
  if (communicator && programs_.captured_by_library()) keep_until_exit(std::move(communicator));
}

bool Group::by_library(const std::vector<Call>& calls) const {
  const std::lock_guard lock(issue_mutex_);
  return std::ranges::all_of(calls, [&](const Call& call) {
    const auto* const collective = std::get_if<CollectiveCall>(&call);
    return !collective || programs_.by_library(collective->spec);
  });
}

}  // namespace mpi_gdr
