// Products of pairs of bfloat16 by the tiles of AMX; see product.h. A tile of A is 16 rows of 16 words, one of B 16
// steps of 16 columns, as they lie in a panel, one of C 16 rows of 16 sums. Rows and columns that fill no tile are
// parts of one; the last steps, less than 16, are left to vectors.
#include <algorithm>
#include <cstring>

#include "common/cpu_level.h"
#include "common/product.h"

#if FM_X86
#include <immintrin.h>

namespace fm {
namespace {

constexpr int64_t kTile = 16;          // rows, words of a row, and columns of a tile
constexpr int64_t kSteps = 8 * kTile;  // multiplied at once: those of 64 rows of A stay in the first cache

// Tiles by number: four of C, two rows of them; two of A; two of B.
enum { kC00, kC01, kC10, kC11, kA0, kA1, kB0, kB1 };

struct alignas(64) Shapes {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Sets the shapes for `rows` rows of C, at most 32. It leaves nothing in the tiles.
void set_shapes(int64_t rows) {
  Shapes shapes;
  const auto upper = static_cast<uint8_t>(std::min(rows, kTile)), lower = static_cast<uint8_t>(rows - upper);
  const uint8_t heights[] = {upper, upper, lower, lower, upper, lower, kTile, kTile};
  for (int tile = 0; tile < 8; ++tile) {
    shapes.rows[tile] = heights[tile];
    shapes.row_bytes[tile] = heights[tile] ? 4 * kTile : 0;
  }
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

template <int kNumber>
FM_INLINE void clear() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kNumber));
}

template <int kNumber>
FM_INLINE void load(const void* from, int64_t row) {  // rows that are `row` words apart
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(4 * row), "i"(kNumber) : "memory");
}

template <int kNumber>
FM_INLINE void store(float* to, int64_t row) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(4 * row), "i"(kNumber) : "memory");
}

template <int kC, int kA, int kB>
FM_INLINE void multiply_add() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

template <int kLeft>
FM_INLINE void begin(const float* sums, int64_t row) {
  if (sums) {
    load<kLeft>(sums, row);
    load<kLeft + 1>(sums + kTile, row);
  } else {
    clear<kLeft>();
    clear<kLeft + 1>();
  }
}

// The sums of up to 32 rows and of 32 columns. They begin with zero, or with those at `sums`.
template <bool kBoth>
FM_INLINE void multiply_block(const uint32_t* a, int64_t a_row, const uint32_t* b, int64_t steps, const float* sums,
                              int64_t sums_row, float* c, int64_t c_row) {
  begin<kC00>(sums, sums_row);
  if (kBoth) begin<kC10>(sums ? sums + kTile * sums_row : nullptr, sums_row);
  for (int64_t k = 0; k < steps; k += kTile, a += kTile, b += kTile * kPanel) {
    load<kB0>(b, kPanel);
    load<kA0>(a, a_row);
    multiply_add<kC00, kA0, kB0>();
    load<kB1>(b + kTile, kPanel);
    multiply_add<kC01, kA0, kB1>();
    if (!kBoth) continue;
    load<kA1>(a + kTile * a_row, a_row);
    multiply_add<kC10, kA1, kB0>();
    multiply_add<kC11, kA1, kB1>();
  }
  store<kC00>(c, c_row);
  store<kC01>(c + kTile, c_row);
  if (!kBoth) return;
  store<kC10>(c + kTile * c_row, c_row);
  store<kC11>(c + kTile * c_row + kTile, c_row);
}

