#pragma once
// What every kernel shares: element types, and the macro that compiles a CPU function for several instruction sets.
// Torch headers are included by bindings.h, bindings.cpp and library.cpp only, never by a kernel's source.
#include <cstdint>

namespace fm {

// Types that tensors may have in memory; all kernels compute in float32.
enum class DType : int { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

}  // namespace fm

// One object file, three versions of the function, chosen by the processor when the library is loaded: plain x86-64,
// AVX2 with FMA, AVX-512. Functions called by such a function must be always_inline to be compiled with it.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) && \
    !defined(__SANITIZE_ADDRESS__)
#define FM_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FM_CLONES
#endif
#define FM_INLINE [[gnu::always_inline]] inline
