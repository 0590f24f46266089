// Creation, copies, fills and views of tensors. Memory is accessed in the order of the current stream.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <utility>

#include "alias.hpp"
#include "device_memory.hpp"
#include "host_memory.hpp"

namespace simgpu {

namespace {

using at::IntArrayRef;
using at::Tensor;
template <typename T>
using Maybe = std::optional<T>;

Tensor empty(IntArrayRef sizes, Maybe<at::ScalarType> dtype, Maybe<at::Layout>, Maybe<at::Device> device,
             Maybe<bool>, Maybe<at::MemoryFormat> format) {
  const auto type = dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype()));
  const Tensor shape = at::detail::empty_meta(sizes, type, format);
  return empty_on_device(shape.sizes(), shape.strides(), type, device ? device->index() : -1);
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, Maybe<at::ScalarType> dtype, Maybe<at::Layout>,
                     Maybe<at::Device> device, Maybe<bool>) {
  return empty_on_device(sizes, strides, dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype())),
                         device ? device->index() : -1);
}

// Records host memory that the device may use after the call; false: not pinned, so the caller must wait.
bool record_pinned(const Tensor& host, c10::Stream stream) {
  return host_memory().record_event(host.storage().mutable_data(), nullptr, stream);
}

void copy_to_device(const Tensor& source, const Tensor& target, bool non_blocking) {
  const c10::Stream stream = current_stream(target.device().index());
  if (!non_blocking || !host_memory().contains(source.storage().data())) {
    // Copies the current data, as torch does with small pageable data.
    enqueue(stream, [target = alias(target), source = source.clone()] { target.copy_(source); });
    return;
  }
  // Keeps the memory, not the tensor, which the host may free before the device gets there.
  enqueue(stream, [target = alias(target), source = alias(source)] { target.copy_(source); });
  record_pinned(source, stream);
}

void copy_to_host(const Tensor& source, const Tensor& target, bool non_blocking) {
  const c10::Stream stream = current_stream(source.device().index());
  enqueue(stream, [target = alias(target), source = alias(source)] { target.copy_(source); });
  if (!non_blocking || !record_pinned(target, stream)) queue(stream).synchronize();
}

void copy_on_device(const Tensor& source, const Tensor& target) {
  const c10::Stream stream = current_stream(source.device().index());
  const c10::Stream other = current_stream(target.device().index());
  if (other != stream) queue(stream).wait(queue(other).mark());
  enqueue(stream, [target = alias(target), source = alias(source)] { target.copy_(source); });
  if (other != stream) queue(other).wait(queue(stream).mark());
}

Tensor copy_from(const Tensor& source, const Tensor& target, bool non_blocking) {
  TORCH_CHECK(source.layout() == at::kStrided && target.layout() == at::kStrided,
              "simgpu copies strided tensors");
  if (source.is_cpu())
    copy_to_device(source, target, non_blocking);
  else if (target.is_cpu())
    copy_to_host(source, target, non_blocking);
  else
    copy_on_device(source, target);
  return target;
}

const Tensor& resize(const Tensor& self, IntArrayRef sizes, Maybe<at::MemoryFormat> format) {
  const Tensor shape = at::detail::empty_meta(sizes, self.scalar_type(), format);
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  const std::size_t needed = at::detail::computeStorageNbytes(shape.sizes(), shape.strides(), self.itemsize(),
                                                              self.storage_offset());
  c10::StorageImpl* const storage = self.storage().unsafeGetStorageImpl();
  if (shape.numel() && needed > storage->nbytes()) {
    TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
    resize_storage(*storage, needed);
  }
  impl->set_sizes_and_strides(shape.sizes(), shape.strides());
  return self;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  if (source.sizes() != target.sizes()) target.resize_(source.sizes());
  return copy_from(source, target, false);
}

Tensor& set_storage(Tensor& self, at::Storage storage, int64_t offset, IntArrayRef sizes,
                    IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(storage), offset, sizes, strides);
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  if (strides.data())
    impl->set_sizes_and_strides(sizes, strides, offset);
  else {
    impl->set_sizes_contiguous(sizes);
    impl->set_storage_offset(offset);
  }
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage storage) {
  const auto elements = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return set_storage(self, std::move(storage), 0, {elements}, {1});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor& set_nothing(Tensor& self) {
  const auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, device_memory().allocate(0), &device_memory(), true);
  return set_storage(self, at::Storage(storage), 0, {0}, {1});
}

Tensor& fill(Tensor& self, const at::Scalar& value) {
  enqueue(current_stream(self.device().index()), [target = alias(self), value] { target.fill_(value); });
  return self;
}

Tensor& zero(Tensor& self) { return fill(self, 0); }

at::Scalar item(const Tensor& self) {
  current_queue(self.device().index()).synchronize();
  return alias(self).item();
}

void record_stream(Tensor& self, at::Stream stream) {
  device_memory().recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("fill_.Scalar", fill);
  m.impl("zero_", zero);
  m.impl("_local_scalar_dense", item);
  m.impl("record_stream", record_stream);
  m.impl("view", static_cast<Tensor (*)(const Tensor&, IntArrayRef)>(at::native::view));
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", at::native::_reshape_alias);
}

// Copies resolve lazy conjugation and negation; torch would do so with a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace simgpu
