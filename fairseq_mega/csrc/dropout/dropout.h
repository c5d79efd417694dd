#pragma once
// Dropout in one pass over memory: out = 0 or x / (1 - p), as a hash of (seed, row, column) has it. Its gradient is
// dropout of the gradient. Rows of x may lie apart, the result is contiguous.
#include "common/random.h"
#include "common/rows.h"

namespace fm {

void dropout_cpu(const RowParts&, const Dropping&, const RowsIn& x, void* out, int64_t part);

}  // namespace fm
