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

// Rows of a tile: with two vectors a row the sums fill the registers that the level has, two or three left free.
constexpr int tile_rows(CpuLevel level) { return level >= CpuLevel::kAvx512 ? 12 : level == CpuLevel::kAvx2 ? 6 : 4; }

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

// kRows rows and two vectors of columns of C.
template <CpuLevel kLevel, Word kWord, bool kPacked, int kRows>
FM_INLINE void tile(const uint32_t* a, int64_t a_row, const uint32_t* b, int64_t steps, const float* start, float* c,
                    int64_t c_row, int64_t columns, bool add) {
  constexpr int kLanes = lanes(kLevel), kColumns = 2 * kLanes;
  using Floats = typename VectorOf<kLanes>::Floats;
  Floats sums[kRows][2] = {};
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {  // by the time the sums are known, their place is in the cache
    __builtin_prefetch(c + i * c_row, 1);
    __builtin_prefetch(c + i * c_row + kLanes, 1);
  }
  if (start) {
    for (int i = 0; i < kRows; ++i) std::memcpy(sums[i], start, sizeof sums[i]);
  }
  for (int64_t k = 0; k < steps; ++k) {
    const Floats left = read<Floats>(b), right = read<Floats>(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      float number;
      std::memcpy(&number, a + (kPacked ? i : i * a_row), sizeof number);
      const Floats same = number - Floats{};
      sums[i][0] = multiply_add<kWord>(sums[i][0], same, left);
      sums[i][1] = multiply_add<kWord>(sums[i][1], same, right);
    }
    a += kPacked ? kPanel : 1;
    b += kPanel;
  }
  if (columns >= kColumns) {
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      finish(c + i * c_row, sums[i][0], add);
      finish(c + i * c_row + kLanes, sums[i][1], add);
    }
    return;
  }
  for (int i = 0; i < kRows; ++i) {
    float values[kColumns];
    std::memcpy(values, sums[i], sizeof values);
    float* row = c + i * c_row;
    for (int64_t j = 0; j < columns; ++j) row[j] = add ? row[j] + values[j] : values[j];
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
  constexpr int kColumns = 2 * lanes(kLevel), kMost = tile_rows(kLevel);
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

// As many sums as a tile has, of numbers that stay in registers.
template <CpuLevel kLevel>
FM_INLINE int64_t multiply_add_registers(int64_t rounds) {
  using Floats = typename VectorOf<lanes(kLevel)>::Floats;
  constexpr int kSums = 2 * tile_rows(kLevel);
  Floats sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = Floats{} + static_cast<float>(i);
  const Floats half = Floats{} + 0.5f;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * half + half;
  }
  volatile float kept = 0.f;
  for (int i = 0; i < kSums; ++i) kept = kept + sums[i][0];
  return rounds * kSums * lanes(kLevel) * 2;
}

}  // namespace

int64_t multiply_add_registers_cpu(int64_t rounds) { return FM_AT_CPU_LEVEL(multiply_add_registers<kLevel>(rounds)); }

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
