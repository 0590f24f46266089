// The kernels of each family of types, one file each so that they compile side by side, and once for each
// instruction set. `args` has been checked by host::reduce, and its dtype is of the family.
//
// What is compiled for a newer instruction set must stay among itself: all that these files define stands in
// a namespace of the instruction set, and they use no inline function of others that the compiler may not
// have inlined, because the linker keeps any one copy of such.
#pragma once

#include "device/device.hpp"
#include "device/host/isa.hpp"

namespace mpigdr::host {

[[noreturn]] void unexpected(DataType dtype);  // it is not of the family

#define MPIGDR_FAMILIES(isa)                                          \
  namespace isa {                                                     \
  void reduce_floats(const ReduceArgs& args); /* 16 bits and wider */ \
  void reduce_float8(const ReduceArgs& args);                         \
  void reduce_complex(const ReduceArgs& args);  /* products */        \
  void reduce_integers(const ReduceArgs& args); /* and Bool */        \
  }
MPIGDR_FAMILIES(baseline)
MPIGDR_FAMILIES(avx2)
MPIGDR_FAMILIES(avx512)
MPIGDR_FAMILIES(avx512_bf16)
#undef MPIGDR_FAMILIES

}  // namespace mpigdr::host
