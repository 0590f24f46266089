// Collectives with expected results, bit for bit: reductions by host::reduce, others as copies.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "collective_data.hpp"
#include "collectives/collectives.hpp"
#include "device/device.hpp"
#include "device_elements.hpp"

namespace fakecuda_test {

using namespace mpi_gdr;
using Bytes = std::vector<unsigned char>;

struct Call {
  const Algorithm* algorithm;
  int size;
  std::uint64_t count;
  DataType dtype;
  ReduceOp op;
  int number;  // sets the root and the inputs
};

constexpr double kFactor = 0.375;

inline CollectiveSpec spec_of(const Call& call, int rank) {
  CollectiveSpec spec = stream_test::make_spec(call.algorithm->collective, rank, call.size, call.count,
                                               call.number % call.size);
  spec.dtype = call.dtype;
  spec.op = call.op;
  return spec;
}

// In elements.
inline std::uint64_t given_count(const CollectiveSpec& spec) {
  return traits(spec.collective).input == Contents::None ? output_count(spec) : input_count(spec);
}

inline Bytes input_of(const Call& call, int rank) {
  std::mt19937 random(static_cast<unsigned>(call.number * 64 + rank));
  return unit::random_elements(call.dtype, given_count(spec_of(call, rank)), random);
}

inline Bytes folded(const Call& call) {
  std::vector<Bytes> inputs;
  std::vector<const void*> sources;
  for (int r = 0; r < call.size; ++r) inputs.push_back(input_of(call, r));
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Bytes result(inputs[0].size());
  ReduceArgs args{call.dtype,     call.op,   result.data(),
                  sources.data(), call.size, result.size() / item_size(call.dtype)};
  if (call.op == ReduceOp::Avg) args.divisor = static_cast<std::uint32_t>(call.size);
  if (call.op == ReduceOp::PreMulSum) args.factor = kFactor;
  host::reduce(args);
  return result;
}

inline Bytes expected(const Call& call, int rank) {
  const CollectiveSpec spec = spec_of(call, rank);
  const std::size_t item = item_size(call.dtype), block = static_cast<std::size_t>(call.count) * item;
  const auto part = [&](const Bytes& all, std::size_t at, std::size_t bytes) {
    return Bytes(all.begin() + static_cast<std::ptrdiff_t>(at),
                 all.begin() + static_cast<std::ptrdiff_t>(at + bytes));
  };
  const auto joined = [&](auto piece) {
    Bytes all;
    for (int r = 0; r < call.size; ++r) {
      const Bytes one = piece(r);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  };
  const bool root = spec.rank == spec.root;
  switch (spec.collective) {
    case Collective::Barrier:
      return {};
    case Collective::AllReduce:
      return folded(call);
    case Collective::Reduce:
      return root ? folded(call) : Bytes{};
    case Collective::ReduceScatter:
      return part(folded(call), static_cast<std::size_t>(rank) * block, block);
    case Collective::Broadcast:
      return input_of(call, spec.root);
    case Collective::Scatter:
      return part(input_of(call, spec.root), static_cast<std::size_t>(rank) * block, block);
    case Collective::Gather:
      return root ? joined([&](int r) { return input_of(call, r); }) : Bytes{};
    case Collective::AllGather:
      return joined([&](int r) { return input_of(call, r); });
    case Collective::AllToAll:
      return joined([&](int r) {
        std::uint64_t before = 0;
        for (int to = 0; to < rank; ++to) before += stream_test::pair_count(r, to, call.count);
        return part(input_of(call, r), before * item, stream_test::pair_count(r, rank, call.count) * item);
      });
  }
  return {};
}

}  // namespace fakecuda_test
