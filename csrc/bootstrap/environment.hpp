// Environment variables around MPI_Init. setenv is not safe beside getenv in other threads: these run once,
// when the first process group is created.
#pragma once

#include <string>

namespace mpigdr {

// Removes what an MPI launcher set for this process or its parent: it belongs to another job, or to
// torchrun's agent. With both PMI_* and PMIX_* present MPICH 5 even aborts.
void scrub_launcher_environment();

// Lets a process fork (DataLoader workers) although a network library has registered its memory. Values that
// the user has set stay.
void set_fork_safe_environment();

// Lets connections of UCX over TCP outlive a network that is away for a while: by default a connection
// without traffic is closed after some 28 s without an answer, and the next operation on it crashes, or never
// ends. Our own heartbeat finds out who is gone. Values that the user has set stay.
void set_patient_environment();

// For ranks that outnumber the cores: MPICH's default shared-memory collectives wait without yielding the
// processor and become 100 times slower then. Values that the user has set stay.
void set_oversubscribed_environment();

// What the user has set a control variable of MPICH to, by any of its names: the library reads them all. Or
// null.
const char* control(const std::string& name);
inline bool control_is_set(const std::string& name) { return control(name) != nullptr; }
bool control_is_on(const std::string& name);

// For jobs of one host: UCX, which would listen at every network interface, keeps to the loopback. Messages
// inside the host are MPICH's, or go through shared memory, and need no network. False where the loopback is
// down, or where the user has chosen devices or transports. clear_one_host_environment() follows MPI_Init:
// programs that this one starts may span hosts.
bool set_one_host_environment();
void clear_one_host_environment();

}  // namespace mpigdr
