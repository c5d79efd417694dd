#pragma once
// Launches of the main kernel. One file each for real and complex numbers, forward and backward, so that they are
// compiled side by side: EMA_SCAN_LAUNCH(float, false) in ema_scan_real.cu and so on.
#include "ema/cuda_plan.cuh"
#include "common/launch.h"

namespace fm {

// Returns a cudaError_t where the kernel cannot have its shared memory, 0 elsewhere.
template <class T, bool kGradient>
int ema_scan_launch(const EmaArguments<T>& arguments, void* stream);

}  // namespace fm

#define EMA_SCAN_LAUNCH(T, kGradient)                                                                         \
  template <bool kLag>                                                                                        \
  static int launch(const EmaArguments<T>& a, void* stream) {                                                 \
    const size_t bytes = static_cast<size_t>(shared_bytes(a.plan));                                           \
    if (const int error = FM_MORE_SHARED(bytes, ema_scan_kernel<T, kGradient, kLag>)) return error;           \
    FM_LAUNCH(static_cast<unsigned>(a.plan.blocks), static_cast<unsigned>(a.plan.warps* kLanes), bytes, stream, \
              ema_scan_kernel<T, kGradient, kLag>)(a);                                                        \
    return 0;                                                                                                 \
  }                                                                                                           \
  template <>                                                                                                 \
  int ema_scan_launch<T, kGradient>(const EmaArguments<T>& a, void* stream) {                                 \
    return a.shape.truncation > 0 ? launch<true>(a, stream) : launch<false>(a, stream);                       \
  }
