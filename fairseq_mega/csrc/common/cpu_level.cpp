// The levels of instructions that this processor and its operating system have; see cpu_level.h.
#include "common/cpu_level.h"

#if FM_X86
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace fm {
namespace {

#if FM_X86
// Whether this process may use the tiles of AMX: Linux reserves their memory on request.
bool has_tiles() {
#if defined(__linux__)
  constexpr unsigned kTiles = 1u << 24, kBFloat16 = 1u << 22;
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kTiles) || !(d & kBFloat16)) return false;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

CpuLevel highest_cpu_level() {
#if FM_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuLevel::kBaseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return CpuLevel::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni")) return CpuLevel::kAvx512;
  return has_tiles() ? CpuLevel::kAmxBf16 : CpuLevel::kAvx512Bf16;
#else
  return CpuLevel::kBaseline;
#endif
}

std::atomic<CpuLevel> current_cpu_level{highest_cpu_level()};

}  // namespace fm
