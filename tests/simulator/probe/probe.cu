// Kernels with known faults, for the tests of the simulator itself.
#include "probe/probe.h"

#include "common/launch.h"

namespace {

constexpr int kThreads = 64;
void* const kStream = reinterpret_cast<void*>(FM_SIM_STREAM);

// Each thread hands its value to the next one.
template <bool kBarrier>
__global__ void rotate(const float* x, float* y) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = x[threadIdx.x];
  if (kBarrier) __syncthreads();
  y[threadIdx.x] = values[(threadIdx.x + 1) % kThreads];
}

__global__ void diverge(float* y) {
  if (threadIdx.x % 2 == 0) __syncthreads();
  y[threadIdx.x] = 1.f;
}

__global__ void diverge_in_warp(float* y) {
  y[threadIdx.x] = threadIdx.x % 2 == 0 ? __shfl_sync(0xffffffffu, 1.f, 0) : 0.f;
  __syncthreads();
}

// What shared memory holds at the start of every block, though the block before has written to it.
__global__ void unwritten(float* y) {
  __shared__ float fixed[kThreads];
  FM_DYNAMIC_SHARED(float, dynamic);
  if (blockIdx.x == 1) y[threadIdx.x] = threadIdx.x % 2 == 0 ? fixed[threadIdx.x] : dynamic[threadIdx.x];
  fixed[threadIdx.x] = dynamic[threadIdx.x] = 2.f;
}

__global__ void read_far(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x + 1]; }

__global__ void read_far_in_shared(float* y) {
  FM_DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = 1.f;
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x + 1];
}

__global__ void vote(const float* x, float* y) {
  if (threadIdx.x >= 40) return;  // part of the second warp
  const unsigned positive = __ballot_sync(0xffffffffu, x[threadIdx.x] > 0.f);
  const float total = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
  y[threadIdx.x] = total + 1000.f * __popc(positive);
}

// A mask without the lanes that take part from 16 on.
__global__ void narrow_mask(const float* x, float* y) { y[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 1); }

// Reads from a lane that has finished.
__global__ void absent(const float* x, float* y) {
  if (threadIdx.x % 32 >= 16) return;
  y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], threadIdx.x < 32 ? 1 : 16);
}

template <int kBound>
__global__ void __launch_bounds__(kBound, 2) bounded(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x];
}

__global__ void __launch_bounds__(96) large(const float* x, float* y) {
  FM_DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = values[threadIdx.x];
}

}  // namespace

void run_probe(const float* x, float* y, int which) {
  constexpr size_t kBytes = kThreads * sizeof(float);
  switch (which) {
    case 0: FM_LAUNCH(1, kThreads, 0, kStream, rotate<true>)(x, y); break;
    case 1: FM_LAUNCH(1, kThreads, 0, kStream, rotate<false>)(x, y); break;
    case 2: FM_LAUNCH(1, kThreads, 0, kStream, diverge)(y); break;
    case 3: FM_LAUNCH(1, kThreads, 0, kStream, diverge_in_warp)(y); break;
    case 4: FM_LAUNCH(2, kThreads, kBytes, kStream, unwritten)(y); break;
    case 5: FM_LAUNCH(1, kThreads, 0, kStream, read_far)(x, y); break;
    case 6: FM_LAUNCH(1, kThreads, kBytes, kStream, read_far_in_shared)(y); break;
    case 7: FM_LAUNCH(1, kThreads, 0, kStream, vote)(x, y); break;
    case 8: FM_LAUNCH(1, 2048, 0, kStream, diverge)(y); break;
    case 9: FM_LAUNCH(1, kThreads, 0, kStream, narrow_mask)(x, y); break;
    case 10: FM_LAUNCH(1, kThreads, 0, kStream, absent)(x, y); break;
    case 11: FM_LAUNCH(1, kThreads, 0, kStream, bounded<kThreads>)(x, y); break;
    case 12: FM_LAUNCH(1, kThreads, 0, kStream, bounded<kThreads / 2>)(x, y); break;
    case 13: FM_LAUNCH(1, kThreads, 49 * 1024, kStream, large)(x, y); break;
    case 14:
      FM_MORE_SHARED(50 * 1024, large);
      FM_LAUNCH(1, kThreads, 49 * 1024, kStream, large)(x, y);
      break;
    case 15: FM_LAUNCH(1, kThreads, 51 * 1024, kStream, large)(x, y); break;
    case 16: FM_LAUNCH(1, kThreads, 0, nullptr, bounded<kThreads>)(x, y); break;
    default: break;
  }
}
