// Queries and keys of MEGA on the GPU; see query_key.h.
#include "query_key/query_key.h"

#include "common/cuda_rows.cuh"

namespace fm {
namespace {

template <class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    query_key_forward_kernel(RowParts shape, QueryKey in, void* query, void* key) {
  const RowTile tile(shape);
  if (tile.column >= shape.width) return;
  const int64_t of_key = shape.width + tile.column;
  const float query_scale = in.kappa[tile.column], key_scale = in.kappa[of_key];
  const float query_offset = in.mu[tile.column], key_offset = in.mu[of_key];
  for_rows(
      tile, [&](int64_t row) { return get<T>(in.x.data, row * in.x.stride + tile.column); },
      [&](int64_t row, float x) {
        const float s = x * sigmoid(x);
        put<T>(query, row * shape.width + tile.column, query_scale * s + query_offset);
        put<T>(key, row * shape.width + tile.column, key_scale * s + key_offset);
      });
}

struct Gradients {
  float x, query, key;
};

template <class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    query_key_backward_kernel(RowParts shape, QueryKey in, QueryKeyGradients gradients) {
  const RowTile tile(shape);
  float sums[4] = {};
  if (tile.column < shape.width) {
    const float query_scale = in.kappa[tile.column], key_scale = in.kappa[shape.width + tile.column];
    for_rows(
        tile,
        [&](int64_t row) {
          const int64_t place = row * shape.width + tile.column;
          return Gradients{get<T>(in.x.data, row * in.x.stride + tile.column), get<T>(gradients.query, place),
                           get<T>(gradients.key, place)};
        },
        [&](int64_t row, const Gradients& g) {
          const float s = sigmoid(g.x), shared = g.x * s;
          put<T>(gradients.x, row * shape.width + tile.column,
                 (g.query * query_scale + g.key * key_scale) * silu_slope(g.x, s));
          sums[0] += g.query * shared;
          sums[1] += g.key * shared;
          sums[2] += g.query;
          sums[3] += g.key;
        });
  }
  write_sums(shape, tile, sums, gradients.coefficients);
}

}  // namespace

int query_key_forward_cuda(const RowParts& shape, const QueryKey& in, void* query, void* key, void* stream) {
  const auto kernel = with_cuda_type(shape.dtype, [](auto type) { return query_key_forward_kernel<decltype(type)>; });
  FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, kernel)(shape, in, query, key);
  return FM_LAST_ERROR();
}

int query_key_backward_cuda(const RowParts& shape, const QueryKey& in, const QueryKeyGradients& gradients,
                            void* stream) {
  const auto kernel = with_cuda_type(shape.dtype, [](auto type) { return query_key_backward_kernel<decltype(type)>; });
  FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, kernel)(shape, in, gradients);
  return FM_LAST_ERROR();
}

}  // namespace fm
