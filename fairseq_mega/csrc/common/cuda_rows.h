#pragma once
// Sums over the parts of rows on the GPU.
#include <cstdint>

namespace fm {

// out (width) = the sums of parts (count, width), in one order whatever the GPU.
int sum_parts_cuda(const float* parts, int64_t count, int64_t width, float* out, void* stream);

}  // namespace fm
