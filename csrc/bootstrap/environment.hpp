// Environment variables around MPI_Init. setenv is not safe beside getenv in other threads: these run once,
// when the first process group is created.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpi_gdr {

// Removes what an MPI launcher set for this process or its parent: it belongs to another job, or to
// torchrun's agent. With both PMI_* and PMIX_* present MPICH 5 even aborts.
void scrub_launcher_environment();

// Lets a process fork (DataLoader workers) although a network library has registered its memory, and lets
// UCX's connections over TCP outlive a network that is away: by default one is closed after some 28 s without
// an answer, and the next operation on it crashes, or never ends. Values that the user has set stay.
// `gpu_aware`: MPI may be given addresses of a GPU, whose streams wait for messages: MPICH then copies
// without calls that such a wait holds up.
void set_fabric_environment(bool gpu_aware);

// The user's value of a control variable of MPICH, by any of the names that the library reads; null: none.
const char* control(const std::string& name);
inline bool control_is_set(const std::string& name) { return control(name) != nullptr; }
bool control_is_on(const std::string& name);

// Whether an MPI takes addresses of a GPU's memory: a wrong yes is a crash inside the library. `version`,
// `device`: the first line and the device of its version's text; `answer`: its own, null if it has no
// function that says so. A no is final. A variable counts only for the libraries that read it.
bool is_gpu_aware(std::string_view version, std::string_view device, std::optional<bool> answer);

// For jobs of one host whose ranks have namespaces() in common: UCX, and libfabric over TCP, which would
// listen at every network interface, keep to the loopback. Messages inside the host are MPICH's, or go
// through shared memory, and need no network. Nothing where the loopback is down; what the user has chosen
// stays. Returns what it set, to be removed after MPI_Init: programs that this one starts may span hosts.
std::vector<const char*> set_one_host_environment();

}  // namespace mpi_gdr
