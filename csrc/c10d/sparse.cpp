#include "c10d/sparse.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "c10d/tensors.hpp"
#include "common/error.hpp"
#include "common/float_mode.hpp"

namespace mpi_gdr::torch_binding {
namespace {

constexpr std::size_t kMostDimensions = 64;  // torch's limit

struct Header {  // sent to the other ranks
  std::int64_t dtype = 0;
  std::int64_t sparse_dimensions = 0, dense_dimensions = 0;
  std::array<std::int64_t, kMostDimensions> sizes{};
  std::int64_t elements = 0;  // may differ between ranks, as `bytes` may
  std::int64_t bytes = 0;     // indices and values

  bool same_kind(const Header& other) const {
    return dtype == other.dtype && sparse_dimensions == other.sparse_dimensions &&
           dense_dimensions == other.dense_dimensions && sizes == other.sizes;
  }
  at::IntArrayRef shape() const {
    return {sizes.data(), static_cast<std::size_t>(sparse_dimensions + dense_dimensions)};
  }
  std::string describe() const {
    return c10::str(c10::toString(static_cast<at::ScalarType>(dtype)), shape(), " with ", sparse_dimensions,
                    " sparse dimensions");
  }
};

struct Exchange {  // written by the issuing thread, then by the one that holds the progress role
  int rank = 0, size = 1;
  std::vector<Header> headers;  // by rank, after the first stage
  Header own;
  at::Tensor packed;                         // uint8: own indices, then values
  std::unique_ptr<std::uint8_t[]> gathered;  // by rank, after the second stage

  int first_different() const {  // from rank 0's; -1: all agree
    for (int r = 1; r < size; ++r)
      if (!headers[r].same_kind(headers[0])) return r;
    return -1;
  }

  // The second stage. Called with the progress role, so it must not create or release tensors.
  std::optional<CollectiveCall> exchange_elements() {
    if (first_different() >= 0) return std::nullopt;  // the same on all ranks
    CollectiveCall call;
    call.spec = {Collective::AllGather, rank, size};
    std::uint64_t total = 0;
    for (const Header& header : headers) {
      call.spec.counts.push_back(static_cast<std::uint64_t>(header.bytes));
      total += call.spec.counts.back();
    }
    if (total == 0) return std::nullopt;
    try {
      gathered = std::make_unique_for_overwrite<std::uint8_t[]>(total);
    } catch (const std::bad_alloc&) {
      throw NoMemory(total, "indices and values of all ranks");
    }
    call.input = packed.const_data_ptr();
    call.output = gathered.get();
    return call;
  }

  at::Tensor sum(at::TensorOptions values_options) const {
    if (const int r = first_different(); r >= 0)
      fail(ErrorCode::InvalidUsage, "all_reduce: sparse tensors differ between ranks: rank 0 has ",
           headers[0].describe(), ", rank ", r, " has ", headers[r].describe(), "; expected equal ones");
    std::vector<at::Tensor> indices, values;
    std::int64_t at = 0;
    for (const Header& header : headers) {
      std::uint8_t* const begin = gathered.get() + at;
      const std::int64_t index_bytes = header.sparse_dimensions * header.elements * 8;
      std::vector<std::int64_t> value_sizes{header.elements};
      for (std::int64_t d = 0; d < header.dense_dimensions; ++d)
        value_sizes.push_back(header.sizes[header.sparse_dimensions + d]);
      indices.push_back(copy_of(begin, {header.sparse_dimensions, header.elements}, at::kLong));
      values.push_back(copy_of(begin + index_bytes, value_sizes, values_options.dtype()));
      at += header.bytes;
    }
    const StandardFloatMode mode;
    return at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values), own.shape(),
                                 values_options.layout(at::kSparse),
                                 /*is_coalesced=*/false)
        .coalesce();
  }

 private:
  // No view: values may be unaligned.
  static at::Tensor copy_of(const void* data, at::IntArrayRef sizes, const at::TensorOptions& dtype) {
    at::Tensor tensor = at::empty(sizes, dtype);
    if (tensor.nbytes()) std::memcpy(tensor.mutable_data_ptr(), data, tensor.nbytes());
    return tensor;
  }
};

