// One step of the EMA, for decoding: state, output, skip and SiLU in one launch. A few neighbouring lanes share a
// channel, so that they read its components side by side.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ema/cuda_number.cuh"
#include "common/launch.h"

namespace fm {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float read(const void* data, int64_t index, DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
    case DType::kFloat16: return __half2float(static_cast<const __half*>(data)[index]);
    default: return static_cast<const float*>(data)[index];
  }
}

__device__ __forceinline__ void write(void* data, int64_t index, DType dtype, float value) {
  switch (dtype) {
    case DType::kBFloat16: static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16(value); break;
    case DType::kFloat16: static_cast<__half*>(data)[index] = __float2half(value); break;
    default: static_cast<float*>(data)[index] = value;
  }
}

// `share` lanes, a power of two up to 32, work on one channel.
template <class T>
__global__ void __launch_bounds__(kThreads) ema_step_kernel(EmaShape shape, EmaCoefficients c, EmaStep step,
                                                            int share) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t place = thread / share;  // in (B, D)
  const bool exists = place < shape.batch * shape.width;
  const int64_t channel = place % shape.width;
  const float x = exists ? read(step.x, place, shape.dtype) : 0.f;
  float y = 0.f;
  for (int n = static_cast<int>(thread % share); exists && n < shape.n; n += share) {
    const int64_t coefficient = channel * shape.n + n, state = place * shape.n + n;
    const Exact<T> q = power(element<T>(c.log_decay, coefficient), 1);
    const T before = step.state ? element<T>(step.state, state) : T{};
    const T added = multiply_add(q.low(), before, c.expansion[coefficient] * x);
    const T after = multiply_add(q.high(), before, added);
    store_element(step.new_state, state, after);
    y = real_multiply_add(element<T>(c.projection, coefficient), after, y);
  }
  for (int distance = share / 2; distance > 0; distance /= 2) y += __shfl_xor_sync(0xffffffffu, y, distance);
  if (!exists || thread % share != 0) return;
  if (step.omega) y += step.omega[channel] * x;
  if (step.activated) y /= 1.f + expf(-y);
  write(step.y, place, shape.dtype, y);
}

}  // namespace

int ema_step_cuda(const EmaShape& shape, const EmaCoefficients& c, const EmaStep& step, void* stream) {
  const int64_t places = shape.batch * shape.width;
  if (places == 0) return 0;
  int share = 1;
  while (share < 32 && share < shape.n) share *= 2;
  const int64_t blocks = (places * share + kThreads - 1) / kThreads;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  const auto kernel = shape.complex ? ema_step_kernel<Complex> : ema_step_kernel<float>;
  FM_LAUNCH(static_cast<unsigned>(blocks), kThreads, 0, stream, kernel)(shape, c, step, share);
  return FM_LAST_ERROR();
}

}  // namespace fm
