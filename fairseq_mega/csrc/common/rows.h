#pragma once
// Rows that kernels go through in one pass, in parts that threads, or blocks of a GPU, share.
#include <algorithm>

#include "common/common.h"

namespace fm {

// Sums over rows are written per part, and do not depend on the number of threads.
constexpr int64_t kPartRows = 256;

struct RowParts {
  int64_t rows = 0, width = 0;
  DType dtype = DType::kFloat32;

  constexpr int64_t parts() const { return (rows + kPartRows - 1) / kPartRows; }
  constexpr int64_t begin(int64_t part) const { return part * kPartRows; }
  constexpr int64_t end(int64_t part) const { return std::min(rows, (part + 1) * kPartRows); }
};

// Sums over the rows of each column: those of every part, and on a GPU also their total.
struct RowSums {
  float* parts;                  // (parts, sums, width)
  float* total = nullptr;        // (sums, width)
  unsigned* counters = nullptr;  // zero, one for each kernel's tile of columns (device.h)
};

// On a GPU a block has some columns, and its warps share the rows of a part.
constexpr int kTileColumns = 32;

constexpr int64_t row_tiles(const RowParts& shape) { return (shape.width + kTileColumns - 1) / kTileColumns; }

struct RowsIn {
  const void* data = nullptr;  // null: absent
  int64_t stride = 0;          // from row to row, in elements
};

}  // namespace fm
