// Startup without MPI: the rendezvous, the PMI server (through its socket), the launch decision.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "bootstrap/environment.hpp"
#include "bootstrap/host.hpp"
#include "bootstrap/launch_mode.hpp"
#include "bootstrap/pmi_server.hpp"
#include "bootstrap/process_id.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/shared_memory.hpp"
#include "memory_store.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

std::string ask(int fd, const std::string& line) {
  CHECK(write(fd, (line + "\n").data(), line.size() + 1) == static_cast<ssize_t>(line.size() + 1));
  std::string reply;
  for (char c; read(fd, &c, 1) == 1 && c != '\n';) reply += c;
  return reply;
}

PmiServer& server(MemoryStore& store, int rank, int size, const std::string& prefix) {
  return PmiServer::start({.rank = rank,
                           .size = size,
                           .store = store.clone(),
                           .prefix = prefix,
                           .kvsname = "job_" + prefix,
                           .abort_key = prefix + "/abort",
                           .process_mapping = "(vector,(0,1,2))",
                           .init_deadline = in(30s),
                           .later_timeout = 50ms});
}

}  // namespace

TEST(rendezvous_gathers_every_blob) {
  MemoryStore store;
  const int size = 5;
  std::vector<std::vector<std::string>> results(size);
  unit::on_threads(size, [&](int r) {
    auto own = store.clone();
    results[r] = rendezvous(*own, "a", r, size, std::string(r, '\0') + ":" + std::to_string(r), in(30s));
  });
  for (int r = 0; r < size; ++r) {
    CHECK(results[r].size() == 5u);
    for (int q = 0; q < size; ++q) CHECK(results[r][q] == std::string(q, '\0') + ":" + std::to_string(q));
  }
  CHECK_THROWS(rendezvous(store, "a", 0, size, "", in(1s)), Error, "was used before");
}

TEST(rendezvous_names_the_missing_and_the_broken_store) {
  MemoryStore store;
  store.set("b/r2", "");
  CHECK_THROWS(rendezvous(store, "b", 0, 4, "", in(20ms)), Error, "rank(s) 1, 3 of 4 did not arrive");
  CHECK_THROWS(rendezvous(store, "b", 4, 4, "", in(20ms)), Error, "rank=4");
  store.break_down();
  CHECK_THROWS(rendezvous(store, "c", 0, 4, "", in(20ms)), Error, "connection reset");
}

// A rank that continued alone would block in a call of the library that needs all ranks.
TEST(rendezvous_fails_on_all_ranks_or_none) {
  MemoryStore store;
  CHECK_THROWS(rendezvous(store, "early", 0, 3, "", in(20ms)), Error, "rank(s) 1, 2 of 3 did not arrive");
  CHECK_THROWS(rendezvous(store, "early", 1, 3, "", in(30s)), Error,
               "another rank timed out before rank 1 of 3 arrived");
  CHECK_THROWS(rendezvous(store, "early", 2, 3, "", in(30s)), Error,
               "another rank timed out before rank 2 of 3 arrived");
  // Rank 1 has arrived when rank 0's time is over, and publishes only later.
  std::int64_t arrivals = 0;
  const auto last = [&] {
    if (arrivals == 0) {
      store.set("late/r1", "b");
      store.add("late/n", 1);
    } else if (arrivals > 2) {
      store.set("late/all", pack({"a", "b"}));
    }
    arrivals = store.add("late/n", 0);
  };
  CHECK(rendezvous(store, "late", 0, 2, "a", in(20ms), last) == (std::vector<std::string>{"a", "b"}));
  CHECK(arrivals > 2);
}

TEST(mapping_describes_nodes) {
  CHECK(*process_mapping({0, 0, 0}) == "(vector,(0,1,3))");
  CHECK(*process_mapping({0}) == "(vector,(0,1,1))");
  CHECK(*process_mapping({0, 0, 1, 1, 2, 2}) == "(vector,(0,3,2))");
  CHECK(*process_mapping({0, 1, 2, 0, 1, 2}) == "(vector,(0,3,1))");  // cyclic: readers start over
  CHECK(*process_mapping({0, 0, 1}) == "(vector,(0,1,2),(1,1,1))");
  CHECK(*process_mapping({0, 1, 0, 0}) == "(vector,(0,2,1),(0,1,2))");
  std::vector<int> irregular;
  for (int i = 0; i < 600; ++i) irregular.insert(irregular.end(), 1 + i % 2, (i * i + i / 7) % 31);
  CHECK(!process_mapping(irregular));
  CHECK(number_nodes({"b", "a", "b"}) == (std::vector<int>{0, 1, 0}));
  CHECK(host_identity() == host_identity() && random_nonce() != random_nonce() && !usable_cpus().empty());
}

