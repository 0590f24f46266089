// NCCL among the ranks of a group on one node, each with a device of its own.
//
// All communicators of a device submit to one stream, in the order of issue: kernels of two communicators
// that wait for other ranks would block each other if the devices ran them in different orders.
//
// Threads: make() and warm_up() block, up to their deadline; submit() may block until abort(). submit() and
// record() are called by issuing threads, of several groups at once. error() and abort() by any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
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

// Whether NCCL has this type, and for reductions this operation on it with the same result but for the order.
bool serves(DataType dtype);
bool serves(DataType dtype, ReduceOp op);

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Among the ranks of `node`, all of which construct it with the `id` that one of them drew. Throws System.
  static std::shared_ptr<Communicator> make(const Library& library, Device& device, const UniqueId& id,
                                            std::unique_ptr<ipc::NodeFlags> node, Deadline deadline);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Runs each kind of call in several sizes, and messages between all pairs, because NCCL connects the ranks
  // for a kind and size at its first use. Called by all ranks. Throws System, NoMemory.
  void warm_up(Deadline deadline);

  struct Arguments {
    const void* input;
    void* output;
    DataType dtype;
    ReduceOp op;
    double factor;  // of PreMulSum
  };
  // Behind the earlier work of `before`; later work of `after` comes behind it. Throws System.
  void submit(std::span<const LibraryCall> calls, const Arguments& arguments, DeviceQueue& before,
              DeviceQueue& after, std::optional<Deadline> deadline = {});
  // Into the graph that `queue` is captured into. The communicator lives until the process ends.
  void record(std::span<const LibraryCall> calls, const Arguments& arguments, DeviceQueue& queue,
              Deadline deadline);
  // An error that NCCL has found since, or "", as while another thread submits. Does not wait.
  std::string error() const;
  // Ends the work of this rank's device with undefined results, on a thread of its own. The other ranks do
  // not notice. Later calls fail.
  void abort() noexcept;

  const ipc::NodeFlags& node() const { return *node_; }
  const Device& device() const { return device_; }
  std::string version() const { return version_text(library_.version); }

 private:
  struct OfDevice;  // what the communicators of a device share
  Communicator(const Library& library, Device& device, std::unique_ptr<ipc::NodeFlags> node,
               OfDevice& shared);
  void check(Result result, const char* what) const;
  void check_peers(Deadline deadline) const;  // throws: late, or another rank has failed
  // Until NCCL has taken what it has begun.
  void settle(Comm* comm, Result result, const char* what, std::optional<Deadline> deadline = {}) const;
  void enqueue(std::span<const LibraryCall> calls, const Arguments& arguments, Stream stream,
               std::optional<Deadline> deadline) const;

  const Library& library_;
  Device& device_;
  const std::unique_ptr<ipc::NodeFlags> node_;
  OfDevice& shared_;
  std::atomic<Comm*> comm_{nullptr};  // constant, until abort() sets it to null
  std::atomic<bool> aborted_{false}, kept_{false};
};

}  // namespace mpi_gdr::nccl
