// Checks of a working group of ranks: point-to-point on its channels, and every native collective.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "common/error.hpp"
#include "transport/transport.hpp"

namespace checks {

using namespace mpi_gdr;

inline int my_rank, my_size;

#define REQUIRE(condition)                                                                    \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "rank %d, line %d: %s is false\n", my_rank, __LINE__, #condition); \
      std::_Exit(70);                                                                         \
    }                                                                                         \
  } while (0)

inline void wait(Transport& t, Request r, RecvStatus* status = nullptr) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!t.test(r, status)) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
}

inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(name(e.code())) + "|" + e.what();
  }
  return "";
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void point_to_point(Transport& t) {
  const int next = (my_rank + 1) % my_size, before = (my_rank + my_size - 1) % my_size;
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
    std::vector<unsigned char> out(bytes, static_cast<unsigned char>(my_rank + 1)), in(bytes, 0xff),
        any(bytes, 0xff);
    // One tag on two channels, which must not match each other.
    Request r1 = t.irecv(Channel::Collective, in.data(), bytes, before, 7);
    Request r2 = t.irecv(Channel::PointToPoint, any.data(), bytes, kAnySource, 7);
    Request s2 = t.isend(Channel::PointToPoint, out.data(), bytes, next, 7);
    Request s1 = t.isend(Channel::Collective, out.data(), bytes, next, 7);
    RecvStatus status;
    wait(t, r2, &status);
    REQUIRE(status.source == before && status.tag == 7 && status.bytes == bytes);
    wait(t, r1);
    wait(t, s1);
    wait(t, s2);
    const std::vector<unsigned char> expected(bytes, static_cast<unsigned char>(before + 1));
    REQUIRE(in == expected && any == expected);
  }
  char byte = 0;
  REQUIRE(
      contains(message_of([&] { t.isend(Channel::PointToPoint, &byte, 1, 0, t.max_tag() + 1); }), "tag="));
  REQUIRE(contains(message_of([&] { t.isend(Channel::PointToPoint, &byte, 1, my_size, 0); }), "peer="));
}

inline void run(Transport& t, const NativeCollective& call, Channel channel = Channel::Collective) {
  wait(t, t.istart_native(channel, call));
}

template <typename T>
void reductions(Transport& t, DataType dtype, T one) {
  const std::uint64_t n = 1003;
  for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::BitAnd,
                      ReduceOp::BitOr, ReduceOp::BitXor}) {
    if (!supports(op, dtype)) continue;
    // Libraries differ in sums of short integers and in the order of unsigned ones.
    const bool short_sum = op == ReduceOp::Sum && dtype != DataType::Bool && sizeof(T) < 4;
    const bool unsigned_order =
        dtype != DataType::Bool && std::is_unsigned_v<T> && (op == ReduceOp::Min || op == ReduceOp::Max);
    REQUIRE(t.has_native(Collective::AllReduce, dtype, op, n) == !(short_sum || unsigned_order));
    if (short_sum || unsigned_order) continue;
    auto value = [&](int r, std::uint64_t i) {
      return dtype == DataType::Bool ? T((r + i) % 2) : T(one + T((r + i) % 3));
    };
    auto expected = [&](std::uint64_t i) {
      T x = value(0, i);
      for (int r = 1; r < my_size; ++r) {
        const T y = value(r, i);
        const bool logical = dtype == DataType::Bool;
        if (op == ReduceOp::Sum) x = logical ? T(x || y) : T(x + y);
        if (op == ReduceOp::Product) x = T(x * y);
        if (op == ReduceOp::Min) x = std::min(x, y);
        if (op == ReduceOp::Max) x = std::max(x, y);
        if constexpr (std::is_integral_v<T>) {
          if (op == ReduceOp::BitAnd) x = T(x & y);
          if (op == ReduceOp::BitOr) x = T(x | y);
          if (op == ReduceOp::BitXor) x = T(x ^ y);
        }
      }
      return x;
    };
    std::vector<T> in(n * my_size), out(n);
    for (std::uint64_t i = 0; i < in.size(); ++i) in[i] = value(my_rank, i);
    // Out of place, in place, to one root.
    run(t, {Collective::AllReduce, in.data(), out.data(), n, dtype, op, 0});
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(out[i] == expected(i));
    out.assign(in.begin(), in.begin() + n);
    run(t, {Collective::AllReduce, out.data(), out.data(), n, dtype, op, 0}, Channel::Accelerator);
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(out[i] == expected(i));
    const int root = my_size - 1;
    std::vector<T> kept = in;
    run(t, {Collective::Reduce, in.data(), my_rank == root ? in.data() : nullptr, n, dtype, op, root});
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(in[i] == (my_rank == root ? expected(i) : kept[i]));
    in = kept;
    // reduce_scatter out of place, then in place.
    run(t, {Collective::ReduceScatter, in.data(), out.data(), n, dtype, op, 0});
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(out[i] == expected(my_rank * n + i));
    T* inside = in.data() + my_rank * n;
    run(t, {Collective::ReduceScatter, in.data(), inside, n, dtype, op, 0});
    for (std::uint64_t i = 0; i < n; ++i) REQUIRE(inside[i] == expected(my_rank * n + i));
  }
}

