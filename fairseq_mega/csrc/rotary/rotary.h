#pragma once
// Queries and keys of MEGALODON from their shared representation, in one pass over memory. In a head of E features at
// position t of its chunk, with j for query and key:
//
//   n = x / sqrt(mean(x^2) + eps),    v_j = offset_j + n scale_j,    y_j = v_j turned by the angles of t
//
// All tensors are (rows, heads E) and of one type, what a column has float32; rows of x may lie apart, the others are
// contiguous.
#include "common/rows.h"

namespace fm {

constexpr int kBlockFeatures = 128;  // of a head: the most that a block of a GPU has in the backward pass

struct RotaryShape : RowParts {
  int64_t length;           // rows of each sequence
  int64_t heads, features;  // E, even
  int64_t first, reach;     // position of a sequence's first row; positions of the table
  float eps;

  constexpr int64_t blocks_of_head() const { return (features + kBlockFeatures - 1) / kBlockFeatures; }
  constexpr int64_t position(int64_t row) const { return (first + row % length) % reach; }
};

struct RotaryInputs {
  const void* x;
  int64_t stride;               // from row to row of x, in elements
  const float *scale, *offset;  // (2, heads E); no offset in the backward pass
  float unit;                   // on a GPU scale_j = (scale + 1) unit; 0 for scale as it is
  const float* turns;           // (reach, 2, E): cosines, and sines whose sign is that of the pair's other feature
};

struct RotaryGradients {
  const void *query, *key;
  void* x;
  RowSums coefficients;         // four a column: of scale (on a GPU of what `unit` makes it of), then of offset
};

void rotary_forward_cpu(const RotaryShape&, const RotaryInputs&, void* query, void* key, int64_t part);
void rotary_backward_cpu(const RotaryShape&, const RotaryInputs&, const RotaryGradients&, int64_t part);
int rotary_forward_cuda(const RotaryShape&, const RotaryInputs&, void* query, void* key, void* stream);
int rotary_backward_cuda(const RotaryShape&, const RotaryInputs&, const RotaryGradients&, void* stream);

}  // namespace fm
