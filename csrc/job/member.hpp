// What each member brings to the meeting of a new group.
#pragma once

#include <string>
#include <vector>

#include "collectives/selection_source.hpp"

namespace mpi_gdr {

struct Member {
  std::vector<SharedSetting> settings;  // all that chooses its algorithms
  bool accelerator = false;             // there is one on its host
  bool served = false;                  // something serves it: its tensors stay where they are
  bool gpu_aware = false;  // its MPI takes addresses of that, by what it says or MPI_GDR_GPU_AWARE
  std::string host;        // host_identity()
  std::string cpus;        // usable_cpus()
  std::string job;         // the name of the job, if this member's counts
  std::string ticket;      // of its shm::Segment; empty: it has none
  // Of rank 0: what is remembered, as to_text(MeasuredChoices); empty: nothing is measured.
  std::string choices;
};

// As a blob of the rendezvous, and back: throws Error(Remote) on what is none.
std::string packed(const Member& member);
Member unpacked_member(const std::string& blob);

}  // namespace mpi_gdr
