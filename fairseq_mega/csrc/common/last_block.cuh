#pragma once
// Work that the last of several blocks does with the results of all.
#include "common/launch.h"

namespace fm {

// Whether a block is the last of so many to come here, of which its threads then see all that they have written. The
// counter is zero before the first block and after the last. All threads of the block call it.
__device__ __forceinline__ bool is_last_block(unsigned* counter, int64_t blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(counter, 1u) == blocks - 1;
    if (last) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

}  // namespace fm
