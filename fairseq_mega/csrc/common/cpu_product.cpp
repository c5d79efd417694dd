// Products of packed matrices, at every level of the CPU; see product.h.
#include "common/product.h"

#include <algorithm>
#include <cstring>

#include "common/cpu_level.h"

namespace fm {
namespace {

template <int kLanes>
struct VectorOf {
  using Floats __attribute__((vector_size(4 * kLanes))) = float;
};

constexpr int lanes(CpuLevel level) { return level >= CpuLevel::kAvx512 ? 16 : level == CpuLevel::kAvx2 ? 8 : 4; }

// Vectors of columns and rows of a tile: their sums fill the registers that the level has, some left free. With a whole
// panel of columns a tile reads the lines of the panel in order.
constexpr int tile_vectors(CpuLevel level) { return level == CpuLevel::kAvx2 ? 4 : 2; }
constexpr int tile_rows(CpuLevel level) { return level >= CpuLevel::kAvx512 ? 12 : level == CpuLevel::kAvx2 ? 3 : 4; }

template <class Floats>
FM_INLINE Floats read(const uint32_t* from) {
  Floats x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

// Steps whose products are added one after the other: rounding grows with them, and longer sums are sums of such.
constexpr int64_t kTogether = 1024;

// sum + a b for every column: one step of float32, or two of bfloat16.
template <Word kWord, class Floats>
FM_INLINE Floats multiply_add(Floats sum, Floats a, Floats b) {
  if constexpr (kWord == Word::kFloat) return sum + a * b;
#if FM_X86  // as text, because the intrinsic cannot be inlined into what is compiled for several levels
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#endif
  return sum;
}

template <class Floats>
FM_INLINE void finish(float* to, Floats sum, bool add) {
  if (add) sum += read<Floats>(reinterpret_cast<const uint32_t*>(to));
  std::memcpy(to, &sum, sizeof sum);
}

// kRows rows and tile_vectors(kLevel) vectors of columns of C. Loops over sums are unrolled, so that sums stay in
// registers.
template <CpuLevel kLevel, Word kWord, bool kPacked, int kRows>
FM_INLINE void tile(const uint32_t* a, int64_t a_row, const uint32_t* b, int64_t steps, const float* start, float* c,
                    int64_t c_row, int64_t columns, bool add) {
  constexpr int kLanes = lanes(kLevel), kVectors = tile_vectors(kLevel), kColumns = kVectors * kLanes;
  using Floats = typename VectorOf<kLanes>::Floats;
  Floats sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {  // by the time the sums are known, their place is in the cache
      __builtin_prefetch(c + i * c_row + j * kLanes, 1);
      sums[i][j] = start ? read<Floats>(reinterpret_cast<const uint32_t*>(start + j * kLanes)) : Floats{};
    }
  }
  for (int64_t k = 0; k < steps; ++k) {
    Floats row[kVectors];  // of B
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = read<Floats>(b + j * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      float number;
      std::memcpy(&number, a + (kPacked ? i : i * a_row), sizeof number);
      const Floats same = number - Floats{};
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = multiply_add<kWord>(sums[i][j], same, row[j]);
    }
    a += kPacked ? kPanel : 1;
    b += kPanel;
  }
  if (columns >= kColumns) {
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) finish(c + i * c_row + j * kLanes, sums[i][j], add);
    }
    return;
  }
  float values[kRows][kColumns];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) std::memcpy(values[i] + j * kLanes, &sums[i][j], sizeof(Floats));
  }
  for (int i = 0; i < kRows; ++i) {
    float* row = c + i * c_row;
    for (int64_t j = 0; j < columns; ++j) row[j] = add ? row[j] + values[i][j] : values[i][j];
  }
}

template <CpuLevel kLevel, Word kWord, bool kPacked, int kRows = tile_rows(kLevel)>
FM_INLINE void tile_of(int rows, const uint32_t* a, int64_t a_row, const uint32_t* b, int64_t steps, const float* start,
                       float* c, int64_t c_row, int64_t columns, bool add) {
  if (rows == kRows) return tile<kLevel, kWord, kPacked, kRows>(a, a_row, b, steps, start, c, c_row, columns, add);
  if constexpr (kRows > 1) {
    return tile_of<kLevel, kWord, kPacked, kRows - 1>(rows, a, a_row, b, steps, start, c, c_row, columns, add);
  }
}

template <CpuLevel kLevel, Word kWord, bool kPacked>
FM_INLINE void multiply(const Product& p) {
  constexpr int kColumns = tile_vectors(kLevel) * lanes(kLevel), kMost = tile_rows(kLevel);
  for (int64_t column = 0; column < p.columns; column += kColumns) {
    const uint32_t* b = p.b + column / kPanel * p.b_panel + column % kPanel;
    const float* start = p.start ? p.start + column : nullptr;
    for (int64_t panel = 0; panel * kPanel < p.rows; ++panel) {
      const uint32_t* a = p.a + panel * p.a_row * (kPacked ? 1 : kPanel);
      const int rows = static_cast<int>(std::min(kPanel, p.rows - panel * kPanel));
      const int tiles = (rows + kMost - 1) / kMost;  // of equal heights, up to one
      for (int t = 0; t < tiles; ++t) {
        const int first = rows * t / tiles, last = rows * (t + 1) / tiles;
        tile_of<kLevel, kWord, kPacked>(last - first, a + first * (kPacked ? 1 : p.a_row), p.a_row, b, p.steps, start,
                                        p.c + (panel * kPanel + first) * p.c_row + column, p.c_row,
                                        p.columns - column, p.add);
      }
    }
  }
}

template <CpuLevel kLevel, Word kWord>
FM_INLINE void multiply(const Product& p) {
  return p.a_in_panels ? multiply<kLevel, kWord, true>(p) : multiply<kLevel, kWord, false>(p);
}

template <CpuLevel kLevel>
FM_INLINE void multiply(const Product& p) {
  if constexpr (kLevel == CpuLevel::kAvx512Bf16) {
    if (p.word == Word::kBFloat16Pair) return multiply<kLevel, Word::kBFloat16Pair>(p);
  }
  return multiply<kLevel, Word::kFloat>(p);
}

}  // namespace

bool multiplies_pairs_cpu() { return current_cpu_level.load() >= CpuLevel::kAvx512Bf16; }

namespace {

bool has_tiles(Word word) { return word == Word::kBFloat16Pair && current_cpu_level.load() == CpuLevel::kAmxBf16; }

void multiply_part(const Product& part) {
#if FM_X86
  if (has_tiles(part.word)) return multiply_tiles(part);
#endif
  multiply_vectors(part);
}

}  // namespace

int64_t product_rows_cpu(Word word) { return has_tiles(word) ? 64 : 24; }

int64_t product_least_rows_cpu() { return current_cpu_level.load() == CpuLevel::kAvx2 ? 24 : 16; }

void multiply_vectors(const Product& product) { FM_AT_CPU_LEVEL(multiply<kLevel>(product)); }

void multiply_cpu(const Product& product) {
  Product part = product;
  for (int64_t first = 0; first == 0 || first < product.steps; first += kTogether) {
    part.steps = std::min(kTogether, product.steps - first);
    multiply_part(part);
    part.a += kTogether * (part.a_in_panels ? kPanel : 1);
    part.b += kTogether * kPanel;
    part.start = nullptr;
    part.add = true;
  }
}

}  // namespace fm
