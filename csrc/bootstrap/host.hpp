// Which ranks share a node and its cores. Pure functions but for those that ask the operating system.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mpi_gdr {

// Equal on two ranks exactly if they can meet in shared memory: "hostname|boot id|device of /dev/shm".
// Containers may share a name, or a kernel and so a boot id, but not /dev/shm.
std::string host_identity();

// The PID namespace and the network namespace of a process, by its entry in /proc; "": not known. UCX
// connects two ranks over the loopback only where they share both.
std::string namespaces(const std::string& process = "self");

// The processors that this process may run on, as "0,1,5".
std::string usable_cpus();

// 64 random bits in hexadecimal: makes names unique per job, and not guessable by other users.
std::string random_nonce();

// Node number of each rank, numbered by first appearance.
std::vector<int> number_nodes(const std::vector<std::string>& identities);

// True if on some node more ranks run than the processors that they may use together.
bool oversubscribed(const std::vector<int>& node_of_rank, const std::vector<std::string>& cpus_of_rank);

// Why this rank's threads get in each other's way, or "": it may run on one processor only, `own_cpus`,
// though its node has several for each of its ranks.
std::string binding_problem(const std::string& own_cpus, int ranks_on_node, int cpus_of_node);

// PMI_process_mapping, "(vector,(first node,nodes,ranks per node),...)"; a pattern that repeats is given
// once: readers start over at its end. Nothing if it is too long a PMI value: MPI then compares host names.
std::optional<std::string> process_mapping(const std::vector<int>& node_of_rank);

}  // namespace mpi_gdr
