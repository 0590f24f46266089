// The kernels of each family of types, one file each so that they compile side by side. `args` has been
// checked by host::reduce, and its dtype is of the family.
#pragma once

#include "device/device.hpp"

namespace mpigdr::host {

void reduce_floats(const ReduceArgs& args);  // 16 bits and wider
void reduce_float8(const ReduceArgs& args);
void reduce_complex(const ReduceArgs& args);
void reduce_integers(const ReduceArgs& args);  // and Bool

}  // namespace mpigdr::host
