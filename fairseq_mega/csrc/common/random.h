#pragma once
// Random numbers of dropout: a hash of (seed, row, column) for every element. How the work is divided, what device does
// it and whether it is done again change nothing.
#include "common/common.h"

#if defined(__CUDACC__)
#define FM_EVERYWHERE __host__ __device__ __forceinline__
#else
#define FM_EVERYWHERE FM_INLINE
#endif

namespace fm {

constexpr double kHashes = 16777216.;  // hashes lie below this, 2^24

FM_EVERYWHERE uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;  // the finaliser of SplitMix64
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// What the hashes of a row begin with.
struct RowBits {
  uint32_t low = 0, high = 0;
};

FM_EVERYWHERE RowBits row_bits(uint64_t seed, int64_t row) {
  const uint64_t bits = mix_bits(seed + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(row + 1));
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

// The hash of one column, or of a vector of columns. 32-bit arithmetic only, which vectorises everywhere; the row's 64
// bits enter in two places.
template <class Word>
FM_EVERYWHERE Word hash_of(RowBits row, Word column) {
  Word x = column * 0x9e3779b1u + row.low;
  x = (x ^ (x >> 16)) * 0x7feb352du + row.high;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return (x ^ (x >> 16)) >> 8;
}

// What is dropped: elements whose hash is below the limit. The others are multiplied by `kept`.
struct Dropping {
  const int64_t* seed = nullptr;  // one number; null: nothing is dropped
  uint32_t limit = 0;
  float kept = 1.f;

  FM_EVERYWHERE RowBits row(int64_t row) const {
    return seed ? row_bits(static_cast<uint64_t>(*seed), row) : RowBits();
  }
};

}  // namespace fm
