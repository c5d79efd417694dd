#pragma once
// Up to four tensors side by side on the GPU, and the sums of their columns: what the backward pass of a linear map with
// several parts needs of their gradients, for its two products and its bias.
#include "common/rows.h"

namespace fm {

constexpr int kMostJoined = 4;

struct JoinedParts {
  RowsIn parts[kMostJoined];
  int64_t begins[kMostJoined];  // first column of each; those of absent parts are the joined width
};

// out (rows, width); one sum a column.
int join_parts_cuda(const RowParts&, const JoinedParts&, void* out, const RowSums& sums, void* stream);

}  // namespace fm
