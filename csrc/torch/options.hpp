// pg_options of the backend: `mpi_backend.Options()`.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace mpigdr::torch_binding {

inline constexpr const char* kBackendName = "mpi-gdr";

// The timeout is c10d's own. Copyable, because split_group deep-copies a backend's options. Plain data: the
// usual rules for sharing between threads.
struct Options : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, timeout) {}
  Options(const Options&) = default;
  // Rows of the selection table for this group, as in MPI_GDR_SELECT. Equal on all members.
  std::string selection;
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  // A derived class that does not override this is sliced by c10d.
  c10::intrusive_ptr<c10d::Backend::Options> clone() const override {
    return c10::make_intrusive<Options>(*this);
  }
#endif
};

}  // namespace mpigdr::torch_binding
