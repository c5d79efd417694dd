// Linear maps of a few rows on the CPU; see packed_linear.h.
//
// Weights are read as words of 32 bits, of one of float32, two of bfloat16 or four of int8 each, and the first of all
// words of a vector, the second ones and so on widened by shifts: one or two instructions, at every CPU level. The
// inputs are put in the same order once for all outputs. AVX2 widens int8 as it reads it, and keeps the order.
// bfloat16's own products (vdpbf16ps) are of no use: they would round the inputs, or take as long for inputs in two
// parts as products of float32 do.
#include "packed_linear/packed_linear.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/cpu_level.h"
#include "packed_linear/cpu_bytes.h"
#include "packed_linear/cpu_row.h"
#include "packed_linear/cpu_words.h"

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

constexpr int width_of(CpuLevel level) { return level >= CpuLevel::kAvx512 ? 16 : 8; }

// Whether streams are fetched early, see kStreamAhead.
template <typename T, int kWidth>
constexpr bool kFetchEarly = sizeof(T) == 1 || (sizeof(T) == 2 && kWidth == 8);

// With several rows of x, which need the products' time as well, rows read side by side are neighbours, and this many
// bytes ahead are fetched early, into the second level of the cache, which has more requests under way at once than the
// first (measured; 16 to 64 KiB do equally well).
constexpr int kAhead = 16384;

template <class T>
constexpr int kParts = 4 / static_cast<int>(sizeof(T));  // weights of a word, the first in its lowest bits

// Whether a vector of weights holds the same part of several words, not neighbours.
template <class T>
constexpr bool splits_words(CpuLevel level) {
  return sizeof(T) == 2 || (sizeof(T) == 1 && level != CpuLevel::kAvx2);
}

// Vector number `part` of as many words as it has places.
template <CpuLevel kLevel>
FM_INLINE Vector<float, width_of(kLevel)> widen(const float* weights, int) {
  return load<width_of(kLevel)>(weights);
}

