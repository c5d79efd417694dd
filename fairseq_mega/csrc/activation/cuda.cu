// Activations on the GPU; see activation.h.
#include "activation/activation.h"

#include "common/cuda_rows.cuh"

namespace fm {
namespace {

constexpr int kSiluBlocks = 3;  // of a multiprocessor at least: with four the hashes of dropout spill registers

struct Element {
  float sum, factor, skip, grad;  // sum: the argument of the SiLU
};

template <class T>
__device__ __forceinline__ Element element(const SiluInputs& in, float omega, float bias, int64_t row, int64_t column) {
  Element e{get<T>(in.x.data, row * in.x.stride + column) + bias, 1.f, 0.f, 0.f};
  if (in.factor.data) e.factor = get<T>(in.factor.data, row * in.factor.stride + column);
  if (in.skip.data) e.skip = get<T>(in.skip.data, row * in.skip.stride + column);
  if (in.skip.data) e.sum += omega * e.skip;
  return e;
}

// What dropout multiplies an element with.
__device__ __forceinline__ float kept(const Dropping& dropping, int64_t row, int64_t column) {
  if (!dropping.seed) return 1.f;
  return hash_of(dropping.row(row), static_cast<uint32_t>(column)) < dropping.limit ? 0.f : dropping.kept;
}

template <class T>
__global__ void __launch_bounds__(kRowThreads, kSiluBlocks) silu_forward_kernel(RowParts shape, SiluInputs in, void* out) {
  const RowTile tile(shape);
  if (tile.column >= shape.width) return;
  const float omega = in.skip.data ? in.omega[tile.column] : 0.f, bias = in.bias ? in.bias[tile.column] : 0.f;
  for_rows(
      tile, [&](int64_t row) { return element<T>(in, omega, bias, row, tile.column); },
      [&](int64_t row, const Element& e) {
        const float y = e.sum * (in.activated ? sigmoid(e.sum) : 1.f) * e.factor;
        put<T>(out, row * shape.width + tile.column, y * kept(in.dropping, row, tile.column));
      });
}

template <class T>
__global__ void __launch_bounds__(kRowThreads, kSiluBlocks)
    silu_backward_kernel(RowParts shape, SiluInputs in, SiluGradients gradients) {
  const RowTile tile(shape);
  float sums[2] = {};
  if (tile.column < shape.width) {
    const float omega = in.skip.data ? in.omega[tile.column] : 0.f, bias = in.bias ? in.bias[tile.column] : 0.f;
    for_rows(
        tile,
        [&](int64_t row) {
          Element e = element<T>(in, omega, bias, row, tile.column);
          e.grad = get<T>(gradients.out, row * shape.width + tile.column);
          return e;
        },
        [&](int64_t row, const Element& e) {
          const int64_t place = row * gradients.stride + tile.column;
          const float s = in.activated ? sigmoid(e.sum) : 1.f, grad = e.grad * kept(in.dropping, row, tile.column);
          const float g = grad * e.factor * silu_slope(e.sum, s);
          put<T>(gradients.x, place, g);
          if (in.factor.data) put<T>(gradients.factor, place, grad * e.sum * s);
          if (in.skip.data) put<T>(gradients.skip, place, g * omega);
          sums[0] += g * e.skip;
          sums[1] += g;
        });
  }
  if (in.skip.data || in.bias) write_sums(shape, tile, sums, gradients.columns);
}

}  // namespace

int silu_forward_cuda(const RowParts& shape, const SiluInputs& in, void* out, void* stream) {
  const auto kernel = with_cuda_type(shape.dtype, [](auto type) { return silu_forward_kernel<decltype(type)>; });
  FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, kernel)(shape, in, out);
  return FM_LAST_ERROR();
}

int silu_backward_cuda(const RowParts& shape, const SiluInputs& in, const SiluGradients& gradients, void* stream) {
  const auto kernel = with_cuda_type(shape.dtype, [](auto type) { return silu_backward_kernel<decltype(type)>; });
  FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, kernel)(shape, in, gradients);
  return FM_LAST_ERROR();
}

}  // namespace fm
