// The update gate on the GPU, everything read and written once; see gate.h.
#include "gate/gate.h"

#include "common/cuda_rows.cuh"

namespace fm {
namespace {

constexpr int kGateBlocks = 3;  // of a multiprocessor at least, as for the SiLU

// What memory has of an element; sum: of candidate, addend and bias.
struct Loaded {
  float x, update, sum, grad;
};

template <class Residual, class T>
__device__ __forceinline__ Loaded load(const GateInputs& in, float bias, int64_t row, int64_t column) {
  Loaded l{get<Residual>(in.x, row * in.x_stride + column), 0.f,
           get<T>(in.candidate, row * in.candidate_stride + column) + bias, 0.f};
  if (in.update) l.update = get<T>(in.update, row * in.update_stride + column);
  if (in.addend) l.sum += get<T>(in.addend, row * in.addend_stride + column);
  return l;
}

struct Element {
  float gate, slope, kept, candidate;
};

__device__ __forceinline__ Element element(const GateInputs& in, const Loaded& l, int64_t row, int64_t column) {
  Element e{1.f, 0.f, 1.f, l.sum};
  if (in.update) e.gate = sigmoid(l.update);
  if (in.update && in.addend) {
    e.slope = sigmoid(l.sum);
    e.candidate *= e.slope;
  }
  if (in.dropping.seed) {
    const bool dropped = hash_of(in.dropping.row(row), static_cast<uint32_t>(column)) < in.dropping.limit;
    e.kept = dropped ? 0.f : in.dropping.kept;
    e.candidate *= e.kept;
  }
  return e;
}

template <class Residual, class T>
__global__ void __launch_bounds__(kRowThreads, kGateBlocks)
    gate_forward_kernel(GateShape shape, GateInputs in, void* out) {
  const RowTile tile(shape);
  if (tile.column >= shape.width) return;
  const float bias = in.bias ? in.bias[tile.column] : 0.f;
  for_rows(
      tile, [&](int64_t row) { return load<Residual, T>(in, bias, row, tile.column); },
      [&](int64_t row, const Loaded& l) {
        const Element e = element(in, l, row, tile.column);
        put<Residual>(out, row * shape.width + tile.column,
                      in.update ? l.x + e.gate * (e.candidate - l.x) : l.x + e.candidate);
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
          Loaded l = load<Residual, T>(in, bias, row, tile.column);
          l.grad = get<Residual>(gradients.out, row * shape.width + tile.column);
          return l;
        },
        [&](int64_t row, const Loaded& l) {
          const int64_t place = row * shape.width + tile.column;
          const Element e = element(in, l, row, tile.column);
          float candidate = l.grad * e.gate;
          if (in.update) {
            put<Residual>(gradients.x, place, l.grad - candidate);
            put<T>(gradients.update, place, candidate * (1.f - e.gate) * (e.candidate - l.x));
          }
          candidate *= e.kept;
          if (in.addend && in.update) candidate *= silu_slope(l.sum, e.slope);
          put<T>(gradients.candidate, place, candidate);
          sums[0] += candidate;
        });
  }
  if (in.bias) write_sums(shape, tile, sums, gradients.bias);
}

// Calls launch(type of the residual, type of the others).
template <class Launch>
int with_types(const GateShape& shape, const Launch& launch) {
  return with_cuda_type(shape.dtype, [&](auto type) {
    return shape.residual_dtype == shape.dtype ? launch(type, type) : launch(0.f, type);
  });
}

}  // namespace

int gate_forward_cuda(const GateShape& shape, const GateInputs& in, void* out, void* stream) {
  return with_types(shape, [&](auto residual, auto other) {
    FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, (gate_forward_kernel<decltype(residual), decltype(other)>))
    (shape, in, out);
    return FM_LAST_ERROR();
  });
}

int gate_backward_cuda(const GateShape& shape, const GateInputs& in, const GateGradients& gradients, void* stream) {
  return with_types(shape, [&](auto residual, auto other) {
    FM_LAUNCH(row_blocks(shape), kRowThreads, 0, stream, (gate_backward_kernel<decltype(residual), decltype(other)>))
    (shape, in, gradients);
    return FM_LAST_ERROR();
  });
}

}  // namespace fm