template <CpuLevel kLevel>
FM_INLINE Vector<float, width_of(kLevel)> widen(const uint16_t* weights, int part) {
  Vector<uint32_t, width_of(kLevel)> words;
  std::memcpy(&words, weights, sizeof words);
  const Vector<uint32_t, width_of(kLevel)> bits = part == 0 ? words << 16 : words & 0xffff0000u;
  Vector<float, width_of(kLevel)> x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

template <CpuLevel kLevel>
FM_INLINE Vector<float, width_of(kLevel)> widen(const int8_t* weights, int part) {
  constexpr int kWidth = width_of(kLevel);
  Vector<int32_t, kWidth> numbers;
  if constexpr (splits_words<int8_t>(kLevel)) {
    Vector<uint32_t, kWidth> words;
    std::memcpy(&words, weights, sizeof words);
    const Vector<uint32_t, kWidth> highest = words << (24 - 8 * part);
    std::memcpy(&numbers, &highest, sizeof highest);
    numbers >>= 24;
  } else {
#if FM_X86  // as text, because the intrinsic cannot be inlined into what is compiled for several levels
    struct Bytes {
      int8_t values[kWidth];
    };
    asm("vpmovsxbd %1, %0" : "=v"(numbers) : "m"(*reinterpret_cast<const Bytes*>(weights + part * kWidth)));
#endif
  }
  return __builtin_convertvector(numbers, Vector<float, kWidth>);
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
template <CpuLevel kLevel, class T>
struct Task {
  static constexpr int kWidth = width_of(kLevel);
  static constexpr int kBlock = kWidth * kParts<T>;  // weights of a vector of words

  // Rows of x and outputs of a block, whose sums and weights stay in registers: AVX-512 has 32 of them, AVX2 16.
  static constexpr int kMostRows = kWidth == 16 ? 5 : 4;
  static constexpr int kMostOutputs = kWidth == 16 ? 4 : 3;

  // Sums for one output of one row: with one, each product would wait for the sum before it. Several rows have sums
  // enough between them.
  template <int kRows>
  static constexpr int kSums = kRows == 1 && kParts<T> > 1 ? 2 : 1;

  const PackedLinear& m;
  int64_t width;         // of a row of x, inputs rounded up to whole blocks with zeros
  std::vector<float> x;  // (rows, width)

  FM_INLINE explicit Task(const PackedLinear& map)
      : m(map), width((map.inputs + kBlock - 1) / kBlock * kBlock), x(static_cast<size_t>(map.rows * width)) {
    for (int64_t row = 0; row < m.rows; ++row) {
      const float* from = m.x + row * m.inputs;
      float* to = x.data() + row * width;
      if constexpr (!splits_words<T>(kLevel)) {
        std::copy(from, from + m.inputs, to);
        continue;
      }
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

  // Prefetches what lies `ahead` bytes behind a place, which may be beyond the matrix.
  template <int kLocality>
  FM_INLINE static void prefetch(const T* place, int ahead) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(place) + ahead), 0, kLocality);
  }

  // Adds the products of a vector of words from each of kOutputs rows of the matrix.
  template <int kRows, int kOutputs>
  FM_INLINE void multiply(const T* w, int64_t stride, const float* inputs,
                          Vector<float, kWidth> (&sums)[kRows][kOutputs][kSums<kRows>]) const {
    for (int o = 0; kRows > 1 && o < kOutputs; ++o) prefetch<2>(w + o * stride, kAhead);
    for (int o = 0; kRows == 1 && kFetchEarly<T, kWidth> && o < kOutputs; ++o) {
      prefetch<3>(w + o * stride, kStreamAhead * static_cast<int>(sizeof(T)));
    }
#pragma GCC unroll 4
    for (int part = 0; part < kParts<T>; ++part) {
      Vector<float, kWidth> weights[kOutputs];
      for (int o = 0; o < kOutputs; ++o) weights[o] = widen<kLevel>(w + o * stride, part);
      for (int r = 0; r < kRows; ++r) {
        const Vector<float, kWidth> numbers = load<kWidth>(inputs + r * width + part * kWidth);
        for (int o = 0; o < kOutputs; ++o) sums[r][o][part % kSums<kRows>] += weights[o] * numbers;
      }
    }
  }

  // Inner products of kRows rows of x with kOutputs rows of the matrix, `apart` from one to the next, each of which is
  // widened once.
  template <int kRows, int kOutputs>
  FM_INLINE void block(int64_t row, int64_t output, int64_t apart) const {
    const float* inputs = x.data() + row * width;
    const int64_t stride = apart * m.inputs;
    const T* w = static_cast<const T*>(m.weight) + output * m.inputs;
    const int64_t whole = m.inputs / kBlock * kBlock;
    T rest[kOutputs * kBlock];
    if (whole < m.inputs) {  // before the sums are begun: a call in between would send them all to memory
      std::fill(rest, rest + kOutputs * kBlock, T{});
      for (int o = 0; o < kOutputs; ++o) std::copy(w + o * stride + whole, w + o * stride + m.inputs, rest + o * kBlock);
    }
    Vector<float, kWidth> sums[kRows][kOutputs][kSums<kRows>] = {};
    if (whole < m.inputs) multiply<kRows, kOutputs>(rest, kBlock, inputs + whole, sums);
    for (int64_t i = 0; i < whole; i += kBlock) multiply<kRows, kOutputs>(w + i, stride, inputs + i, sums);
    for (int o = 0; o < kOutputs; ++o) {
      const int64_t at = output + o * apart;
      const float scale = m.scale ? m.scale[at] : 1.f, bias = m.bias ? m.bias[at] : 0.f;
      for (int r = 0; r < kRows; ++r) {
        Vector<float, kWidth> total = sums[r][o][0];
        for (int i = 1; i < kSums<kRows>; ++i) total += sums[r][o][i];
        m.y[(row + r) * m.outputs + at] = scale * sum<kWidth>(total) + bias;
      }
    }
  }

  // A block of `count` rows, which is kMost at most.
  template <int kOutputs, int kMost = kMostRows>
  FM_INLINE void block_of(int64_t count, int64_t row, int64_t output) const {
    if constexpr (kMost > 1) {
      if (count < kMost) return block_of<kOutputs, kMost - 1>(count, row, output);
    }
    block<kMost, kOutputs>(row, output, 1);
  }

  // All rows of x for kOutputs outputs, in blocks of nearly as many rows; the rows of the matrix stay in the cache after
  // the first block.
  template <int kOutputs>
  FM_INLINE void rows(int64_t output) const {
    int64_t row = 0;
    for (int64_t blocks = (m.rows + kMostRows - 1) / kMostRows; blocks > 0; --blocks) {
      const int64_t count = (m.rows - row + blocks - 1) / blocks;
      block_of<kOutputs>(count, row, output);
      row += count;
    }
  }

  FM_INLINE void run(int64_t begin, int64_t end) const {
    if (m.rows == 1) {
      const int64_t length = (end - begin) / kStreams;
      for (int64_t i = 0; i < length; ++i) block<1, kStreams>(0, begin + i, length);
      begin += kStreams * length;
    }
    for (; begin + kMostOutputs <= end; begin += kMostOutputs) rows<kMostOutputs>(begin);
    for (; begin < end; ++begin) rows<1>(begin);
  }
};

template <CpuLevel kLevel>
FM_INLINE void packed_linear(const PackedLinear& m, int64_t begin, int64_t end) {
#if FM_X86
  if constexpr (kLevel >= CpuLevel::kAvx2) {
    if (m.type == WeightType::kInt8 && m.rows == 1) {
      constexpr bool kBytes = kLevel >= CpuLevel::kAvx512Bf16;
      std::conditional_t<kBytes, ByteTask, WordTask<width_of(kLevel)>> task(m);
      if (task.split()) return task.run(begin, end);
    }
  }
#endif
  if (m.type == WeightType::kFloat32) return Task<kLevel, float>(m).run(begin, end);
  if (m.type == WeightType::kInt8) return Task<kLevel, int8_t>(m).run(begin, end);
  Task<kLevel, uint16_t>(m).run(begin, end);
}

}  // namespace

void packed_linear_cpu(const PackedLinear& map, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(packed_linear<kLevel>(map, begin, end));
}

}  // namespace fm
