// MPI in this process: started once, never stopped before its end, shared with mpi4py in either order.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "bootstrap/launch_mode.hpp"
#include "transport/network.hpp"

namespace mpi_gdr::mpi {

class MpiNetwork final : public Network {
 public:
  // Starts MPI, or checks and takes over the one that another library started. Failures inside MPI_Init
  // cannot be thrown: the process ends with kExitStuck (or MPI's own code) and a message.
  void start(const NetworkOptions& options) override;
  bool started() const override;
  void renumber(const NetworkOptions& options) override;
  // Calls MPI_Finalize if start() started MPI, nothing failed, this is no forked child, and all ranks come in
  // time (under a launcher at least rendezvous_timeout: it may end a job of which one rank left early). Ends
  // the process if it hangs.
  bool finalize(bool orderly, std::optional<std::uint64_t>& sum,
                const std::function<std::string()>& missing) noexcept override;
  bool can_finalize() const noexcept override;
  void mark_failed(const char* why) noexcept override;
  const char* failure() const noexcept override;
  std::shared_ptr<const Membership> membership() const override;
  void on_abort(std::function<void(const std::string&)> announce) override;
  bool gpu_aware() const override;
  std::vector<std::string> summary() const override;
  std::unique_ptr<Transport> make_group(const GroupTransportOptions& options) override;
  NetworkInfo info() const override;
  std::string explain_launcher_mismatch(int ranks) const override;
  static MpiFamily family();
  int handle(const Transport& transport) const override;
  void broadcast(std::string& text, int root, std::chrono::milliseconds timeout) override;
};

// This process's. Leaked: outlives atexit handlers.
MpiNetwork& network();

}  // namespace mpi_gdr::mpi
