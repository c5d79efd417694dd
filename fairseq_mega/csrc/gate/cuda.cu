// The update gate on the GPU: one thread per element, everything read and written once; see gate.h.
#include "gate/gate.h"

#include "common/cuda_rows.cuh"

namespace fm {
namespace {

constexpr int kThreads = 256;

struct Element {
  float x, gate, sum, slope, kept, candidate;
};

template <class Residual, class T>
__device__ __forceinline__ Element element(const GateInputs& in, int64_t row, int64_t column) {
  Element e;
  e.x = get<Residual>(in.x, row * in.x_stride + column);
  e.gate = in.update ? sigmoid(get<T>(in.update, row * in.update_stride + column)) : 1.f;
  e.sum = e.candidate = get<T>(in.candidate, row * in.candidate_stride + column);
  e.slope = 0.f;
  if (in.addend) {
    e.sum += get<T>(in.addend, row * in.addend_stride + column);
    e.slope = in.update ? sigmoid(e.sum) : 1.f;
    e.candidate = e.sum * e.slope;
  }
  e.kept = 1.f;
  if (in.dropping.seed) {
    const bool dropped = hash_of(in.dropping.row(row), static_cast<uint32_t>(column)) < in.dropping.limit;
    e.kept = dropped ? 0.f : in.dropping.kept;
    e.candidate *= e.kept;
  }
  return e;
}

template <class Residual, class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(GateShape shape, GateInputs in, void* out) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= shape.rows * shape.width) return;
  const Element e = element<Residual, T>(in, index / shape.width, index % shape.width);
  put<Residual>(out, index, in.update ? e.x + e.gate * (e.candidate - e.x) : e.x + e.candidate);
}

template <class Residual, class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(GateShape shape, GateInputs in, GateGradients gradients) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= shape.rows * shape.width) return;
  const Element e = element<Residual, T>(in, index / shape.width, index % shape.width);
  const float g = get<Residual>(gradients.out, index);
  float candidate = g * e.gate;
  if (in.update) {
    put<Residual>(gradients.x, index, g - candidate);
    put<T>(gradients.update, index, candidate * (1.f - e.gate) * (e.candidate - e.x));
  }
  candidate *= e.kept;
  if (in.addend && in.update) candidate *= silu_slope(e.sum, e.slope);
  put<T>(gradients.candidate, index, candidate);
}

template <class Residual, class T>
int forward(const GateShape& shape, const GateInputs& in, void* out, void* stream) {
  const auto blocks = static_cast<unsigned>((shape.rows * shape.width + kThreads - 1) / kThreads);
  FM_LAUNCH(blocks, kThreads, 0, stream, (forward_kernel<Residual, T>))(shape, in, out);
  return FM_LAST_ERROR();
}

template <class Residual, class T>
int backward(const GateShape& shape, const GateInputs& in, const GateGradients& gradients, void* stream) {
  const auto blocks = static_cast<unsigned>((shape.rows * shape.width + kThreads - 1) / kThreads);
  FM_LAUNCH(blocks, kThreads, 0, stream, (backward_kernel<Residual, T>))(shape, in, gradients);
  return FM_LAST_ERROR();
}

}  // namespace

int gate_forward_cuda(const GateShape& shape, const GateInputs& in, void* out, void* stream) {
  const bool mixed = shape.residual_dtype != shape.dtype;
  switch (shape.dtype) {
    case DType::kBFloat16:
      return mixed ? forward<float, __nv_bfloat16>(shape, in, out, stream)
                   : forward<__nv_bfloat16, __nv_bfloat16>(shape, in, out, stream);
    case DType::kFloat16:
      return mixed ? forward<float, __half>(shape, in, out, stream) : forward<__half, __half>(shape, in, out, stream);
    default: return forward<float, float>(shape, in, out, stream);
  }
}

int gate_backward_cuda(const GateShape& shape, const GateInputs& in, const GateGradients& gradients, void* stream) {
  const bool mixed = shape.residual_dtype != shape.dtype;
  switch (shape.dtype) {
    case DType::kBFloat16:
      return mixed ? backward<float, __nv_bfloat16>(shape, in, gradients, stream)
                   : backward<__nv_bfloat16, __nv_bfloat16>(shape, in, gradients, stream);
    case DType::kFloat16:
      return mixed ? backward<float, __half>(shape, in, gradients, stream)
                   : backward<__half, __half>(shape, in, gradients, stream);
    default: return backward<float, float>(shape, in, gradients, stream);
  }
}

}  // namespace fm
