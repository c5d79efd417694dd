#pragma once
// Kernels for CPUs are compiled once for each level of instructions, in one object file; which version runs is chosen
// at run time. Unlike the compiler's function clones this works with GCC and Clang and under sanitizers, and any level
// that the processor has may be chosen, so that a machine tests all of them.
//
//   FM_INLINE void scale(float* y, int64_t size) { ... }                  // the kernel, in plain C++
//   void scale_cpu(float* y, int64_t size) { FM_AT_CPU_LEVEL(scale(y, size)); }
//
// What a kernel calls is compiled for its level where it is inlined (FM_INLINE) into it. The level is the constant
// kLevel within the macro, for templates: FM_AT_CPU_LEVEL(scale<kLevel>(y, size)). Intrinsics stand in functions marked
// FM_AVX2, FM_AVX512 or FM_AVX512_BF16, called behind `if constexpr (kLevel >= ...)` and #if FM_X86.
#include <atomic>

#include "common/common.h"

#if defined(__x86_64__)
#define FM_X86 1
#define FM_AVX2 __attribute__((target("avx2,fma")))
#define FM_AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define FM_AVX512_BF16 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#else
#define FM_X86 0
#endif

namespace fm {

// Each level has the instructions of those before it. Other processors than x86-64 have the first one only. The last
// adds products of tiles (AMX), written out in csrc/common/cpu_product_amx.cpp: nothing else is compiled for it.
enum class CpuLevel : int { kBaseline = 0, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16 };

inline constexpr const char* kCpuLevelNames[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16"};

CpuLevel highest_cpu_level();  // that this machine has

// The level that kernels run at: the highest one, unless a lower one is set.
extern std::atomic<CpuLevel> current_cpu_level;

template <class Kernel>
auto run_at_baseline(const Kernel& kernel) {
  return kernel.template operator()<CpuLevel::kBaseline>();
}

#if FM_X86
template <class Kernel>
FM_AVX2 auto run_at_avx2(const Kernel& kernel) {
  return kernel.template operator()<CpuLevel::kAvx2>();
}

template <class Kernel>
FM_AVX512 auto run_at_avx512(const Kernel& kernel) {
  return kernel.template operator()<CpuLevel::kAvx512>();
}

template <class Kernel>
FM_AVX512_BF16 auto run_at_avx512_bf16(const Kernel& kernel) {
  return kernel.template operator()<CpuLevel::kAvx512Bf16>();
}
#endif

template <class Kernel>
FM_INLINE auto run_at_cpu_level(const Kernel& kernel) {
#if FM_X86
  using Version = decltype(run_at_baseline(kernel)) (*)(const Kernel&);
  static constexpr Version versions[] = {run_at_baseline<Kernel>, run_at_avx2<Kernel>, run_at_avx512<Kernel>,
                                         run_at_avx512_bf16<Kernel>, run_at_avx512_bf16<Kernel>};
  return versions[static_cast<int>(current_cpu_level.load(std::memory_order_relaxed))](kernel);
#else
  return run_at_baseline(kernel);
#endif
}

}  // namespace fm

#define FM_AT_CPU_LEVEL(...) \
  ::fm::run_at_cpu_level([&]<::fm::CpuLevel kLevel>() __attribute__((always_inline)) { return __VA_ARGS__; })
