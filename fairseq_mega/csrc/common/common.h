#pragma once
// What every kernel shares: element types, and the macro that compiles a CPU function for several instruction sets.
// Torch headers are included by bindings.h, bindings.cpp and library.cpp only, never by a kernel's source.
#include <cstdint>

namespace fm {

// Types that tensors may have in memory; all kernels compute in float32.
enum class DType : int { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

}  // namespace fm

#define FM_INLINE [[gnu::always_inline]] inline
