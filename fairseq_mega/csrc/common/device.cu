#include "common/device.h"

#include <map>
#include <mutex>

#include "common/launch.h"

namespace fm {

namespace {

constexpr int kStreams = 128, kCounters = 2048;
__device__ unsigned counters[kStreams][kCounters];  // zero when the library is loaded

}  // namespace

#if defined(FM_CUDA_SIM)

int cuda_multiprocessors() { return fm_sim::kMultiprocessors; }
int64_t cuda_shared_bytes() { return static_cast<int64_t>(fm_sim::shared_limit()); }
const char* cuda_error_text(int) { return "the simulator's error"; }

namespace {

bool is_captured(void*) { return false; }
void* counters_of_device() { return counters; }

}  // namespace

#else

namespace {

bool is_captured(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
  if (error != cudaSuccess) cudaGetLastError();
  return error != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

void* counters_of_device() {
  void* found = nullptr;
  if (cudaGetSymbolAddress(&found, counters) != cudaSuccess) cudaGetLastError();
  return found;
}

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

unsigned* cuda_counters(void* stream, int64_t count) {
  static std::mutex mutex;
  static std::map<void*, size_t> streams;
  if (count > kCounters || is_captured(stream)) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  const size_t index = streams.try_emplace(stream, streams.size()).first->second;
  unsigned* const found = static_cast<unsigned*>(counters_of_device());
  return found && index < kStreams ? found + index * kCounters : nullptr;
}

}  // namespace fm
