// Threads of the library. They take no signals: handlers belong to the application's threads.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

namespace mpi_gdr {

// `name`: at most 15 characters. Throws std::system_error if no thread can be created. Thread-safe.
std::thread quiet_thread(const char* name, std::function<void()> body);

// Runs `work`, which may hang, on a thread that is never joined. Returns its result or exception.
template <typename Work>
std::future<std::invoke_result_t<Work&>> run_apart(const char* name, Work work) {
  using Task = std::packaged_task<std::invoke_result_t<Work&>()>;
  const auto task = std::make_shared<Task>(std::move(work));
  auto result = task->get_future();
  quiet_thread(name, [task] { (*task)(); }).detach();
  return result;
}

}  // namespace mpi_gdr
