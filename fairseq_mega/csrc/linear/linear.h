#pragma once
// The three products of a linear map on the CPU, in blocks that stay in cache (common/product.h multiplies them):
//
//   y = x W^T + b       dx = dy W       dW = dy^T x,  db = the sums of dy's columns
//
// Numbers are float32 or bfloat16, in any mixture; sums are float32. A factor of float32 is rounded where x or dy is of
// bfloat16, which is multiplied as such where the processor can and both widths are even, otherwise widened. No result
// depends on how the work is divided among threads.
//
// y, and with it dy, may lie in several tensors, each with some of the columns. x may be f SiLU(s), which is then computed
// block by block and never lies in memory as a whole, nor does its gradient.
#include "common/product.h"

namespace fm {

struct Matrix {
  const void* data;
  int64_t stride;  // from row to row, in numbers
  DType dtype;     // float32 or bfloat16
};

constexpr int kMostParts = 4;

// A matrix whose columns lie in several, one after the other; all but the last have whole panels.
struct Columns {
  Matrix parts[kMostParts];
  int64_t widths[kMostParts];
  int count;

  DType dtype() const { return parts[0].dtype; }
};

// The inputs f SiLU(s) of a map, or what their gradient becomes.
struct SiluRows {
  Matrix logits, factor;            // (rows, width) each; factor without data is one
  Matrix grad_logits, grad_factor;  // written to
};

// What the products of a map with such inputs are computed with.
Word linear_word_cpu(DType dtype, int64_t inputs, int64_t outputs);

// y = x F + start: a factor F (steps, columns) is packed in panels of columns, then multiplied.
struct LinearRows {
  Columns x;                     // (rows, steps)
  Matrix factor;                 // contiguous: (columns, steps) if transposed, else (steps, columns)
  bool transposed;
  const float* start;            // (columns), in whole panels; or null
  Columns y;                     // (rows, columns), of the type of x; written to
  int64_t rows, steps, columns;
  Word word;
  const SiluRows* x_of = nullptr;  // what x is computed from, where x is not stored
  const SiluRows* y_of = nullptr;  // y is the gradient of this, and not written itself; or null

  int64_t panels() const { return round_up(columns, kPanel) / kPanel; }
  int64_t panel_words() const { return words_of(steps, word) * kPanel; }
  int64_t block_rows() const { return product_rows_cpu(word); }
  int64_t block_floats(int64_t block_columns) const;  // of memory that a block of rows needs
};

// Packs the panels [begin, end) of the factor to `out`.
void pack_linear_cpu(const LinearRows& call, int64_t begin, int64_t end, uint32_t* out);
// The blocks of rows [begin, end) of y in the columns of the panels [first, last), which lie at `factor`.
void linear_rows_cpu(const LinearRows& call, const uint32_t* factor, int64_t first, int64_t last, int64_t begin,
                     int64_t end, float* memory);

// The gradients of weight and bias.
struct LinearWeight {
  Columns grad;    // (rows, outputs)
  Matrix x;        // (rows, inputs)
  void* weight;    // (outputs, inputs), contiguous
  DType dtype;     // of weight
  float* bias;     // (outputs), or null
  int64_t rows, outputs, inputs;
  Word word;
  const SiluRows* x_of = nullptr;  // as above

  bool by_outputs() const { return outputs >= inputs; }  // threads share the panels of outputs, or of inputs
  int64_t panels() const { return round_up(by_outputs() ? outputs : inputs, kPanel) / kPanel; }
  int64_t floats(int64_t panels) const;  // of memory that a thread needs for so many of them
};

void linear_weight_cpu(const LinearWeight& call, int64_t begin, int64_t end, float* memory);

}  // namespace fm
