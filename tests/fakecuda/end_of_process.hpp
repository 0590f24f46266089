// Runs code that must end its process, and captures how.
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
  std::string text;  // on stderr
};

// Runs `run` in a child for at most 20 s. An exception's text is included.
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
    end.text.append(text, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return end;
}

}  // namespace unit
