#pragma once
// Subnormal numbers, on which some processors take a hundred times as long.
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fm {

// Subnormal operands and results of this thread are zero as long as this lives (x86-64 only; others keep their speed).
// What is computed meanwhile must be called, not inlined, as compilers move arithmetic past the borders.
class SubnormalsAreZero {
 public:
#if defined(__x86_64__)
  SubnormalsAreZero() : before_(_mm_getcsr()) {
    constexpr unsigned kResults = 0x8000, kOperands = 0x0040;
    _mm_setcsr(before_ | kResults | kOperands);
  }
  ~SubnormalsAreZero() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  SubnormalsAreZero() {}
#endif

 public:
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;
};

}  // namespace fm
