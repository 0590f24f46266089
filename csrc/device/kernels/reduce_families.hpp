// The kernels of each family of types, one file each so that they compile side by side, and once for each
// processor (portable.hpp). `args` have been checked, and the dtype is of the family.
//
// Code for a newer instruction set must not be linked into other code: all definitions of these files are in
// a namespace of the instruction set, and call no inline function of others that might not be inlined, since
// the linker keeps any one copy.
#pragma once

#include "device/device.hpp"

namespace mpi_gdr::kernels {

// Throws InvalidUsage for arguments that device.hpp does not define.
void check(const ReduceArgs& args);
[[noreturn]] void fail_dtype(DataType dtype);  // not of the family

// For this namespace. `Args`: that of fold.hpp.
#define MPI_GDR_FAMILIES(isa, Args)                             \
  namespace isa {                                               \
  void reduce_floats(const Args& args); /* 16 bits and wider */ \
  void reduce_float8(const Args& args);                         \
  void reduce_complex(const Args& args);  /* products */        \
  void reduce_integers(const Args& args); /* and Bool */        \
  }

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
