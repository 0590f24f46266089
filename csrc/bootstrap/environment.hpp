// setenv is unsafe beside getenv in other threads: the setters run once, when the first group is created.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpi_gdr {

// Removes the variables of the parent's MPI launcher. MPICH 5 aborts with both PMI_* and PMIX_* set.
void scrub_launcher_environment();

// Makes forks safe for network libraries, and UCX over TCP wait through outages: it closes connections after
// 28 s, and the next operation crashes or hangs. With `gpu_aware` MPICH copies to and from a GPU without
// calls that a waiting stream blocks. The user's values stay.
void set_fabric_environment(bool gpu_aware);

// The user's value of an MPICH control variable, under any name that the library reads; null: not set.
const char* control(const std::string& name);
inline bool control_is_set(const std::string& name) { return control(name) != nullptr; }
bool control_is_on(const std::string& name);

// Whether an MPI library accepts device addresses; a wrong yes crashes it. `version`, `device`: the first
// line and the device of its version text. `answer`: its own; null: it has no query function. A no is final,
// and a variable counts only for the libraries that read it.
bool is_gpu_aware(std::string_view version, std::string_view device, std::optional<bool> answer);

// For ranks that share one host and namespaces(): confines UCX and libfabric to the loopback, if it is up.
// The user's values stay. Returns the variables set, to be removed after MPI_Init for later child programs.
std::vector<const char*> set_one_host_environment();

}  // namespace mpi_gdr
