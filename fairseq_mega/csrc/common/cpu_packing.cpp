// Packing of factors for their products; see product.h.
#include <algorithm>
#include <cstring>

#include "common/product.h"
#include "common/cpu_level.h"
#include "common/tiles.h"

namespace fm {
namespace {

// The upper half is the number rounded to bfloat16: to nearest, ties to even; NaN stays NaN.
FM_INLINE uint32_t rounded(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t next = bits + 0x7fffu + (bits >> 16 & 1u);
  return (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : next;
}

struct Floats {
  static constexpr int64_t kSteps = 1;
  FM_INLINE static uint32_t word(const float* row, int64_t, int64_t j) {
    uint32_t bits;
    std::memcpy(&bits, row + j, sizeof bits);
    return bits;
  }
  FM_INLINE static uint32_t last(const float* row, int64_t j) { return word(row, 0, j); }
};

struct Pairs {
  static constexpr int64_t kSteps = 2;
  FM_INLINE static uint32_t word(const uint16_t* row, int64_t next, int64_t j) {
    return row[j] | uint32_t{row[next + j]} << 16;
  }
  FM_INLINE static uint32_t last(const uint16_t* row, int64_t j) { return row[j]; }
};

struct Widened {
  static constexpr int64_t kSteps = 1;
  FM_INLINE static uint32_t word(const uint16_t* row, int64_t, int64_t j) { return uint32_t{row[j]} << 16; }
  FM_INLINE static uint32_t last(const uint16_t* row, int64_t j) { return word(row, 0, j); }
};

struct Rounded {
  static constexpr int64_t kSteps = 2;
  FM_INLINE static uint32_t word(const float* row, int64_t next, int64_t j) {
    return rounded(row[j]) >> 16 | (rounded(row[next + j]) & 0xffff0000u);
  }
  FM_INLINE static uint32_t last(const float* row, int64_t j) { return rounded(row[j]) >> 16; }
};

// Step by step, so that the source is read as it lies in memory.
template <class Kind, class T>
FM_INLINE void pack(const T* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out, int64_t panel) {
  const int64_t whole = columns / kPanel * kPanel;
  for (int64_t i = 0; i < rows; i += Kind::kSteps, source += Kind::kSteps * row, out += kPanel) {
    const bool last = i + Kind::kSteps > rows;
    uint32_t* words = out;
    for (int64_t first = 0; first < whole && !last; first += kPanel, words += panel) {
      for (int64_t j = 0; j < kPanel; ++j) words[j] = Kind::word(source + first, row, j);
    }
    for (int64_t first = last ? 0 : whole; first < columns; first += kPanel, words += panel) {
      const int64_t count = std::min(kPanel, columns - first);
      const T* from = source + first;
      for (int64_t j = 0; j < count; ++j) words[j] = last ? Kind::last(from, j) : Kind::word(from, row, j);
      std::fill(words + count, words + kPanel, 0u);
    }
  }
}

using Four __attribute__((vector_size(16))) = uint32_t;

FM_INLINE Four low(Four a, Four b) { return Four{a[0], b[0], a[1], b[1]}; }
FM_INLINE Four high(Four a, Four b) { return Four{a[2], b[2], a[3], b[3]}; }

// out[k][j] = source[j][k] for four rows j and four steps k.
FM_INLINE void transpose(const uint32_t* source, int64_t row, uint32_t* out) {
  Four a[4];
  for (int j = 0; j < 4; ++j) std::memcpy(&a[j], source + j * row, sizeof(Four));
  const Four even[2] = {low(a[0], a[2]), high(a[0], a[2])}, odd[2] = {low(a[1], a[3]), high(a[1], a[3])};
  for (int half = 0; half < 2; ++half) {
    const Four first = low(even[half], odd[half]), second = high(even[half], odd[half]);
    std::memcpy(out + 2 * half * kPanel, &first, sizeof(Four));
    std::memcpy(out + (2 * half + 1) * kPanel, &second, sizeof(Four));
  }
}

FM_INLINE void pack_transposed(const uint32_t* source, int64_t rows, int64_t words, uint32_t* out) {
  for (int64_t first = 0; first < rows; first += kPanel, out += words * kPanel) {
    const int64_t count = std::min(kPanel, rows - first), whole_rows = count / 4 * 4, whole_words = words / 4 * 4;
    const uint32_t* from = source + first * words;
    for (int64_t k = 0; k < whole_words; k += 4) {
      for (int64_t j = 0; j < whole_rows; j += 4) transpose(from + j * words + k, words, out + k * kPanel + j);
    }
    for (int64_t k = 0; k < words; ++k) {
      uint32_t* step = out + k * kPanel;
      for (int64_t j = k < whole_words ? whole_rows : 0; j < count; ++j) step[j] = from[j * words + k];
      std::fill(step + count, step + kPanel, 0u);
    }
  }
}

FM_INLINE void widen(const void* source, DType dtype, int64_t size, float* out) {
  const uint16_t* halves = static_cast<const uint16_t*>(source);
  if (dtype == DType::kBFloat16) {
    for (int64_t i = 0; i < size; ++i) out[i] = to_float(halves[i], DType::kBFloat16);
  } else {
    for (int64_t i = 0; i < size; ++i) out[i] = to_float(halves[i], DType::kFloat16);
  }
}

FM_INLINE void narrow_simply(const float* source, int64_t size, uint16_t* out) {
  for (int64_t i = 0; i < size; ++i) out[i] = static_cast<uint16_t>(rounded(source[i]) >> 16);
}

#if FM_X86
// Rounds the first of so many numbers with the instruction for it, two vectors at a time; returns how many. It treats
// subnormal numbers as zero: vectors that hold such a one, or zero, are rounded as on other processors.
FM_INLINE int64_t narrow_pairs(const float* source, int64_t size, uint16_t* out) {
  typedef uint32_t Words __attribute__((vector_size(64)));
  constexpr int64_t kAtOnce = 2 * sizeof(Words) / sizeof(float);
  const Words exponent = Words{} + 0x7f800000u;
  int64_t i = 0;
  for (; i + kAtOnce <= size; i += kAtOnce) {
    Words low, high, rounded;
    std::memcpy(&low, source + i, sizeof low);
    std::memcpy(&high, source + i + kAtOnce / 2, sizeof high);
    uint32_t small;  // text, because intrinsics cannot be inlined into what is compiled for several levels
    asm("vptestnmd %[exponent], %[low], %%k1\n\t"
        "vptestnmd %[exponent], %[high], %%k2\n\t"
        "korw %%k1, %%k2, %%k1\n\t"
        "kmovw %%k1, %[small]\n\t"
        "vcvtne2ps2bf16 %[low], %[high], %[rounded]"
        : [small] "=&r"(small), [rounded] "=&v"(rounded)
        : [low] "v"(low), [high] "v"(high), [exponent] "v"(exponent)
        : "k1", "k2");
    if (small) {
      narrow_simply(source + i, kAtOnce, out + i);
    } else {
      std::memcpy(out + i, &rounded, sizeof rounded);
    }
  }
  return i;
}
#endif

template <CpuLevel kLevel>
FM_INLINE void narrow(const float* source, int64_t size, DType dtype, void* out) {
  uint16_t* halves = static_cast<uint16_t*>(out);
  if (dtype == DType::kBFloat16) {
    int64_t done = 0;
#if FM_X86
    if constexpr (kLevel == CpuLevel::kAvx512Bf16) done = narrow_pairs(source, size, halves);
#endif
    narrow_simply(source + done, size - done, halves + done);
  } else {
    for (int64_t i = 0; i < size; ++i) halves[i] = from_float(source[i], DType::kFloat16);
  }
}

template <CpuLevel kLevel>
FM_INLINE void round_rows(const float* source, int64_t rows, int64_t columns, uint32_t* out) {
  for (int64_t i = 0; i < rows; ++i, source += columns, out += words_of(columns, Word::kBFloat16Pair)) {
    uint16_t* half = reinterpret_cast<uint16_t*>(out);
    narrow<kLevel>(source, columns, DType::kBFloat16, half);
    if (columns % 2) half[columns] = 0;
  }
}

FM_INLINE void round_words(uint32_t* words, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    float number;
    std::memcpy(&number, words + i, sizeof number);
    words[i] = rounded(number) & 0xffff0000u;
  }
}

}  // namespace

void pack_floats_cpu(const float* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out, int64_t panel) {
  FM_AT_CPU_LEVEL(pack<Floats>(source, row, rows, columns, out, panel));
}

void pack_pairs_cpu(const uint16_t* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out, int64_t panel) {
  FM_AT_CPU_LEVEL(pack<Pairs>(source, row, rows, columns, out, panel));
}

void pack_widened_cpu(const uint16_t* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out,
                      int64_t panel) {
  FM_AT_CPU_LEVEL(pack<Widened>(source, row, rows, columns, out, panel));
}

void pack_rounded_cpu(const float* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out, int64_t panel) {
  FM_AT_CPU_LEVEL(pack<Rounded>(source, row, rows, columns, out, panel));
}

void pack_transposed_cpu(const uint32_t* source, int64_t rows, int64_t words, uint32_t* out) {
  FM_AT_CPU_LEVEL(pack_transposed(source, rows, words, out));
}

void round_rows_cpu(const float* source, int64_t rows, int64_t columns, uint32_t* out) {
  FM_AT_CPU_LEVEL(round_rows<kLevel>(source, rows, columns, out));
}

void round_words_cpu(uint32_t* words, int64_t size) { FM_AT_CPU_LEVEL(round_words(words, size)); }

void widen_cpu(const void* source, DType dtype, int64_t size, float* out) {
  FM_AT_CPU_LEVEL(widen(source, dtype, size, out));
}

void narrow_cpu(const float* source, int64_t size, DType dtype, void* out) {
  FM_AT_CPU_LEVEL(narrow<kLevel>(source, size, dtype, out));
}

}  // namespace fm
