"""Does c10::Stream::native_handle() return the CUDA stream in code built without CUDA?"""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
long handle(long device) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  const c10::Stream stream = guard.getStream(c10::Device(c10::DeviceType::CUDA, (c10::DeviceIndex)device));
  return (long)stream.native_handle();
}
"""
module = load_inline("probe_stream", SOURCE, functions=["handle"], with_cuda=False)
torch.cuda.init()
with torch.cuda.stream(torch.cuda.Stream()) as _:
    ours, theirs = module.handle(0), torch.cuda.current_stream().cuda_stream
print("yes" if ours == theirs and ours else f"no: {ours:#x}, torch says {theirs:#x}")
