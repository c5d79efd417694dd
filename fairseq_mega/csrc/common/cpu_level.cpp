// The levels of instructions that this processor and its operating system have; see cpu_level.h.
#include "common/cpu_level.h"

namespace fm {

CpuLevel highest_cpu_level() {
#if FM_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuLevel::kBaseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return CpuLevel::kAvx2;
  }
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") ? CpuLevel::kAvx512Bf16 : CpuLevel::kAvx512;
#else
  return CpuLevel::kBaseline;
#endif
}

std::atomic<CpuLevel> current_cpu_level{highest_cpu_level()};

}  // namespace fm
