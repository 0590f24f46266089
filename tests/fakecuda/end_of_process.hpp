// How a process ends that does what it must not.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>

namespace unit {

struct End {
  int signal;        // 0: none
  std::string said;  // to stderr
};

// Of a process that does `run`, for 20 s at most. An exception is said, too.
inline End end_of(const std::function<void()>& run) {
  End end{-1, ""};
  int ends[2];
  if (::pipe(ends) != 0) return end;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::alarm(20);
    try {
      run();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "exception: %s\n", e.what());
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[512];
  for (ssize_t n; (n = ::read(ends[0], text, sizeof text)) > 0;)
    end.said.append(text, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return end;
}

}  // namespace unit
