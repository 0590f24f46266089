// Copies. Pageable host memory is staged, as CUDA documents: a copy to the device reads it at once, and one
// from the device is waited for.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "cudart/api.hpp"
#include "cudart/handles.hpp"
#include "cudart/memory.hpp"
#include "cudart/settings.hpp"
#include "cudart/work.hpp"

using namespace fakecuda;

namespace fakecuda {
namespace {

// Returns the address for copies.
std::byte* access(const void* memory, std::size_t bytes, bool write) {
  auto* const address = static_cast<std::byte*>(const_cast<void*>(memory));
  const auto range = Memory::get().find(memory, bytes);
  if (!range && kPageable) return address;
  if (!range) fault("copy of host memory that is not registered any more", memory);
  count_access(where(*range, executing_device()), bytes, write);
  return range->copied ? range->copied + (address - range->begin) : address;
}

void write(void* dst, const void* src, std::size_t bytes) {
  if (weak_memory())
    weak_memory()->write(dst, src, bytes);
  else
    std::memcpy(dst, src, bytes);
}

// Weak memory is copied in pieces, as the device sees it.
void copy_bytes(void* dst, const void* src, std::size_t bytes) {
  if (!weak_memory()) return static_cast<void>(std::memcpy(dst, src, bytes));
  const bool foreign = Memory::get().is_foreign(src);
  std::array<std::byte, 4096> piece;
  for (std::size_t at = 0; at < bytes; at += piece.size()) {
    const std::size_t some = std::min(piece.size(), bytes - at);
    weak_memory()->read(static_cast<const std::byte*>(src) + at, piece.data(), some, foreign);
    weak_memory()->write(static_cast<std::byte*>(dst) + at, piece.data(), some);
  }
}

// Between devices, or on the host, no copy engine is modelled.
Engine engine_of(const std::optional<Range>& to, const std::optional<Range>& from) {
  const auto is_device = [](const std::optional<Range>& range) {
    return range && where(*range, range->device) != Where::Host;
  };
  if (is_device(to) == is_device(from)) return Engine::Kernels;
  return is_device(to) ? Engine::ToDevice : Engine::FromDevice;
}

}  // namespace

Step copy_step(void* dst, const void* src, std::size_t bytes) {
  return once([=] { copy_bytes(access(dst, bytes, true), access(src, bytes, false), bytes); });
}

Step fill_step(void* dst, int value, std::size_t bytes) {
  return once([=] {
    std::byte* const to = access(dst, bytes, true);
    if (weak_memory())
      write(to, std::vector<std::byte>(bytes, static_cast<std::byte>(value)).data(), bytes);
    else
      std::memset(to, value, bytes);
  });
}

Step by_host(Step step) {
  return [step = std::move(step)] {
    const auto settle = [] {
      if (!weak_memory()) return;
      weak_memory()->release();
      weak_memory()->acquire();
    };
    settle();
    const Progress progress = step();
    settle();
    return progress;
  };
}

}  // namespace fakecuda

FAKECUDA_API cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind,
                                         cudaStream_t handle) {
  FAKECUDA_ENTER();
  if (kind != cudaMemcpyDefault) fault("not modelled: a copy of a given kind");
  if (bytes == 0) return cudaSuccess;
  const std::optional<Range> from = Memory::get().find(src, bytes), to = Memory::get().find(dst, bytes);
  const Engine engine = engine_of(to, from);
  Lock lock = lock_machine();
  const StreamPtr stream = use_stream(handle, "cudaMemcpyAsync");
  if ((from && to) || kPageable) {
    submit(lock, stream, copy_step(dst, src, bytes), engine);
    return cudaSuccess;
  }
  expect_not_captured(stream->capture, "cudaMemcpyAsync of pageable memory");
  if (to) {
    const auto* const begin = static_cast<const std::byte*>(src);
    const auto staged = std::make_shared<const std::vector<std::byte>>(begin, begin + bytes);
    submit(lock, stream, once([=] { write(access(dst, bytes, true), staged->data(), bytes); }), engine);
    return cudaSuccess;
  }
  const Mark end =
      enqueue(lock, stream, {}, once([=] { copy_bytes(dst, from ? access(src, bytes, false) : src, bytes); }),
              engine);
  wait(lock, end);
  show_host();
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaMemsetAsync(void* dst, int value, std::size_t bytes, cudaStream_t handle) {
  FAKECUDA_ENTER();
  if (bytes == 0) return cudaSuccess;
  if (!kPageable && !Memory::get().find(dst, bytes)) fault("cudaMemsetAsync: foreign pointer", dst);
  Lock lock = lock_machine();
  submit(lock, use_stream(handle, "cudaMemsetAsync"), fill_step(dst, value, bytes));
  return cudaSuccess;
}

// Copies on the legacy stream that wait for their own work.
FAKECUDA_API cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind) {
  const cudaError_t status = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, nullptr);
  return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}

FAKECUDA_API cudaError_t cudaMemset(void* dst, int value, std::size_t bytes) {
  const cudaError_t status = cudaMemsetAsync(dst, value, bytes, nullptr);
  return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}
