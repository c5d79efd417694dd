#include "common/device.h"

#include "common/launch.h"

namespace fm {

#if defined(FM_CUDA_SIM)

int cuda_multiprocessors() { return fm_sim::kMultiprocessors; }
int64_t cuda_shared_bytes() { return static_cast<int64_t>(fm_sim::shared_limit()); }
const char* cuda_error_text(int) { return "the simulator's error"; }

#else

namespace {

int attribute(cudaDeviceAttr which, int otherwise) {
  int device = 0, value = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&value, which, device) == cudaSuccess;
  return known ? value : otherwise;
}

}  // namespace

int cuda_multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount, 100); }
int64_t cuda_shared_bytes() { return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, 48 << 10); }
const char* cuda_error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

#endif

}  // namespace fm
