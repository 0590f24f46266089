#pragma once

#include <string>
#include <vector>

#include "collectives/selection_source.hpp"

namespace mpi_gdr {

struct Member {
  std::vector<SharedSetting> settings;  // all that choose its algorithms
  bool accelerator = false;             // present on its host
  bool served = false;                  // served by a device: tensors are not copied to the host
  bool gpu_aware = false;               // its MPI takes device addresses, by itself or by MPI_GDR_GPU_AWARE
  std::string host;                     // host_identity()
  std::string cpus;                     // usable_cpus()
  std::string job;                      // a name for the job; the first member's is used
  std::string ticket;                   // of its shm::Segment; empty: none
  // Rank 0's cached choices, as to_text(MeasuredChoices); empty: none.
  std::string choices;
};

// Blobs of the rendezvous. unpacked_member() throws Error(Remote) on invalid ones.
std::string packed(const Member& member);
Member unpacked_member(const std::string& blob);

}  // namespace mpi_gdr
