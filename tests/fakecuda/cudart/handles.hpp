// The objects of callers' handles. No handle is reused; an unknown one is a fault. Needs the machine's mutex.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cudart/capture.hpp"
#include "cudart/graph.hpp"
#include "gpu/fault.hpp"

namespace fakecuda {

template <typename T, typename Handle>
class Handles {
 public:
  explicit Handles(const char* what) : what_(what) {}
  Handle add(std::shared_ptr<T> object) {
    next_ += 16;
    objects_.emplace(next_, std::move(object));
    return reinterpret_cast<Handle>(next_);
  }
  std::shared_ptr<T> find(Handle handle) const { return lookup(handle)->second; }
  std::shared_ptr<T> take(Handle handle) {
    const auto found = lookup(handle);
    std::shared_ptr<T> object = found->second;
    objects_.erase(found);
    return object;
  }

 private:
  using Objects = std::map<std::uintptr_t, std::shared_ptr<T>>;
  typename Objects::const_iterator lookup(Handle handle) const {
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == objects_.end()) fault((std::string("no such ") + what_).c_str(), handle);
    return found;
  }

  const char* const what_;
  std::uintptr_t next_ = 0x10000;
  Objects objects_;
};

Handles<Stream, cudaStream_t>& streams();
Handles<Event, cudaEvent_t>& events();
Handles<Graph, cudaGraph_t>& graphs();
Handles<GraphExec, cudaGraphExec_t>& graph_execs();

StreamPtr make_stream(Gpu& gpu, Stream::Kind kind);
// Default streams belong to the calling thread's device.
StreamPtr find_stream(cudaStream_t handle);
// The same, for work: a stream of another device, or the legacy stream beside a capture, is a fault.
StreamPtr use_stream(cudaStream_t handle, const char* call);

}  // namespace fakecuda
