#pragma once
// The rows of a part as kernels for CPUs read them, and sums over them.
#include "common/elements.h"
#include "common/rows.h"

namespace fm {

// A row of a part, or null where the rows are absent.
template <class Type>
FM_INLINE const void* row_of(const RowsIn& rows, int64_t row, Type type) {
  return rows.data ? row_of(rows.data, row, rows.stride, type) : nullptr;
}

// Asks for a later row of the part.
template <class Type>
FM_INLINE void prefetch_row(const RowParts& shape, const RowsIn& rows, int64_t row, int64_t part, Type type) {
  if (row + kAhead < shape.end(part)) prefetch_row(rows.data, row + kAhead, rows.stride, shape.width, type);
}

// Adds a vector to a row of sums.
template <class Span>
FM_INLINE void add(float* sums, Span span, typename Span::Floats x) {
  write(sums, span, kFloat, read(sums, span, kFloat) + x);
}

}  // namespace fm
