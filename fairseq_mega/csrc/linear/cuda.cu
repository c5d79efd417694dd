// Parts of a linear map's result on the GPU; see join.h.
#include "common/cuda_rows.cuh"
#include "linear/join.h"

namespace fm {
namespace {

template <class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    join_parts_kernel(RowParts shape, JoinedParts in, void* out, RowSums of_columns) {
  const RowTile tile(shape);
  float sums[1] = {};
  if (tile.column < shape.width) {
    RowsIn part = in.parts[0];
    int64_t begin = 0;
#pragma unroll
    for (int other = 1; other < kMostJoined; ++other) {
      if (tile.column >= in.begins[other]) part = in.parts[other], begin = in.begins[other];
    }
    for_rows(
        tile, [&](int64_t row) { return get<T>(part.data, row * part.stride + tile.column - begin); },
        [&](int64_t row, float value) {
          put<T>(out, row * shape.width + tile.column, value);
          sums[0] += value;
        });
  }
  write_sums(shape, tile, sums, of_columns);
}

}  // namespace

int join_parts_cuda(const RowParts& shape, const JoinedParts& in, void* out, const RowSums& sums, void* stream) {
  const auto kernel = with_cuda_type(shape.dtype, [](auto type) { return join_parts_kernel<decltype(type)>; });
  FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, kernel)(shape, in, out, sums);
  return FM_LAST_ERROR();
}

}  // namespace fm
