#include "job/orphan_watch.hpp"

#include <sstream>
#include <string>

#include "bootstrap/watchdog.hpp"
#include "common/env.hpp"
#include "common/exit_status.hpp"
#include "common/log.hpp"
#include "job/end_process.hpp"

namespace mpi_gdr {

bool OrphanWatch::begin() {
  if (!agent_) agent_ = torchrun_agent();
  return agent_.has_value();
}

void OrphanWatch::look() {
  const double grace = Env::get().orphan_seconds;
  if (!agent_ || grace == 0) return;
  const auto now = std::chrono::steady_clock::now();
  const std::string ended =
      "torchrun's agent (pid " + std::to_string(agent_->pid) + "), which started this rank, has ended";
  if (orphaned_ == std::chrono::steady_clock::time_point{}) {
    if (look_at(*agent_) != ProcessState::Ended) return;
    orphaned_ = now;
    std::ostringstream text;
    text << ended << ": this rank ends in " << grace << " s (MPI_GDR_ORPHAN_GRACE)";
    log(LogLevel::Warn, "ALIVE", text.str());
  } else if (now - orphaned_ > std::chrono::duration<double>(grace)) {
    end_process(kExitOrphan, ended + last_words(ended) + ". Ending this process");
  }
}

}  // namespace mpi_gdr
