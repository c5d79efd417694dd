#pragma once
// The current GPU, and CUDA's errors in words: plain C++, for the bindings and for what launches kernels.
#include <cstdint>

namespace fm {

int cuda_multiprocessors();
// Shared memory that a block may have, in bytes, where its kernel requests it (FM_MORE_SHARED in common/launch.h).
int64_t cuda_shared_bytes();
// CUDA's text for a cudaError_t.
const char* cuda_error_text(int error);

}  // namespace fm
