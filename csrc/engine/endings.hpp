// How operations and groups end. The first failure of a group writes the flight log, and its text says where.
//
// Threads: any, but where the progress role (progress.hpp) is asked for.
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
  // All outlive it.
  Endings(const EngineOptions& options, Outstanding& outstanding, Completer& completer)
      : options_(options), outstanding_(outstanding), completer_(completer) {}

  const Observers& observers() const { return observers_; }

  // Ends an operation, with the role if it ends well (null). False: somebody else did.
  bool finish(Operation& operation, std::exception_ptr error) noexcept;
  // With the role: ends it with an error and leaks what a peer may still write to.
  void fail_operation(Operation& operation, std::exception_ptr error) noexcept;
  // Ends operations that nobody may be waiting for, of one group or of all (null), without the role.
  void end_background(const GroupState* group, const std::string& reason);

  // The error with which `operation` ends after a first failure of its group.
  std::exception_ptr fail_group(Operation& operation, ErrorCode code, std::string text,
                                Others others = Others::Unaware);
  // Notifies the observers of the first failure of a group; returns `text` with what they add. `pending`: the
  // ranks that the operation waits for; null: not known.
  std::string tell_failure(Operation& operation, std::string text, const std::vector<int>* pending);
  enum class Waiting { ForPeers, ForItsTurn, ForTheRole };
  std::string timeout_text(const Operation& operation, Waiting waiting, const std::vector<int>& peers) const;
  // NoMemory, with the operation's name; without it where there is no memory for that.
  std::exception_ptr memory_error(const Operation& operation, std::string_view text) const noexcept;

  // With the role: what ended well since the last call, with buffers that no waiter releases. `ended`: empty.
  void take_unreleased(std::vector<OperationPtr>& ended) { ended.swap(unreleased_); }

 private:
  const EngineOptions& options_;
  Outstanding& outstanding_;
  Completer& completer_;
  const Observers observers_{options_.observers};
  // Made while there is memory.
  const std::exception_ptr no_memory_ = std::make_exception_ptr(NoMemory("no memory to go on"));
  std::vector<OperationPtr> unreleased_;  // with the role
};

std::exception_ptr make_error(ErrorCode code, const std::string& text);

}  // namespace mpi_gdr