TEST(oversubscription_counts_the_cores_of_a_node_together) {
  CHECK(!oversubscribed({0, 0}, {"0,1", "0,1"}));
  CHECK(!oversubscribed({0, 0}, {"0", "1"}));  // bound to one core each
  CHECK(oversubscribed({0, 0, 0}, {"0,1", "0,1", "0,1"}));
  CHECK(oversubscribed({0, 1, 1}, {"0,1", "0", "0"}));
  CHECK(!oversubscribed({0, 0}, {"", ""}));  // unknown
}

TEST(a_rank_bound_to_one_of_many_processors_is_warned) {
  CHECK_CONTAINS(binding_problem("3", 2, 4), "bound to processor 3 only, of 4 for 2 rank(s)");
  CHECK(binding_problem("3", 3, 4).empty());  // one for each
  CHECK(binding_problem("0,1", 1, 4).empty());
  CHECK(binding_problem("", 1, 4).empty());  // unknown
}

TEST(pmi_server_answers_and_exchanges_values) {
  MemoryStore store;
  PmiServer& zero = server(store, 0, 2, "x");
  PmiServer& one = server(store, 1, 2, "x");
  const int fd = zero.client_fd();
  CHECK(ask(fd, "cmd=init pmi_version=1 pmi_subversion=1") ==
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1");
  CHECK_CONTAINS(ask(fd, "cmd=init pmi_version=2 pmi_subversion=0"), "rc=-1");
  CHECK(ask(fd, "cmd=get_maxes") == "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024");
  CHECK(ask(fd, "cmd=get_appnum") == "cmd=appnum rc=0 appnum=0");
  CHECK(ask(fd, "cmd=get_my_kvsname") == "cmd=my_kvsname rc=0 kvsname=job_x");
  CHECK(ask(fd, "cmd=get_universe_size") == "cmd=universe_size rc=0 size=2");
  CHECK(ask(fd, "cmd=get kvsname=job_x key=PMI_process_mapping") ==
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))");
  CHECK(ask(fd, "cmd=put kvsname=job_x key=k0 value=a b=c") == "cmd=put_result rc=0 msg=success");
  CHECK_CONTAINS(ask(one.client_fd(), "cmd=get kvsname=job_x key=k0"), "rc=-1");
  std::thread peer([&] { ask(one.client_fd(), "cmd=barrier_in"); });
  CHECK(ask(fd, "cmd=barrier_in") == "cmd=barrier_out rc=0");
  peer.join();
  CHECK(ask(one.client_fd(), "cmd=get kvsname=job_x key=k0") ==
        "cmd=get_result rc=0 msg=success value=a b=c");
  CHECK_CONTAINS(ask(fd, "cmd=spawn"), "rc=-1");
  CHECK(ask(fd, "cmd=finalize") == "cmd=finalize_ack rc=0");
}

// Slurm 22.05 reads 1024 bytes of a command, and announces 1024 for the value alone.
TEST(a_command_fits_what_the_launcher_reads) {
  int slurm[2];
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, slurm) == 0);
  static PmiServer& relay =
      PmiServer::start({.launcher = slurm[0]});  // for the leak checker: its thread ends
  const int fd = relay.client_fd();
  std::thread launcher([&] {
    char command[1024];
    for (const char* answer :
         {"cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n", "cmd=put_result rc=0\n"}) {
      const ssize_t got = ::recv(slurm[1], command, sizeof command, 0);
      CHECK(got > 0 && command[got - 1] == '\n');
      CHECK(::send(slurm[1], answer, std::strlen(answer), 0) > 0);
    }
  });
  const std::string maxes = ask(fd, "cmd=get_maxes");
  CHECK_CONTAINS(maxes, "keylen_max=64 ");
  const int limit = std::atoi(maxes.c_str() + maxes.find("vallen_max=") + 11);
  CHECK(limit >= 512 && limit % 2 == 0);
  const std::string put =
      "cmd=put kvsname=" + std::string(20, '1') + " key=" + std::string(63, 'k') + " value=";
  CHECK(ask(fd, put + std::string(static_cast<std::size_t>(limit), 'v')) == "cmd=put_result rc=0");
  launcher.join();
  ::close(slurm[1]);  // the launcher has exited: nothing waits for its answer
  const std::string_view question = "cmd=barrier_in\n";
  ::send(fd, question.data(), question.size(), MSG_NOSIGNAL);  // fails if the relay was faster
  char answer;
  CHECK(::recv(fd, &answer, 1, 0) <= 0);
}

