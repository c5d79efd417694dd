#pragma once
// The current GPU, and CUDA's errors in words: plain C++, for the bindings and for what launches kernels.
#include <cstdint>

namespace fm {

int cuda_multiprocessors();
// Shared memory that a block may have, in bytes, where its kernel requests it (FM_MORE_SHARED in common/launch.h).
int64_t cuda_shared_bytes();
// So many counters for the blocks of a kernel that leaves them zero, as they are when it begins. A stream's kernels share
// them, since they run one after the other; null for more than there are, or more streams, and for a kernel of a CUDA
// graph, which may run beside any other.
unsigned* cuda_counters(void* stream, int64_t count);
// CUDA's text for a cudaError_t.
const char* cuda_error_text(int error);

}  // namespace fm
