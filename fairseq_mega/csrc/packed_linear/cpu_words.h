#pragma once
// One row times an int8 matrix by the processor's products of 16 bits, without AVX512-VNNI.
//
// One instruction multiplies as many weights as a vector has words of 16 bits, and adds up pairs. For both halves of a
// whole number, with the widening and the sums, these are five instructions; widening to float32 takes six with AVX2. So
// the row becomes whole numbers of 32 bits, see cpu_row.h. Their halves are multiplied on their own, and the sums, which
// are exact, put together at the end. Several rows share the widened weights, and gain nothing.
#include <algorithm>
#include <cstring>
#include <vector>

#include "common/cpu_level.h"
#include "common/vector_math.h"
#include "packed_linear/cpu_row.h"
#include "packed_linear/packed_linear.h"

#if FM_X86
namespace fm {

template <int kWidth>  // floats of a vector
struct WordTask {
  using Floats = typename Lanes<kWidth>::Floats;
  typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));
  static constexpr int64_t kBlock = 2 * kWidth;  // weights of a vector
  static constexpr int64_t kLine = 64;           // of the cache
  static constexpr int64_t kPart = 4032;         // inputs whose sums stay within 32 bits: 2^23 of a pair at most

  const PackedLinear& m;
  int64_t width = 0;           // of a row of words: inputs rounded up to whole blocks
  std::vector<int16_t> words;  // (2, width): low halves, high halves
  float unit = 0.f;            // 2^e

  FM_INLINE explicit WordTask(const PackedLinear& map) : m(map) {}

  // Splits the row; returns false where it must be multiplied otherwise.
  FM_INLINE bool split() {
    const WholeNumbers numbers = whole_numbers(m.x, m.inputs);
    if (!numbers.possible) return false;
    unit = numbers.unit;
    width = (m.inputs + kBlock - 1) / kBlock * kBlock;
    words.resize(static_cast<size_t>(2 * width));
    int16_t *low = words.data(), *high = low + width;
    for (int64_t i = 0; i < m.inputs; ++i) {
      const int32_t q = static_cast<int32_t>(__builtin_rintf(m.x[i] * numbers.in_one));
      low[i] = static_cast<int16_t>(q);
      high[i] = static_cast<int16_t>((q - static_cast<int16_t>(q)) >> 16);
    }
    return true;
  }

  FM_INLINE static Ints widen(const int8_t* weights) {
    struct Bytes {
      int8_t values[kBlock];
    };
    Ints words;
    asm("vpmovsxbw %1, %0" : "=v"(words) : "m"(*reinterpret_cast<const Bytes*>(weights)));
    return words;
  }

  // sums + x weights, pairs added up; text, as intrinsics cannot be inlined into what is compiled for several levels, and
  // as GCC would add up products first, more than there are registers for
  FM_INLINE static Ints multiply_add(Ints sums, Ints x, Ints weights) {
    Ints products;
    asm("vpmaddwd %2, %1, %0" : "=v"(products) : "v"(weights), "v"(x));
    asm("vpaddd %1, %0, %0" : "+v"(sums) : "v"(products));
    return sums;
  }

  // Adds the products of a block from each of kOutputs rows of the matrix.
  template <int kOutputs>
  FM_INLINE void multiply(const int8_t* w, int64_t stride, const int16_t* x, Ints (&sums)[kOutputs][2]) const {
    Ints low, high;
    std::memcpy(&low, x, sizeof low);
    std::memcpy(&high, x + width, sizeof high);
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      const Ints weights = widen(w + o * stride);
      sums[o][0] = multiply_add(sums[o][0], low, weights);
      sums[o][1] = multiply_add(sums[o][1], high, weights);
    }
  }

  // Adds the products of whole blocks, of kPart inputs at most.
  template <int kOutputs>
  FM_INLINE void part(const int8_t* w, int64_t stride, const int16_t* x, int64_t inputs,
                      Floats (&totals)[kOutputs]) const {
    Ints sums[kOutputs][2] = {};
    int64_t i = 0;
    for (; i + kLine <= inputs; i += kLine) {
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) {
        __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(w + o * stride + i) + kStreamAhead));
      }
#pragma GCC unroll 4
      for (int64_t j = 0; j < kLine; j += kBlock) multiply<kOutputs>(w + i + j, stride, x + i + j, sums);
    }
    for (; i < inputs; i += kBlock) multiply<kOutputs>(w + i, stride, x + i, sums);
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      totals[o] += __builtin_convertvector(sums[o][1], Floats) * 0x1p16f + __builtin_convertvector(sums[o][0], Floats);
    }
  }

  template <int kOutputs>
  FM_INLINE void block(int64_t output, int64_t apart) const {
    const int8_t* w = static_cast<const int8_t*>(m.weight) + output * m.inputs;
    const int64_t stride = apart * m.inputs, whole = m.inputs / kBlock * kBlock;
    Floats totals[kOutputs] = {};
    for (int64_t i = 0; i < whole; i += kPart) {
      part<kOutputs>(w + i, stride, words.data() + i, std::min(kPart, whole - i), totals);
    }
    if (whole < m.inputs) {
      int8_t rest[kOutputs * kBlock] = {};
      for (int o = 0; o < kOutputs; ++o) std::copy(w + o * stride + whole, w + o * stride + m.inputs, rest + o * kBlock);
      part<kOutputs>(rest, kBlock, words.data() + whole, kBlock, totals);
    }
    float sums[kOutputs];
    sum_each(totals, sums);
    for (int o = 0; o < kOutputs; ++o) {
      const int64_t at = output + o * apart;
      const float scale = m.scale ? m.scale[at] : 1.f, bias = m.bias ? m.bias[at] : 0.f;
      m.y[at] = sums[o] * unit * scale + bias;  // in that order nothing overflows in between
    }
  }

  // Sums of neighbours: two of a, two of b, two of a and so on.
  FM_INLINE static Floats pairs(Floats a, Floats b) {
    Floats sums;
    asm("vhaddps %2, %1, %0" : "=x"(sums) : "x"(a), "x"(b));
    return sums;
  }

  // The sums of some vectors, of four together.
  template <int kCount>
  FM_INLINE static void sum_each(const Floats (&x)[kCount], float (&sums)[kCount]) {
    if constexpr (kCount == 4 && kWidth == 8) {
      const Floats halves = pairs(pairs(x[0], x[1]), pairs(x[2], x[3]));
      for (int i = 0; i < 4; ++i) sums[i] = halves[i] + halves[i + 4];
    } else {
      for (int i = 0; i < kCount; ++i) sums[i] = sum(x[i]);
    }
  }

  FM_INLINE void run(int64_t begin, int64_t end) const {
    const int64_t length = (end - begin) / kStreams;
    for (int64_t i = 0; i < length; ++i) block<kStreams>(begin + i, length);
    for (int64_t i = begin + kStreams * length; i < end; ++i) block<1>(i, 1);
  }
};

}  // namespace fm
#endif