inline void natives(Transport& t) {
  reductions<double>(t, DataType::Float64, 1.5);
  reductions<float>(t, DataType::Float32, 0.25f);
  reductions<std::int64_t>(t, DataType::Int64, -2);
  reductions<std::int32_t>(t, DataType::Int32, -1);
  reductions<std::int16_t>(t, DataType::Int16, 1);
  reductions<std::int8_t>(t, DataType::Int8, -1);
  reductions<std::uint64_t>(t, DataType::UInt64, ~std::uint64_t{0} - 1);  // values with the top bit set
  reductions<std::uint32_t>(t, DataType::UInt32, ~std::uint32_t{0} - 1);
  reductions<std::uint16_t>(t, DataType::UInt16, 0xfffe);
  reductions<std::uint8_t>(t, DataType::UInt8, 1);
  reductions<std::uint8_t>(t, DataType::Bool, 0);
  const std::uint64_t large = std::uint64_t{1} << 31;
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::BFloat16, ReduceOp::Sum, 1));
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::Float8E5M2, ReduceOp::Max, 1));
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::Complex64, ReduceOp::Sum, 1));
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::Float32, ReduceOp::Avg, 1));
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::Float32, ReduceOp::BitOr, 1));
  REQUIRE(!t.has_native(Collective::AllReduce, DataType::Float32, ReduceOp::Sum, large));
  REQUIRE(!t.has_native(Collective::Broadcast, DataType::Float32, ReduceOp::Sum, large / 4));
  REQUIRE(t.has_native(Collective::Broadcast, DataType::BFloat16, ReduceOp::Sum, large / 4));
  REQUIRE(!t.has_native(Collective::AllToAll, DataType::UInt8, ReduceOp::Sum, 0));

  const std::uint64_t n = 777;
  std::vector<std::int16_t> data(n, my_rank == 0 ? 42 : 0), all(n * my_size);
  run(t, {Collective::Broadcast, nullptr, data.data(), n, DataType::BFloat16});
  REQUIRE(data == std::vector<std::int16_t>(n, 42));
  for (bool in_place : {false, true}) {
    std::int16_t* mine = in_place ? all.data() + my_rank * n : data.data();
    std::fill(mine, mine + n, static_cast<std::int16_t>(my_rank + 1));
    run(t, {Collective::AllGather, mine, all.data(), n, DataType::BFloat16});
    for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == static_cast<std::int16_t>(i / n + 1));
  }
  run(t, {Collective::Barrier});
  run(t, {Collective::AllReduce, nullptr, nullptr, 0, DataType::Float32});
}

}  // namespace checks