TEST(a_pmi_server_that_stops_ends_all_waits) {
  MemoryStore store;
  static PmiServer& stopped = server(store, 0, 1, "z");  // static for the leak checker, as above
  const std::string endless(70000, 'x');
  ::send(stopped.client_fd(), endless.data(), endless.size(), MSG_NOSIGNAL);  // fails once it has stopped
  char answer;
  CHECK(::recv(stopped.client_fd(), &answer, 1, 0) <= 0);
}

TEST(pmi_barrier_after_init_outlives_peers_and_store) {
  MemoryStore store;
  PmiServer& zero = server(store, 0, 2, "y");
  zero.init_finished();
  CHECK(ask(zero.client_fd(), "cmd=barrier_in") == "cmd=barrier_out rc=0");  // rank 1 never comes
  store.break_down();
  CHECK(ask(zero.client_fd(), "cmd=barrier_in") == "cmd=barrier_out rc=0");
  CHECK(ask(zero.client_fd(), "cmd=finalize") == "cmd=finalize_ack rc=0");
}

TEST(launch_decision) {
  const auto family = MpiFamily::Mpich;
  const Proposal zero{.launcher = Launcher{"mpiexec", 0, 2}}, one{.launcher = Launcher{"mpiexec", 1, 2}};
  CHECK(decide(family, {zero, one}) == Bootstrap::Launcher);
  CHECK(decide(family, {one, zero}) == Bootstrap::Launcher);  // another order
  CHECK(decide(family, {Proposal{}, Proposal{}}) == Bootstrap::Store);
  CHECK(decide(family, {zero, zero}) == Bootstrap::Store);  // inherited by two children
  CHECK(decide(family, {zero, Proposal{}}) == Bootstrap::Store);
  CHECK(decide(family, {zero}) == Bootstrap::Singleton);
  CHECK(decide(family, {{.launcher = Launcher{"PMIx launcher", 0, -1}},
                        {.launcher = Launcher{"PMIx launcher", 1, -1}}}) == Bootstrap::Launcher);
  CHECK(decide(family, {{.launcher = zero.launcher, .elastic = true}, one}) == Bootstrap::Store);
  auto inside = zero, beside = one;  // containers of one host, each with its /dev/shm
  inside.host = "n1|boot|7";
  beside.host = "n1|boot|8";
  CHECK(decide(family, {inside, beside}) == Bootstrap::Store);
  beside.host = "n2|boot|8";
  CHECK(decide(family, {inside, beside}) == Bootstrap::Launcher);
  CHECK_THROWS(decide(MpiFamily::OpenMpi, {Proposal{}, Proposal{}}), Error, "mpirun -n 2");
  CHECK(decide(MpiFamily::OpenMpi, {Proposal{}}) == Bootstrap::Singleton);
  const Proposal forced{.request = BootstrapMode::Launcher};
  CHECK_THROWS(decide(family, {forced, forced}), Error, "MPI_GDR_BOOTSTRAP=launcher");
  CHECK_THROWS(decide(family, {Proposal{}, forced}), Error, "same on all ranks");
  CHECK_THROWS(decide(family, {{}, {.error = "level too low"}}), Error,
               "rank 1 cannot start MPI: level too low");
  CHECK_THROWS(decide(family, {{}, {.mpi_version = "MPICH 9"}}), Error, "LD_LIBRARY_PATH");
  const Proposal running{.initialised = true};
  CHECK(decide(family, {running, one}) == Bootstrap::Launcher);
  CHECK_THROWS(decide(family, {running, Proposal{}}), Error, "mpi4py");

  const Proposal back = parse_proposal(serialise({.error = "e\n",
                                                  .launcher = one.launcher,
                                                  .initialised = true,
                                                  .nonce = "0a",
                                                  .process = {"h", 1ull << 63, 17, 4}}));
  CHECK(back.process.host == "h" && back.process.domain == 1ull << 63 && back.process.pid == 17 &&
        back.process.started == 4);
  CHECK(back.error == "e\n" && back.launcher->rank == 1 && back.launcher->name == "mpiexec" &&
        back.initialised);
  CHECK(!parse_proposal(serialise(Proposal{})).launcher);
}