at::Tensor packed(const at::Tensor& indices, const at::Tensor& values) {
  at::Tensor bytes;
  try {
    bytes = at::empty({static_cast<std::int64_t>(indices.nbytes() + values.nbytes())}, at::kByte);
  } catch (const c10::Error&) {
    throw NoMemory(
        "all_reduce: " +
        std::string(NoMemory(indices.nbytes() + values.nbytes(), "this rank's indices and values").what()));
  }
  auto* const to = static_cast<std::uint8_t*>(bytes.mutable_data_ptr());
  if (indices.nbytes()) std::memcpy(to, indices.const_data_ptr(), indices.nbytes());
  if (values.nbytes()) std::memcpy(to + indices.nbytes(), values.const_data_ptr(), values.nbytes());
  return bytes;
}

void check(const at::Tensor& tensor, const c10d::AllreduceOptions& opts) {
  if (!tensor.defined() || tensor.layout() != at::kSparse)
    fail(ErrorCode::InvalidUsage, "all_reduce: tensors is ",
         tensor.defined() ? c10::str("a ", tensor.layout(), " tensor") : std::string("undefined"),
         ", expected a sparse COO tensor");
  if (tensor.is_meta())
    fail(ErrorCode::InvalidUsage,
         "all_reduce: tensors is on the device meta, expected a tensor that holds data");
  if (static_cast<std::size_t>(tensor.dim()) > kMostDimensions)
    fail(ErrorCode::InvalidUsage, "all_reduce: a sparse tensor has ", tensor.dim(),
         " dimensions, expected at most ", kMostDimensions);
  if (opts.reduceOp.op_ != c10d::ReduceOp::SUM)
    fail(ErrorCode::InvalidUsage, "all_reduce: op=", name(reduction(opts.reduceOp, "all_reduce").op),
         " of a sparse tensor, expected sum");
}

}  // namespace

TensorCall sparse_all_reduce(const at::Tensor& tensor, const c10d::AllreduceOptions& opts, int rank,
                             int size) {
  check(tensor, opts);
  TensorCall call(nullptr, "all_reduce", c10d::OpType::_ALLREDUCE_SPARSE, opts.asyncOp, opts.timeout);
  call.title = "all_reduce_sparse";
  at::NoGradGuard no_grad;
  const at::Tensor indices = tensor._indices().to(at::kCPU).contiguous();
  const at::Tensor values = tensor._values().to(at::kCPU).contiguous();
  auto x = std::make_shared<Exchange>();
  x->rank = rank;
  x->size = size;
  x->headers.resize(size);
  x->own.dtype = static_cast<std::int64_t>(tensor.scalar_type());
  x->own.sparse_dimensions = tensor.sparse_dim();
  x->own.dense_dimensions = tensor.dense_dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), x->own.sizes.begin());
  x->own.elements = tensor._nnz();
  x->packed = packed(indices, values);
  x->own.bytes = x->packed.numel();

  call.accelerator = !tensor.is_cpu();
  call.detail.text = "sparse " + describe(tensor) + " nnz=" + std::to_string(x->own.elements);
  call.outputs = {tensor};  // not an input: the profiler wants dense tensors
  call.held = {tensor, x->packed};
  call.kept.push_back(x);
  ChainedCall chained;
  chained.first.spec = {Collective::AllGather, rank, size};
  chained.first.spec.count = sizeof(Header);
  chained.first.input = &x->own;
  chained.first.output = x->headers.data();
  // A plain pointer: the progress thread may destroy the callback, but must not release tensors.
  chained.next = [x = x.get()] { return x->exchange_elements(); };
  call.calls.emplace_back(std::move(chained));
  call.epilogues.push_back([tensor, x] {
    try {
      copy_data(tensor, x->sum(tensor._values().options().device(at::kCPU)));
    } catch (const c10::Error& e) {
      const std::string text = e.what_without_backtrace();
      if (text.find("allocate memory") == std::string::npos) throw;
      throw NoMemory("all_reduce: no memory for the sum of the sparse tensors: " + text);
    }
  });
  return call;
}

}  // namespace mpi_gdr::torch_binding
