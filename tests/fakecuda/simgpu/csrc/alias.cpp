#include "alias.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "device_memory.hpp"

namespace simgpu {

namespace {

c10::Storage cpu_storage(const c10::Storage& device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), device.nbytes(),
      c10::DataPtr(device.mutable_data(), c10::Device(c10::DeviceType::CPU)), c10::GetCPUAllocator(), true));
}

// A tensor of `storage` with the shape of `shape`.
at::Tensor shaped_like(const at::Tensor& shape, const c10::Storage& storage, c10::DispatchKey key) {
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), shape.dtype());
  impl->set_sizes_and_strides(shape.sizes(), shape.strides(), shape.storage_offset());
  if (shape.dim() == 0) impl->set_wrapped_number(shape.unsafeGetTensorImpl()->is_wrapped_number());
  at::Tensor tensor(std::move(impl));
  if (shape.is_conj()) tensor._set_conj(true);
  if (shape.is_neg()) tensor._set_neg(true);
  return tensor;
}

}  // namespace

at::Tensor Aliases::of(const at::Tensor& device) {
  if (!device.defined()) return device;
  for (const Pair& pair : pairs_)
    if (pair.device.is_same(device)) return pair.alias;
  c10::Storage& storage = storages_[device.storage().unsafeGetStorageImpl()];
  if (!storage) storage = cpu_storage(device.storage());
  at::Tensor alias = shaped_like(device, storage, c10::DispatchKey::CPU);
  pairs_.push_back({device, alias, storage.data()});
  return alias;
}

at::Tensor Aliases::device_result(const at::Tensor& result, c10::Stream stream) {
  if (!result.defined()) return result;
  for (const Pair& pair : pairs_)
    if (pair.alias.is_same(result)) return pair.device;
  for (const Pair& pair : pairs_)
    if (pair.alias.storage().is_alias_of(result.storage()))
      return shaped_like(result, pair.device.storage(), c10::DispatchKey::PrivateUse1);
  return copied_to_device(result, stream);
}

void Aliases::adopt_shapes(c10::Stream stream) {
  for (const Pair& pair : pairs_) {
    const at::Tensor& alias = pair.alias;
    if (alias.storage().data() != pair.memory) {  // only outputs that were too small have grown
      c10::StorageImpl& storage = *pair.device.storage().unsafeGetStorageImpl();
      resize_storage(storage, alias.storage().nbytes());
      enqueue(stream, [kept = alias.storage(), memory = storage.mutable_data()] {
        std::copy_n(static_cast<const char*>(kept.data()), kept.nbytes(), static_cast<char*>(memory));
      });
    }
    if (alias.sizes() != pair.device.sizes() || alias.strides() != pair.device.strides())
      pair.device.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(),
                                                               alias.storage_offset());
  }
}

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                           c10::DeviceIndex device) {
  const c10::DeviceGuard guard(c10::Device(kDevice, resolve(device)));  // where the allocator allocates
  return at::detail::empty_strided_generic(sizes, strides, &device_memory(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
}

at::Tensor copied_to_device(const at::Tensor& source, c10::Stream stream) {
  at::Tensor result =
      empty_on_device(source.sizes(), source.strides(), source.scalar_type(), stream.device_index());
  enqueue(stream, [target = alias(result), source] { target.copy_(source); });
  return result;
}

void resize_storage(c10::StorageImpl& storage, std::size_t bytes) {
  const std::size_t kept = std::min(bytes, storage.nbytes());
  const c10::Stream stream = current_stream(storage.device().index());
  const c10::DeviceGuard guard(stream.device());
  c10::DataPtr memory = device_memory().allocate(bytes);
  if (kept) queue(stream).copy(memory.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(bytes);
}

void enqueue(c10::Stream stream, std::function<void()> work) {
  queue(stream).enqueue([work = std::move(work)] {
    const at::AutoDispatchBelowADInplaceOrView kernels_only;
    work();
  });
}

}  // namespace simgpu
