#pragma once
// Convolution over time on a ring, by FFT in shared memory (CUDA only; torch's FFT is the CPU path).
//
//   y[b, t, d] = sum_i x[b, i, d] ring[d, (t - i) mod 2S]        t < L <= S = 2^log_size
//
// A causal kernel lies in the first half of the ring, the part of a two-sided kernel that looks into the future at
// the negative lags, i.e. at its end.
#include "common/common.h"

namespace fm {

constexpr int kRingSmallest = 4, kRingLargest = 14;  // log_size

struct RingShape {
  int64_t batch = 0, length = 0, width = 0;  // B, L, D
  int log_size = 0;
  DType dtype = DType::kFloat32;  // of the sequences; rings are float32
  int64_t size() const { return int64_t{1} << log_size; }
};

// A sequence tensor (B, L, D) with any strides, counted in elements.
struct Sequence {
  const void* data;
  int64_t batch, time, channel;
};
struct SequenceOut {
  void* data;
  int64_t batch, time, channel;
};

// Shared memory that a block needs, in bytes.
int64_t ring_shared_bytes_cuda(int log_size);
// Bytes on the device that the functions below need.
int64_t ring_workspace_cuda(const RingShape& shape, bool gradient);
// Whether sequences should be copied to (B, D, L) first: see fft_conv.cu.
bool ring_prefers_time_last_cuda(const RingShape& shape);

// Return a cudaError_t. `reversed`: ring[d, (i - t) mod 2S] instead, which is the gradient of x from that of y.
int ring_convolution_cuda(const RingShape&, const Sequence& x, const float* ring, bool reversed, const SequenceOut& y,
                          void* workspace, void* stream);
// grad_ring[d, m] = sum_{b, t} grad_y[b, t, d] x[b, t - m, d], where t - m is a position of x; (D, 2S).
int ring_gradient_cuda(const RingShape&, const Sequence& grad_y, const Sequence& x, float* grad_ring, void* workspace,
                       void* stream);
// out[b, c, r] = in[b, r, c] for `bytes` = 2 or 4 bytes per element; `in` is contiguous in its last axis or not
// (strides in elements), out (batch, columns, rows) is contiguous.
int transpose_cuda(const void* in, int64_t batch, int64_t rows, int64_t columns, int64_t batch_stride,
                   int64_t row_stride, int64_t column_stride, int bytes, void* out, void* stream);

}  // namespace fm