TEST(launcher_variables_are_read_and_scrubbed) {
  scrub_launcher_environment();
  for (const char* variable : {"SLURM_PROCID", "PALS_APID", "PALS_APINFO", "PMI_SHARED_SECRET"})
    unsetenv(variable);
  CHECK(!find_launcher(MpiFamily::Mpich));
  setenv("PMI_RANK", "1", 1);
  setenv("PMI_SIZE", "4", 1);
  CHECK(find_launcher(MpiFamily::Mpich)->rank == 1 && find_launcher(MpiFamily::Mpich)->size == 4);
  CHECK(!find_launcher(MpiFamily::OpenMpi));
  CHECK(explain_launcher_mismatch(MpiFamily::Mpich, BootstrapMode::Auto, "v", 4) == "");
  CHECK(explain_launcher_mismatch(MpiFamily::Mpich, BootstrapMode::Store, "v", 4)
            .starts_with("MPI_GDR_BOOTSTRAP=store needs"));
  CHECK_THROWS(decide(MpiFamily::OpenMpi, {Proposal{}, Proposal{}}), Error,
               "started by the mpiexec of an MPI of the MPICH family, which cannot start it. Start with "
               "`mpi-gdr run -n 2");
  setenv("PMI_FD", "987", 1);  // not inherited
  CHECK(!find_launcher(MpiFamily::Mpich));
  CHECK(explain_launcher_mismatch(MpiFamily::Mpich, BootstrapMode::Auto, "v", 4)
            .starts_with("the launcher's connection (PMI_FD) is closed"));
  setenv("PMIX_NAMESPACE", "n", 1);
  setenv("PMIX_RANK", "3", 1);
  CHECK(find_launcher(MpiFamily::OpenMpi)->rank == 3);
  CHECK(!find_launcher(MpiFamily::Mpich));  // no library for PMIx is loaded here
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  CHECK(!find_launcher(MpiFamily::Mpich));  // its daemon cannot start this MPI
  CHECK(find_launcher(MpiFamily::OpenMpi)->rank == 2);
  CHECK(explain_launcher_mismatch(MpiFamily::OpenMpi, BootstrapMode::Auto, "v", 4) == "");
  const std::string wrong = explain_launcher_mismatch(MpiFamily::Mpich, BootstrapMode::Auto, "MPICH 5", 4);
  for (const char* part : {"these 4 ranks were started by the mpirun of Open MPI", "(MPICH 5)",
                           "`mpi-gdr run -n 4 script.py`", "set MASTER_ADDR and MASTER_PORT"})
    CHECK_CONTAINS(wrong, part);
  CHECK(explain_launcher_mismatch(MpiFamily::Mpich, BootstrapMode::Auto, "MPICH 5", 1) == "");
  setenv("RDMAV_FORK_SAFE", "0", 1);
  set_fabric_environment(/*gpu_aware=*/false);
  CHECK(std::string(getenv("RDMAV_FORK_SAFE")) == "0" && std::string(getenv("IBV_FORK_SAFE")) == "1");
  scrub_launcher_environment();
  for (const char* variable : {"PMI_RANK", "PMI_SIZE", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE"})
    CHECK(!getenv(variable));
}

TEST(the_launcher_is_seen_through_its_socket) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const int network = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(launcher_pid(std::to_string(ends[0]).c_str()) == getpid());
  for (const int fd : {network, 987}) CHECK(launcher_pid(std::to_string(fd).c_str()) == -1);
  CHECK(launcher_pid(nullptr) == -1);
  CHECK(!namespaces().empty() && namespaces() == namespaces(std::to_string(getpid())));
  CHECK(namespaces("0").empty());
  for (const int fd : {ends[0], ends[1], network}) close(fd);
}

TEST(a_control_variable_has_several_names) {
  for (const std::string prefix : {"MPIR_CVAR_", "MPIR_PARAM_", "MPICH_", "MVP_", "MV2_"}) {
    const std::string name = prefix + "CH4_CMA_ENABLE";
    setenv(name.c_str(), "no", 1);
    CHECK(control_is_set("CH4_CMA_ENABLE"));
    unsetenv(name.c_str());
    CHECK(!control_is_set("CH4_CMA_ENABLE"));
  }
  for (const char* value : {"1", "yes", "0", "NO", ""}) {
    setenv("MPICH_ASYNC_PROGRESS", value, 1);
    CHECK(control_is_on("ASYNC_PROGRESS") == (*value == '1' || *value == 'y'));
  }
  unsetenv("MPICH_ASYNC_PROGRESS");
  CHECK(!control_is_on("ASYNC_PROGRESS"));
}

TEST(shared_memory_of_either_name_is_unlinked) {
  for (const std::string name : {"mpich_shm_", "mpich_shar_tmp"}) {
    const std::string path = "/dev/shm/" + name + "test" + std::to_string(getpid());
    const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    void* const mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    unlink_mpich_shared_memory();
    CHECK(access(path.c_str(), F_OK) != 0);
    munmap(mapped, 4096);
    close(fd);
  }
}

TEST(too_little_shared_memory_is_an_error_where_mpi_would_be_killed) {
  constexpr std::uint64_t kMiB = 1 << 20;
  using Free = std::vector<std::optional<std::uint64_t>>;
  const std::vector<int> one_node = {0, 0, 0}, two_nodes = {0, 1, 0, 1};
  const std::string five = "MPICH Version:      5.0.2";
  CHECK(explain_shared_memory_shortage(one_node, Free{4 * kMiB, 4 * kMiB, 4 * kMiB}, five) == "");
  const std::string little =
      explain_shared_memory_shortage(one_node, Free{4 * kMiB, 3 * kMiB, 4 * kMiB}, five);
  CHECK_CONTAINS(little, "3072 KiB free on the host of ranks 0, 1, 2");
  CHECK_CONTAINS(little, "MPICH needs 3096 KiB");
  CHECK_CONTAINS(little, "expected at least 48 MiB");
  // Each node is checked by itself; a rank without an answer does not hide another's.
  const std::string second =
      explain_shared_memory_shortage(two_nodes, Free{3 * kMiB, std::nullopt, 3 * kMiB, kMiB}, five);
  CHECK_CONTAINS(second, "1024 KiB free on the host of ranks 1, 3");
  CHECK(explain_shared_memory_shortage(two_nodes, Free{3 * kMiB, std::nullopt, 3 * kMiB, std::nullopt},
                                       five) == "");
  // A rank alone on its node shares nothing; other versions and vendors have not been measured.
  CHECK(explain_shared_memory_shortage({0, 1}, Free{0, 0}, five) == "");
  for (const char* library : {"MPICH Version:      4.0.2", "MPICH Version: 50.1", "Open MPI v5.0.11",
                              "Intel(R) MPI Library 2021.15", "MPICH", ""})
    CHECK(explain_shared_memory_shortage(one_node, Free{0, 0, 0}, library) == "");
}

TEST(shared_memory_that_other_ranks_of_the_job_have_taken_is_not_missing) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const std::string five = "MPICH Version:      5.0.2";
  CHECK(explain_shared_memory_shortage({0, 0}, {2 * kMiB, 2 * kMiB}, five, false) != "");
  CHECK(explain_shared_memory_shortage({0, 0}, {2 * kMiB, 2 * kMiB}, five, true) == "");
  CHECK(explain_shared_memory_shortage({0, 0}, {kMiB, kMiB}, five, true) != "");
  CHECK(warning_of_shared_memory(64 * kMiB, 4, false) == "");
  CHECK_CONTAINS(warning_of_shared_memory(47 * kMiB, 4, false), "48128 KiB free for 4 rank(s)");
  CHECK(warning_of_shared_memory(47 * kMiB, 4, true) == "");  // the others have taken theirs
  CHECK_CONTAINS(warning_of_shared_memory(8 * kMiB, 3, true), "(expected 48 MiB)");
  CHECK(warning_of_shared_memory(0, 1, false) == "" && warning_of_shared_memory(0, 0, true) == "");
}

UNIT_MAIN()
