// The update gate on the GPU, everything read and written once; see gate.h.
#include "gate/gate.h"

#include "gate/element.cuh"

namespace fm {
namespace {

constexpr int kGateBlocks = 3;  // of a multiprocessor at least, as for the SiLU

template <class Residual, class T>
__device__ __forceinline__ Loaded load(const GateInputs& in, float bias, int64_t row, int64_t column) {
  Loaded l{get<Residual>(in.x, row * in.x_stride + column), 0.f,
           get<T>(in.candidate, row * in.candidate_stride + column) + bias};
  if (in.update) l.update = get<T>(in.update, row * in.update_stride + column);
  if (in.addend) l.sum += get<T>(in.addend, row * in.addend_stride + column);
  return l;
}

struct LoadedWithGradient : Loaded {
  float grad;
};

template <class Residual, class T>
__global__ void __launch_bounds__(kRowThreads, kGateBlocks)
    gate_forward_kernel(GateShape shape, GateInputs in, void* out) {
  const RowTile tile(shape);
  if (tile.column >= shape.width) return;
  const float bias = in.bias ? in.bias[tile.column] : 0.f;
  for_rows(
      tile, [&](int64_t row) { return load<Residual, T>(in, bias, row, tile.column); },
      [&](int64_t row, const Loaded& l) {
        const Element e = element(in, l, in.dropping.row(row), tile.column);
        put<Residual>(out, row * shape.width + tile.column, result(in, l, e));
      });
}

template <class Residual, class T>
__global__ void __launch_bounds__(kRowThreads, kGateBlocks)
    gate_backward_kernel(GateShape shape, GateInputs in, GateGradients gradients) {
  const RowTile tile(shape);
  float sums[1] = {0.f};
  if (tile.column < shape.width) {
    const float bias = in.bias ? in.bias[tile.column] : 0.f;
    for_rows(
        tile,
        [&](int64_t row) {
          return LoadedWithGradient{load<Residual, T>(in, bias, row, tile.column),
                                    get<Residual>(gradients.out, row * shape.width + tile.column)};
        },
        [&](int64_t row, const LoadedWithGradient& l) {
          const int64_t place = row * shape.width + tile.column;
          const ElementGradients g =
              gradients_of(in, l, element(in, l, in.dropping.row(row), tile.column), l.grad);
          if (in.update) {
            put<Residual>(gradients.x, place, g.x);
            put<T>(gradients.update, place, g.update);
          }
          put<T>(gradients.candidate, place, g.candidate);
          sums[0] += g.candidate;
        });
  }
  if (in.bias) write_sums(shape, tile, sums, gradients.bias);
}

}  // namespace

int gate_forward_cuda(const GateShape& shape, const GateInputs& in, void* out, void* stream) {
  return with_gate_types(shape.residual_dtype, shape.dtype, [&](auto residual, auto other) {
    FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, (gate_forward_kernel<decltype(residual), decltype(other)>))
    (shape, in, out);
    return FM_LAST_ERROR();
  });
}

int gate_backward_cuda(const GateShape& shape, const GateInputs& in, const GateGradients& gradients, void* stream) {
  return with_gate_types(shape.residual_dtype, shape.dtype, [&](auto residual, auto other) {
    FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, (gate_backward_kernel<decltype(residual), decltype(other)>))
    (shape, in, gradients);
    return FM_LAST_ERROR();
  });
}

}  // namespace fm
