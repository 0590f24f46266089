// Ends operations and groups. The first failure of a group writes the flight log, and its text names the
// file. Any thread, except where the progress role (progress.hpp) is required.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "engine/completer.hpp"
#include "engine/engine_options.hpp"
#include "engine/operation.hpp"
#include "engine/outstanding.hpp"

namespace mpi_gdr {

class Endings {
 public:
  // References outlive it.
  Endings(const EngineOptions& options, Outstanding& outstanding, Completer& completer)
      : options_(options), outstanding_(outstanding), completer_(completer) {}

  const Observers& observers() const { return observers_; }

  // A null error requires the role. False: another thread has ended it.
  bool finish(Operation& operation, std::exception_ptr error) noexcept;
  // With the role. Leaks buffers that a peer may still write to.
  void fail_operation(Operation& operation, std::exception_ptr error) noexcept;
  // Fails background operations of a group, or of all (null), which may have no waiter. Needs no role.
  void end_background(const GroupState* group, const std::string& reason);

  // With the role. Fails the group of `operation` unless it has failed; returns the operation's error.
  std::exception_ptr fail_group(Operation& operation, ErrorCode code, std::string text,
                                Others others = Others::Unaware);
  // Notifies observers of a first failure; returns `text` and what they add. `pending` may be null.
  std::string report_failure(Operation& operation, std::string text, const std::vector<int>* pending);
  enum class Waiting { ForPeers, ForItsTurn, ForTheRole };
  // `waiting` ForPeers: with the role.
  std::string timeout_text(const Operation& operation, Waiting waiting, const std::vector<int>& peers) const;
  // NoMemory, with the operation's name if there is memory for it.
  std::exception_ptr memory_error(const Operation& operation, std::string_view text) const noexcept;

  // With the role. Fills `ended`, an empty list, with succeeded operations whose buffers no waiter releases.
  void take_unreleased(std::vector<OperationPtr>& ended) { ended.swap(unreleased_); }

 private:
  const EngineOptions& options_;
  Outstanding& outstanding_;
  Completer& completer_;
  const Observers observers_{options_.observers};
  // Allocated in advance.
  const std::exception_ptr no_memory_ = std::make_exception_ptr(NoMemory("out of memory"));
  std::vector<OperationPtr> unreleased_;  // with the role
};

std::exception_ptr make_error(ErrorCode code, const std::string& text);

}  // namespace mpi_gdr
