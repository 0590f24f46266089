// The kernels of each family of types, one file each so that they compile side by side, and once for each
// processor (portable.hpp). Their `args` have been checked, and the dtype is of the family.
//
// What is compiled for a newer instruction set must stay among itself: all that these files define stands in
// a namespace of the instruction set, and they use no inline function of others that the compiler may not
// have inlined, because the linker keeps any one copy of such.
#pragma once

#include "device/device.hpp"

namespace mpi_gdr::kernels {

// Throws InvalidUsage for what device.hpp does not define.
void check(const ReduceArgs& args);
[[noreturn]] void unexpected(DataType dtype);  // it is not of the family

// To stand in this namespace. `Args`: that of fold.hpp.
#define MPI_GDR_FAMILIES(isa, Args)                             \
  namespace isa {                                               \
  void reduce_floats(const Args& args); /* 16 bits and wider */ \
  void reduce_float8(const Args& args);                         \
  void reduce_complex(const Args& args);  /* products */        \
  void reduce_integers(const Args& args); /* and Bool */        \
  }

// Those of a processor.
template <typename Args>
struct Families {
  void (*floats)(const Args&);
  void (*float8)(const Args&);
  void (*complex)(const Args&);
  void (*integers)(const Args&);
};

// A sum of complex numbers, scaled by real ones, is that of their parts.
template <typename Args>
Args parts_of(Args args) {
  args.count *= 2;
  args.dtype = args.dtype == DataType::Complex32   ? DataType::Float16
               : args.dtype == DataType::Complex64 ? DataType::Float32
                                                   : DataType::Float64;
  return args;
}

template <typename Args>
void reduce_with(const Families<Args>& families, const Args& args) {
  check(args);
  if (is_integral(args.dtype)) return families.integers(args);
  if (is_complex(args.dtype) && args.op == ReduceOp::Product) return families.complex(args);
  if (is_complex(args.dtype)) return families.floats(parts_of(args));
  if (item_size(args.dtype) == 1) return families.float8(args);
  families.floats(args);
}

}  // namespace mpi_gdr::kernels
