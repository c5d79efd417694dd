#include "common/cuda_rows.h"

#include "common/cuda_rows.cuh"

namespace fm {
namespace {

constexpr int kSumWarps = 32;

// A block has 32 columns, a warp every 32nd part.
__global__ void __launch_bounds__(kSumWarps* kLanes)
    sum_parts_kernel(const float* parts, int64_t count, int64_t width, float* out) {
  __shared__ float shared[kSumWarps][kLanes];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int64_t column = int64_t{blockIdx.x} * kLanes + lane;
  float sum = 0.f;
  if (column < width) {
#pragma unroll 4
    for (int64_t part = warp; part < count; part += kSumWarps) sum += parts[part * width + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= width) return;
  for (int other = 1; other < kSumWarps; ++other) sum += shared[other][lane];
  out[column] = sum;
}

}  // namespace

int sum_parts_cuda(const float* parts, int64_t count, int64_t width, float* out, void* stream) {
  const auto blocks = static_cast<unsigned>((width + kLanes - 1) / kLanes);
  FM_LAUNCH(blocks, kSumWarps * kLanes, 0, stream, sum_parts_kernel)(parts, count, width, out);
  return FM_LAST_ERROR();
}

}  // namespace fm
