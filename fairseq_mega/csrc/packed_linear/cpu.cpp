// Linear maps of a few rows on the CPU, eight numbers at a time; see packed_linear.h.
#include "packed_linear/packed_linear.h"

#include "common/vector_math.h"

namespace fm {
namespace {

using Halves = uint16_t __attribute__((vector_size(16)));
using Bytes = int8_t __attribute__((vector_size(16)));
using Shorts = int16_t __attribute__((vector_size(32)));
using HalfShorts = int16_t __attribute__((vector_size(16)));

constexpr int kPair = 2 * kWidth;

// Sixteen numbers as floats. Eight bytes at a time would not be converted by vector instructions.
struct Pair {
  Floats low, high;
};

FM_INLINE Floats eight(const uint16_t* from) {  // bfloat16: the upper halves of float32 numbers
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Floats x;
  std::memcpy(&x, &words, sizeof x);
  return x;
}

FM_INLINE Pair pair(const uint16_t* from) { return {eight(from), eight(from + kWidth)}; }

FM_INLINE Pair pair(const int8_t* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  const Shorts shorts = __builtin_convertvector(bytes, Shorts);
  HalfShorts halves[2];
  std::memcpy(halves, &shorts, sizeof shorts);
  return {__builtin_convertvector(__builtin_convertvector(halves[0], Ints), Floats),
          __builtin_convertvector(__builtin_convertvector(halves[1], Ints), Floats)};
}

FM_INLINE Pair pair(const float* from) { return {load(from), load(from + kWidth)}; }

// The last few numbers of a row, and zeros after them.
template <class T>
FM_INLINE Pair some(const T* from, int64_t count) {
  T values[kPair] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
  return pair(values);
}

// Inner products of kRows rows of x with kOutputs rows of the matrix, each of which is converted once.
template <int kRows, int kOutputs, class T>
FM_INLINE void block(const PackedLinear& m, const T* weight, int64_t row, int64_t output) {
  const float* x = m.x + row * m.inputs;
  const T* w = weight + output * m.inputs;
  Floats sums[kRows][kOutputs] = {};
  int64_t i = 0;
  for (; i + kPair <= m.inputs; i += kPair) {
    Pair numbers[kRows];
    for (int r = 0; r < kRows; ++r) numbers[r] = pair(x + r * m.inputs + i);
    for (int o = 0; o < kOutputs; ++o) {
      const Pair weights = pair(w + o * m.inputs + i);
      for (int r = 0; r < kRows; ++r) {
        sums[r][o] += weights.low * numbers[r].low;
        sums[r][o] += weights.high * numbers[r].high;
      }
    }
  }
  if (const int64_t rest = m.inputs - i; rest > 0) {
    for (int o = 0; o < kOutputs; ++o) {
      const Pair weights = some(w + o * m.inputs + i, rest);
      for (int r = 0; r < kRows; ++r) {
        const Pair numbers = some(x + r * m.inputs + i, rest);
        sums[r][o] += weights.low * numbers.low + weights.high * numbers.high;
      }
    }
  }
  for (int o = 0; o < kOutputs; ++o) {
    const float scale = m.scale ? m.scale[output + o] : 1.f, bias = m.bias ? m.bias[output + o] : 0.f;
    for (int r = 0; r < kRows; ++r) m.y[(row + r) * m.outputs + output + o] = scale * sum(sums[r][o]) + bias;
  }
}

// All rows of x for kOutputs outputs. A single row keeps eight sums at work; more share the converted weights.
template <int kOutputs, class T>
FM_INLINE void outputs(const PackedLinear& m, const T* weight, int64_t output) {
  int64_t row = 0;
  for (; row + 8 <= m.rows; row += 8) block<8, kOutputs>(m, weight, row, output);
  for (; row + 4 <= m.rows; row += 4) block<4, kOutputs>(m, weight, row, output);
  for (; row + 2 <= m.rows; row += 2) block<2, kOutputs>(m, weight, row, output);
  for (; row < m.rows; ++row) block<1, kOutputs>(m, weight, row, output);
}

template <class T>
FM_INLINE void run(const PackedLinear& m, int64_t begin, int64_t end) {
  const T* weight = static_cast<const T*>(m.weight);
  int64_t output = begin;
  if (m.rows == 1) {
    for (; output + 8 <= end; output += 8) block<1, 8>(m, weight, 0, output);
  }
  for (; output + 2 <= end; output += 2) outputs<2>(m, weight, output);
  for (; output < end; ++output) outputs<1>(m, weight, output);
}

}  // namespace

FM_CLONES void packed_linear_cpu(const PackedLinear& m, int64_t begin, int64_t end) {
  if (m.type == WeightType::kInt8) return run<int8_t>(m, begin, end);
  run<uint16_t>(m, begin, end);
}

}  // namespace fm
