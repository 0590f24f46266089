// NCCL among the ranks of a group on one node, each with a device of its own.
//
// All communicators of a device submit to one stream, in the order of issue: kernels of two communicators
// that wait for other ranks would block each other if the devices ran them in different orders. Work that was
// aborted may block the stream: communicators made before it has ended share another one.
//
// Threads: connect() and warm_up() block, up to their deadline; submit() may block until abort(). submit()
// and record() are called by issuing threads, of several groups at once. error() and abort() by any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/library_call.hpp"
#include "common/types.hpp"
#include "device/device.hpp"
#include "transport/ipc/node_flags.hpp"
#include "transport/nccl/library.hpp"

namespace mpi_gdr::nccl {

using Deadline = std::chrono::steady_clock::time_point;

// Whether NCCL has this type and, for reductions, the operation with our results up to the order of operands.
bool serves(DataType dtype);
bool serves(DataType dtype, ReduceOp op);

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Among the ranks of `node`. Allocates what warm_up() needs. Throws System, NoMemory.
  static std::shared_ptr<Communicator> make(const Library& library, Device& device,
                                            std::shared_ptr<const ipc::NodeFlags> node);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // The steps of the set-up. Call each only when all ranks have agreed that the previous one succeeded. Throw
  // System; Timeout with the ranks that have not begun the step; Remote if it failed on another rank.
  void draw_id();  // on the first rank
  void connect(Deadline deadline);
  // Runs each kind of call in several sizes, and messages between all pairs, because NCCL connects the ranks
  // for a kind and size at its first use.
  void warm_up(Deadline deadline);

  struct Arguments {
    const void* input;
    void* output;
    DataType dtype;
    ReduceOp op;
    double factor;  // of PreMulSum
  };
  // Submits the calls behind the earlier work of `before` and ahead of later work of `after`. Throws System.
  void submit(std::span<const LibraryCall> calls, const Arguments& arguments, DeviceQueue& before,
              DeviceQueue& after, std::optional<Deadline> deadline = {});
  // Records the calls into the graph of the captured `queue`; the graph must not outlive the communicator.
  void record(std::span<const LibraryCall> calls, const Arguments& arguments, DeviceQueue& queue,
              Deadline deadline);
  // An error that NCCL has found, or "": none, or another thread is submitting. Does not wait.
  std::string error() const;
  // Ends the work of this rank's device with undefined results, on a thread of its own. The other ranks do
  // not notice. Later calls fail.
  void abort() noexcept;

  const ipc::NodeFlags& node() const { return *node_; }
  const Device& device() const { return device_; }
  std::string version() const { return version_text(library_.version); }

 private:
  struct OfDevice;  // what communicators of a device share
  struct Trial;     // what warm_up() needs
  Communicator(const Library& library, Device& device, std::shared_ptr<const ipc::NodeFlags> node);
  void check(Result result, const char* what) const;
  template <typename F>
  void step(const F& take);                   // of the set-up
  void check_peers(Deadline deadline) const;  // throws: late, or another rank has failed
  // Blocks until NCCL has processed the call that returned `result`.
  void settle(Comm* comm, Result result, const char* what, std::optional<Deadline> deadline = {}) const;
  void enqueue(std::span<const LibraryCall> calls, const Arguments& arguments, Stream stream,
               std::optional<Deadline> deadline) const;

  const Library& library_;
  Device& device_;
  const std::shared_ptr<const ipc::NodeFlags> node_;
  OfDevice& shared_;
  std::unique_ptr<Trial> trial_;      // until warm_up() has ended
  std::uint64_t steps_ = 0;           // begun
  std::atomic<Comm*> comm_{nullptr};  // constant, until abort() sets it to null
  std::atomic<bool> aborted_{false};
};

}  // namespace mpi_gdr::nccl
