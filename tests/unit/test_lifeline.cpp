// A connection that detects the end of a process, and nothing else.
#include <signal.h>

#include "bootstrap/lifeline.hpp"
#include "test.hpp"

using namespace mpi_gdr;
using State = LifelineWatch::State;

namespace {

bool becomes(LifelineWatch& watch, State state, int milliseconds = 8000) {
  for (int i = 0; i < milliseconds; ++i) {
    if (watch.look() == state) return true;
    usleep(1000);
  }
  return false;
}

struct Child {
  Child() {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid = fork();
    if (pid == 0) {
      const Lifeline line;
      const std::string text = line.address();
      if (write(ends[1], text.c_str(), text.size() + 1) < 0) _exit(1);
      for (;;) pause();
    }
    char text[512] = "";
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    address = text;
    close(ends[0]);
    close(ends[1]);
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid;
  std::string address;
};

}  // namespace

TEST(it_holds_while_the_process_lives_and_says_when_it_has_ended) {
  Child child;
  LifelineWatch watch(child.address);
  CHECK(becomes(watch, State::Holds));
  kill(child.pid, SIGSTOP);
  for (int i = 0; i < 100; ++i) {
    CHECK(watch.look() == State::Holds);
    usleep(1000);
  }
  kill(child.pid, SIGCONT);
  CHECK(watch.look() == State::Holds);
  kill(child.pid, SIGKILL);
  CHECK(becomes(watch, State::Ended));
}

TEST(several_may_watch_one) {
  Child child;
  std::vector<std::unique_ptr<LifelineWatch>> watches;
  for (int i = 0; i < 10; ++i) watches.push_back(std::make_unique<LifelineWatch>(child.address));
  for (const auto& watch : watches) CHECK(becomes(*watch, State::Holds));
  watches.resize(5);
  kill(child.pid, SIGKILL);
  for (const auto& watch : watches) CHECK(becomes(*watch, State::Ended));
}

TEST(of_one_that_was_never_reached_nothing_is_known) {
  std::string address;
  {
    Child child;
    address = child.address;
  }
  LifelineWatch refused(address);
  for (int i = 0; i < 200; ++i) {
    CHECK(refused.look() == State::Unknown);
    usleep(1000);
  }
  for (const char* text : {"", "x", "0 ::1", "70000 ::1", "5 ", "5 what 300.1.1.1", "-1 ::1"}) {
    LifelineWatch watch(text);
    for (int i = 0; i < 3; ++i) CHECK(watch.look() == State::Unknown);
  }
}

TEST(it_finds_the_way_among_addresses_that_lead_nowhere) {
  Child child;
  const std::string port = child.address.substr(0, child.address.find(' '));
  LifelineWatch watch(port + " ::ffff:240.0.0.1 ::ffff:127.0.0.1");  // the first is unassigned (RFC 1112)
  CHECK(becomes(watch, State::Holds));
  kill(child.pid, SIGKILL);
  CHECK(becomes(watch, State::Ended));
}

UNIT_MAIN()
