#pragma once
// One row times an int8 matrix by the processor's own products of bytes (AVX512-VNNI, in the level of AVX512-BF16).
//
// One instruction multiplies 64 weights with as many bytes and adds up fours; widening them to float32 and multiplying
// takes sixteen. So the row becomes whole numbers of 32 bits, see cpu_row.h. The four bytes of a number are multiplied on
// their own, and the sums, which are exact, put together at the end. The instruction takes bytes without a sign on its
// left: the highest one of a number has 128 added, and 128 times the sum of the weights is subtracted again. Several rows
// share the widened weights, and gain nothing.
#include <algorithm>
#include <cstring>
#include <vector>

#include "common/cpu_level.h"
#include "common/vector_math.h"
#include "packed_linear/cpu_row.h"
#include "packed_linear/packed_linear.h"

#if FM_X86
namespace fm {

struct ByteTask {
  typedef int32_t Ints __attribute__((vector_size(64)));
  using Floats = Lanes<16>::Floats;
  static constexpr int kBytes = 4;                 // of a whole number
  static constexpr int64_t kBlock = sizeof(Ints);  // weights of a vector
  static constexpr int64_t kMostInputs = 1 << 20;  // whose sums stay within 32 bits
  // Neighbouring rows are read side by side, and this many bytes ahead are fetched early, into the second level of the
  // cache, which has more requests under way at once than the first; long streams, see cpu_row.h, are no faster here
  // (measured; 16 to 64 KiB do equally well).
  static constexpr int64_t kAhead = 16384;

  const PackedLinear& m;
  int64_t width = 0;           // of a row of bytes: inputs rounded up to whole blocks
  std::vector<uint8_t> bytes;  // (kBytes, width)
  float unit = 0.f;            // 2^e

  FM_INLINE explicit ByteTask(const PackedLinear& map) : m(map) {}

  // Splits the row; returns false where it must be multiplied otherwise.
  FM_INLINE bool split() {
    const WholeNumbers numbers = whole_numbers(m.x, m.inputs);
    if (!numbers.possible || m.inputs > kMostInputs) return false;
    unit = numbers.unit;
    width = (m.inputs + kBlock - 1) / kBlock * kBlock;
    bytes.resize(static_cast<size_t>(kBytes * width));
    const float* x = m.x;  // in variables, as writing bytes might change all that is in memory
    const int64_t inputs = m.inputs, row = width;
    uint8_t* to = bytes.data();
    for (int64_t i = 0; i < inputs; ++i) {
      const uint32_t q = static_cast<uint32_t>(static_cast<int32_t>(__builtin_rintf(x[i] * numbers.in_one))) + (128u << 24);
#pragma GCC unroll 4
      for (int byte = 0; byte < kBytes; ++byte) to[byte * row + i] = static_cast<uint8_t>(q >> 8 * byte);
    }
    return true;
  }

  // sums + x weights, fours added up; text, as intrinsics cannot be inlined into what is compiled for several levels
  FM_INLINE static Ints multiply_add(Ints sums, Ints x, Ints weights) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(weights));
    return sums;
  }

  // Adds the products of a block from each of kOutputs rows of the matrix, and last their weights.
  template <int kOutputs>
  FM_INLINE void multiply(const int8_t* w, int64_t stride, const uint8_t* x,
                          Ints (&sums)[kOutputs][kBytes + 1]) const {
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      Ints weights;
      std::memcpy(&weights, w + o * stride, sizeof weights);
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(w + o * stride) + kAhead), 0, 2);
#pragma GCC unroll 4
      for (int byte = 0; byte < kBytes; ++byte) {
        Ints numbers;
        std::memcpy(&numbers, x + byte * width, sizeof numbers);
        sums[o][byte] = multiply_add(sums[o][byte], numbers, weights);
      }
      sums[o][kBytes] = multiply_add(sums[o][kBytes], Ints{} + 0x01010101, weights);
    }
  }

  FM_INLINE static float total(const Ints (&sums)[kBytes + 1]) {
    Floats lanes = __builtin_convertvector(sums[3] - (sums[kBytes] << 7), Floats) * 0x1p24f;
#pragma GCC unroll 4
    for (int byte = 2; byte >= 0; --byte) {
      lanes += __builtin_convertvector(sums[byte], Floats) * static_cast<float>(1 << 8 * byte);
    }
    return sum(lanes);
  }

  template <int kOutputs>
  FM_INLINE void block(int64_t output) const {
    const int8_t* w = static_cast<const int8_t*>(m.weight) + output * m.inputs;
    const int64_t whole = m.inputs / kBlock * kBlock;
    int8_t rest[kOutputs * kBlock] = {};  // filled first: a call in between would send all sums to memory
    for (int o = 0; o < kOutputs; ++o) std::copy(w + o * m.inputs + whole, w + (o + 1) * m.inputs, rest + o * kBlock);
    Ints sums[kOutputs][kBytes + 1] = {};
    if (whole < m.inputs) multiply<kOutputs>(rest, kBlock, bytes.data() + whole, sums);
    for (int64_t i = 0; i < whole; i += kBlock) multiply<kOutputs>(w + i, m.inputs, bytes.data() + i, sums);
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      const float scale = m.scale ? m.scale[output + o] : 1.f, bias = m.bias ? m.bias[output + o] : 0.f;
      m.y[output + o] = total(sums[o]) * unit * scale + bias;  // in that order nothing overflows in between
    }
  }

  FM_INLINE void run(int64_t begin, int64_t end) const {
    int64_t output = begin;
    for (; output + 4 <= end; output += 4) block<4>(output);
    for (; output < end; ++output) block<1>(output);
  }
};

}  // namespace fm
#endif
