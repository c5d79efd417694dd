#pragma once
// FM_LAUNCH(grid, block, shared_bytes, stream, kernel<...>)(arguments...): the one place where <<<>>> is written.
// FM_DYNAMIC_SHARED(type, name): the dynamic shared memory of the block, 16-byte aligned.
// FM_MORE_SHARED(bytes, kernel<...>): allows a kernel more than 48 KiB of it. To be called before the launch; an error
// code, 0 where the GPU has as much.
// FM_LAST_ERROR(): error code of the launches before it.
//
// Under FM_CUDA_SIM (tests/simulator) the same sources are compiled by g++ and run on the CPU.
#include <cuda_runtime.h>

#if defined(FM_CUDA_SIM)
#define FM_LAUNCH(grid, block, shared, stream, ...) fm_sim::launcher(dim3(grid), dim3(block), shared, stream, __VA_ARGS__)
#define FM_DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(fm_sim::dyn_shared())
#define FM_LAST_ERROR() 0
#define FM_MORE_SHARED(bytes, ...) fm_sim::more_shared(bytes, __VA_ARGS__)
#else
#define FM_LAUNCH(grid, block, shared, stream, ...) \
  __VA_ARGS__<<<grid, block, shared, static_cast<cudaStream_t>(stream)>>>
#define FM_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char fm_dynamic_shared_[]; \
  type* name = reinterpret_cast<type*>(fm_dynamic_shared_)
#define FM_LAST_ERROR() static_cast<int>(cudaGetLastError())
#define FM_MORE_SHARED(bytes, ...) fm::more_shared(bytes, __VA_ARGS__)

namespace fm {

template <class Kernel>
int more_shared(size_t bytes, Kernel* kernel) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess) cudaGetLastError();  // it is reported here, not after the next launch
  return static_cast<int>(error);
}

}  // namespace fm
#endif
