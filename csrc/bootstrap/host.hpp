// Which ranks share a node and its cores. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mpi_gdr {

// "host|boot id|device of /dev/shm": equal exactly for ranks that can share memory.
std::string host_identity();

// PID and network namespaces of a /proc entry; "": unknown. UCX uses the loopback only if both are shared.
std::string namespaces(const std::string& process = "self");

// The processors that this process may use, as "0,1,5"; "": unknown.
std::string usable_cpus();

// 64 random bits in hexadecimal: unique per job, not guessable by other users.
std::string random_nonce();

// The node of each rank; nodes are numbered in the order of their first ranks.
std::vector<int> number_nodes(const std::vector<std::string>& identities);

bool oversubscribed(const std::vector<int>& node_of_rank, const std::vector<std::string>& cpus_of_rank);

// A warning if this rank may use only one processor though its node has several per rank; or "".
std::string binding_problem(const std::string& own_cpus, int ranks_on_node, int cpus_of_node);

// PMI_process_mapping, "(vector,(first node,nodes,ranks per node),...)", repeating patterns given once.
// Nothing if too long for a PMI value: MPI then compares host names.
std::optional<std::string> process_mapping(const std::vector<int>& node_of_rank);

}  // namespace mpi_gdr
