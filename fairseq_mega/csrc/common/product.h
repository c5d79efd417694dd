#pragma once
// Products of matrices, the factors packed for the processor's vectors, float32 sums. Callers cut large matrices into
// blocks that stay in cache (csrc/linear); small ones are one block (csrc/attention).
//
// A factor is made of words of 32 bits: one float32 number, or two bfloat16 numbers of consecutive steps (the index
// that is summed over), which AVX512-BF16 multiplies at once. So one arrangement serves both.
#include <cstdint>

#include "common/common.h"

namespace fm {

constexpr int64_t kPanel = 32;  // rows or columns side by side in a packed factor

enum class Word : int { kFloat = 0, kBFloat16Pair = 1 };

// Whether this machine, at the current level, multiplies pairs of bfloat16.
bool multiplies_pairs_cpu();

FM_INLINE int64_t words_of(int64_t steps, Word word) { return word == Word::kFloat ? steps : (steps + 1) / 2; }
FM_INLINE int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

// C = A B or C += A B.
struct Product {
  const uint32_t* a;  // row i, step k: a[i * a_row + k], or in panels a[i / kPanel * a_row + k * kPanel + i % kPanel]
  int64_t a_row;
  bool a_in_panels;
  const uint32_t* b;  // step k, column j: b[j / kPanel * b_panel + k * kPanel + j % kPanel]
  int64_t b_panel;
  float* c;
  int64_t c_row;
  int64_t rows, columns, steps;  // steps in words
  Word word;
  bool add;
  const float* start = nullptr;  // what the sums of each column start from, in whole panels; null: zero
};

void multiply_cpu(const Product& product);

// Rows of A for one product, where they are many: whole tiles or vectors' tiles, and a part of the first cache.
int64_t product_rows_cpu(Word word);

// Rows of A for one product whose steps or columns are very many: the fewest that are fast.
int64_t product_least_rows_cpu();

// How multiply_cpu does it: with vectors, or pairs with tiles (AMX).
void multiply_vectors(const Product& product);
void multiply_tiles(const Product& product);

// Packing into panels of kPanel words a step, `panel` words from one to the next. What is missing in the last panel and
// in the last pair of steps is zero. The source's rows are the steps: `rows` rows of `columns` numbers, `row` apart.
void pack_floats_cpu(const float* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out, int64_t panel);
void pack_pairs_cpu(const uint16_t* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out, int64_t panel);
void pack_widened_cpu(const uint16_t* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out, int64_t panel);
void pack_rounded_cpu(const float* source, int64_t row, int64_t rows, int64_t columns, uint32_t* out, int64_t panel);
// The source's columns are the steps: `rows` rows of `words` words.
void pack_transposed_cpu(const uint32_t* source, int64_t rows, int64_t words, uint32_t* out);

// Rows of floats rounded to pairs of bfloat16: one after the other, each filled up with zero to whole words.
void round_rows_cpu(const float* source, int64_t rows, int64_t columns, uint32_t* out);

// Numbers rounded to bfloat16 in their place, as words of float32.
void round_words_cpu(uint32_t* words, int64_t size);

// Numbers of another type and back.
void widen_cpu(const void* source, DType dtype, int64_t size, float* out);
void narrow_cpu(const float* source, int64_t size, DType dtype, void* out);

}  // namespace fm
