// Linear maps of a few rows on the CPU; see packed_linear.h.
//
// Weights are read as words of 32 bits, each of one of float32, two of bfloat16 or four of int8, and the first of all words of a vector,
// the second ones and so on widened by shifts: one or two instructions, at every CPU level. The inputs are put in the
// same order once for all outputs. bfloat16's own products (vdpbf16ps) are of no use: they would round the inputs, or
// take as long for inputs in two parts as products of float32 do.
#include "packed_linear/packed_linear.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/cpu_level.h"
#include "packed_linear/cpu_bytes.h"

namespace fm {
namespace {

template <class T, int kWidth>
struct VectorOf {
  typedef T type __attribute__((vector_size(kWidth * sizeof(T))));
};
template <class T, int kWidth>
using Vector = typename VectorOf<T, kWidth>::type;

template <int kWidth>
FM_INLINE Vector<float, kWidth> load(const float* from) {
  Vector<float, kWidth> x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

// Rows of a matrix are too short for the processor to see which one is next: this many bytes ahead are fetched early,
// into the second level of the cache, which has more requests under way at once than the first (measured; 16 to 64 KiB
// do equally well).
constexpr int kAhead = 16384;

template <class T>
constexpr int kParts = 4 / static_cast<int>(sizeof(T));  // weights of a word, the first in its lowest bits

// The weights number `part` of all words.
template <int kWidth>
FM_INLINE Vector<float, kWidth> widen(Vector<uint32_t, kWidth> words, int part, const uint16_t*) {
  const Vector<uint32_t, kWidth> bits = part == 0 ? words << 16 : words & 0xffff0000u;
  Vector<float, kWidth> x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

template <int kWidth>
FM_INLINE Vector<float, kWidth> widen(Vector<uint32_t, kWidth> words, int part, const int8_t*) {
  const Vector<uint32_t, kWidth> highest = words << (24 - 8 * part);
  Vector<int32_t, kWidth> signed_words;
  std::memcpy(&signed_words, &highest, sizeof highest);
  return __builtin_convertvector(signed_words >> 24, Vector<float, kWidth>);
}

template <int kWidth>
FM_INLINE Vector<float, kWidth> widen(Vector<uint32_t, kWidth> words, int, const float*) {
  Vector<float, kWidth> x;
  std::memcpy(&x, &words, sizeof x);
  return x;
}

template <int kWidth>
FM_INLINE float sum(Vector<float, kWidth> x) {
  if constexpr (kWidth == 1) {
    return x[0];
  } else {
    Vector<float, kWidth / 2> halves[2];
    std::memcpy(halves, &x, sizeof x);
    return sum<kWidth / 2>(halves[0] + halves[1]);
  }
}

// One task: some outputs of a map, with the inputs in the order of the weights.
template <int kWidth, class T>
struct Task {
  static constexpr int kBlock = kWidth * kParts<T>;  // weights of a vector of words

  const PackedLinear& m;
  int64_t width;         // of a row of x, inputs rounded up to whole blocks with zeros
  std::vector<float> x;  // (rows, width)

  FM_INLINE explicit Task(const PackedLinear& map)
      : m(map), width((map.inputs + kBlock - 1) / kBlock * kBlock), x(static_cast<size_t>(map.rows * width)) {
    for (int64_t row = 0; row < m.rows; ++row) {
      const float* from = m.x + row * m.inputs;
      float* to = x.data() + row * width;
      int64_t block = 0;
      for (; block + kBlock <= m.inputs; block += kBlock) {
        for (int part = 0; part < kParts<T>; ++part) {
          for (int i = 0; i < kWidth; ++i) to[block + part * kWidth + i] = from[block + i * kParts<T> + part];
        }
      }
      for (int64_t i = block; i < m.inputs; ++i) {
        to[block + (i - block) % kParts<T> * kWidth + (i - block) / kParts<T>] = from[i];
      }
    }
  }

  // Adds the products of a vector of words from each of kOutputs rows of the matrix.
  template <int kRows, int kOutputs>
  FM_INLINE void multiply(const T* w, int64_t stride, const float* inputs,
                          Vector<float, kWidth> (&sums)[kRows][kOutputs]) const {
    Vector<uint32_t, kWidth> words[kOutputs];
    for (int o = 0; o < kOutputs; ++o) {
      std::memcpy(&words[o], w + o * stride, sizeof words[o]);
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(w + o * stride) + kAhead), 0, 2);
    }
#pragma GCC unroll 4
    for (int part = 0; part < kParts<T>; ++part) {
      Vector<float, kWidth> numbers[kRows];
      for (int r = 0; r < kRows; ++r) numbers[r] = load<kWidth>(inputs + r * width + part * kWidth);
      for (int o = 0; o < kOutputs; ++o) {
        const Vector<float, kWidth> weights = widen<kWidth>(words[o], part, w);
        for (int r = 0; r < kRows; ++r) sums[r][o] += weights * numbers[r];
      }
    }
  }

  // Inner products of kRows rows of x with kOutputs rows of the matrix, each of which is widened once.
  template <int kRows, int kOutputs>
  FM_INLINE void block(int64_t row, int64_t output) const {
    const float* inputs = x.data() + row * width;
    const T* w = static_cast<const T*>(m.weight) + output * m.inputs;
    Vector<float, kWidth> sums[kRows][kOutputs] = {};
    int64_t i = 0;
    for (; i + kBlock <= m.inputs; i += kBlock) multiply<kRows, kOutputs>(w + i, m.inputs, inputs + i, sums);
    if (i < m.inputs) {
      T rest[kOutputs * kBlock] = {};
      for (int o = 0; o < kOutputs; ++o) std::copy(w + o * m.inputs + i, w + (o + 1) * m.inputs, rest + o * kBlock);
      multiply<kRows, kOutputs>(rest, kBlock, inputs + i, sums);
    }
    for (int o = 0; o < kOutputs; ++o) {
      const float scale = m.scale ? m.scale[output + o] : 1.f, bias = m.bias ? m.bias[output + o] : 0.f;
      for (int r = 0; r < kRows; ++r) {
        m.y[(row + r) * m.outputs + output + o] = scale * sum<kWidth>(sums[r][o]) + bias;
      }
    }
  }

  // All rows of x for kOutputs outputs, whose rows of the matrix stay in the cache after the first block.
  template <int kOutputs>
  FM_INLINE void rows(int64_t output) const {
    int64_t row = 0;
    for (; row + 4 <= m.rows; row += 4) block<4, kOutputs>(row, output);
    for (; row + 2 <= m.rows; row += 2) block<2, kOutputs>(row, output);
    for (; row < m.rows; ++row) block<1, kOutputs>(row, output);
  }

  FM_INLINE void run(int64_t begin, int64_t end) const {
    int64_t output = begin;
    if (m.rows == 1) {  // as many sums at work as several rows have
      for (; output + 8 <= end; output += 8) block<1, 8>(0, output);
    }
    if constexpr (kWidth == 16) {  // AVX-512 has twice as many registers
      for (; output + 4 <= end; output += 4) rows<4>(output);
    }
    for (; output + 2 <= end; output += 2) rows<2>(output);
    for (; output < end; ++output) rows<1>(output);
  }
};

template <CpuLevel kLevel>
FM_INLINE void packed_linear(const PackedLinear& m, int64_t begin, int64_t end) {
  constexpr int kWidth = kLevel >= CpuLevel::kAvx512 ? 16 : 8;
#if FM_X86
  if constexpr (kLevel >= CpuLevel::kAvx512Bf16) {
    if (m.type == WeightType::kInt8 && m.rows == 1) {
      ByteTask task(m);
      if (task.split()) return task.run(begin, end);
    }
  }
#endif
  if (m.type == WeightType::kFloat32) return Task<kWidth, float>(m).run(begin, end);
  if (m.type == WeightType::kInt8) return Task<kWidth, int8_t>(m).run(begin, end);
  Task<kWidth, uint16_t>(m).run(begin, end);
}

}  // namespace

void packed_linear_cpu(const PackedLinear& map, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(packed_linear<kLevel>(map, begin, end));
}

}  // namespace fm