// The block of C at a row and a column, of `rows` rows; `a` are its rows of A.
void block(const Product& p, const uint32_t* a, int64_t a_row, int64_t row, int64_t rows, int64_t column) {
  const uint32_t* b = p.b + column / kPanel * p.b_panel;
  float* c = p.c + row * p.c_row + column;
  const int64_t columns = std::min(kPanel, p.columns - column);
  alignas(64) float whole[kPanel * kPanel];  // where C has fewer columns
  const bool part = columns < kPanel;
  const float* sums = p.start ? p.start + column : p.add && !part ? c : nullptr;
  const auto multiply = rows > kTile ? multiply_block<true> : multiply_block<false>;
  multiply(a, a_row, b, p.steps, sums, p.start ? 0 : p.c_row, part ? whole : c, part ? kPanel : p.c_row);
  if (!part) return;
  for (int64_t i = 0; i < rows; ++i, c += p.c_row) {
    for (int64_t j = 0; j < columns; ++j) c[j] = (p.add ? c[j] : 0.f) + whole[i * kPanel + j];
  }
}

// out[i][k] = source[k][i] for 16 steps k and 16 rows i: exchanges halves of 1, 2, 4 and 8 of the words.
FM_AVX512 void turn(const uint32_t* source, uint32_t* out, int64_t row) {
  __m512i words[kTile];
  for (int k = 0; k < kTile; ++k) words[k] = _mm512_loadu_si512(source + k * kPanel);
  const __m512i place = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
#pragma GCC unroll 4
  for (int half = 1; half < kTile; half *= 2) {
    const __mmask16 upper = _mm512_test_epi32_mask(place, _mm512_set1_epi32(half));
    const __m512i other = _mm512_set1_epi32(kTile - half);  // the words of the second table begin at 16
    const __m512i first = _mm512_mask_add_epi32(place, upper, place, other);
    const __m512i second = _mm512_add_epi32(_mm512_set1_epi32(half), first);
#pragma GCC unroll 16
    for (int k = 0; k < kTile; ++k) {
      if (k & half) continue;
      const __m512i a = words[k], b = words[k + half];
      words[k] = _mm512_permutex2var_epi32(a, first, b);
      words[k + half] = _mm512_permutex2var_epi32(a, second, b);
    }
  }
  for (int i = 0; i < kTile; ++i) _mm512_storeu_si512(out + i * row, words[i]);
}

// Rows of A that are stored as rows, not as panels.
void multiply_rows(const Product& p) {
  for (int64_t row = 0, of = 0; row < p.rows; row += of) {  // with all whole panels of rows, then with the last rows
    of = p.rows - row < kPanel ? p.rows - row : (p.rows - row) / kPanel * kPanel;
    set_shapes(std::min(of, kPanel));
    for (int64_t column = 0; column < p.columns; column += kPanel) {
      for (int64_t i = row; i < row + of; i += kPanel) {
        block(p, p.a + i * p.a_row, p.a_row, i, std::min(kPanel, row + of - i), column);
      }
    }
  }
}

// Panels of A, turned to rows.
void multiply_panels(const Product& p) {
  alignas(64) uint32_t turned[kPanel * kSteps];
  for (int64_t row = 0; row < p.rows; row += kPanel) {
    const int64_t rows = std::min(kPanel, p.rows - row);
    const uint32_t* a = p.a + row / kPanel * p.a_row;
    for (int64_t k = 0; k < p.steps; k += kTile) {
      for (int64_t i = 0; i < rows; i += kTile) turn(a + k * kPanel + i, turned + i * kSteps + k, kSteps);
    }
    set_shapes(rows);
    for (int64_t column = 0; column < p.columns; column += kPanel) block(p, turned, kSteps, row, rows, column);
  }
}

}  // namespace

void multiply_tiles(const Product& product) {
  Product part = product;
  for (int64_t left = product.steps; left > 0; left -= part.steps) {
    part.steps = std::min(left / kTile * kTile, kSteps);
    if (part.steps == 0) {
      part.steps = left;
      multiply_vectors(part);
    } else if (part.a_in_panels) {
      multiply_panels(part);
    } else {
      multiply_rows(part);
    }
    part.a += part.steps * (part.a_in_panels ? kPanel : 1);
    part.b += part.steps * kPanel;
    part.start = nullptr;
    part.add = true;
  }
  asm volatile("tilerelease");
}

}  // namespace fm
#endif
