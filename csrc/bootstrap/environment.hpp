// setenv is unsafe beside getenv in other threads: the setters run once, when the first group is created.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpi_gdr {

// Removes the variables of the parent's MPI launcher. MPICH 5 aborts with both PMI_* and PMIX_* set.
void scrub_launcher_environment();

// Makes forks safe for network libraries, and UCX over TCP wait through outages: by default UCX closes the
// connection after 28 s, and the next operation crashes or hangs. With `gpu_aware`, MPICH copies to and from
// a GPU without calls that a waiting stream blocks. Keeps variables that the user set.
void set_fabric_environment(bool gpu_aware);

// The user's value of an MPICH control variable, under any name that the library reads; null: not set.
const char* control(const std::string& name);
inline bool control_is_set(const std::string& name) { return control(name) != nullptr; }
bool control_is_on(const std::string& name);

// Whether an MPI library accepts device addresses; a wrong true crashes it. `version`, `device`: the first
// line and the device of its version text. `answer`: the result of its query function; null: it has none. If
// false, `answer` is final. A variable counts only for the libraries that read it.
bool is_gpu_aware(std::string_view version, std::string_view device, std::optional<bool> answer);

// For ranks that share one host and namespaces(): confines UCX and libfabric to the loopback, if it is up.
// Keeps variables that the user set. Returns those that it set: the caller removes them after MPI_Init, so
// that child programs do not inherit them.
std::vector<const char*> set_one_host_environment();

}  // namespace mpi_gdr
