#pragma once
// Timestep normalisation: every step is normalised with the mean and variance that its group of features has over all
// steps up to it. For step t of one (sequence, group) with K = D / G features, of mean m_t and variance v_t:
//
//   n_t = n_{t-1} + 1
//   M_t = M_{t-1} + (m_t - M_{t-1}) / n_t
//   S_t = S_{t-1} + (v_t - S_{t-1}) / n_t + (1 - 1/n_t) / n_t (m_t - M_{t-1})^2
//   y_t = (x_t - M_t) r_t (weight + 1) + bias,       r_t = 1 / sqrt(S_t + eps)
//
// starting from the carried (count, mean, variance), of which mean and variance have no weight where the count is 0;
// without a carried state from (0, 0, 1). A padded step leaves n, M and S as they are; its y is 0.
//
// Backward. With h_t = grad_y_t (weight + 1), A_t = sum_j h_tj and B_t = sum_j h_tj (x_tj - M_t) over the features of
// the group, the gradients of M_t and S_t, divided by n_t, become two sums over the future. From the last step to the
// first, starting from tau = grad of the final variance / n_L and nu = grad of the final mean / n_L:
//
//   tau += -1/2 r_t^3 B_t / n_t;   nu += -r_t A_t / n_t
//   grad_x_tj = h_tj r_t + (nu + 2 tau (x_tj - M_t)) / K
//   nu -= 2 tau (M_t - M_{t-1})
//
// and at the end the gradients of the carried mean and variance are nu and tau times the carried count. Only the inputs
// are saved, and on a GPU the statistics before each tile of steps; M_t and S_t are computed again.
//
// Numbers: running means, variances and nu, tau in double precision, between calls too, so that a million steps far
// from zero keep their digits, read at once or one by one (the step's share is far below a float32's last place there);
// element-wise work in float32, as differences from a mean that is kept as a high and a low float32.
#include "common/rows.h"

namespace fm {

struct TimestepNormShape {
  int64_t batch = 0, length = 0, width = 0;  // B, L, D
  int64_t groups = 1;                        // G
  DType dtype = DType::kFloat32;             // of x, y and their gradients
  float eps = 0.f;
  int64_t features() const { return width / groups; }  // K
};

struct TimestepNormInputs {
  const void* x;           // (B, L, D), dtype
  const float* weight;     // (D,), the scale minus one
  const float* bias;       // (D,); not read by the backward pass
  const int64_t* count;    // (B,); null without a carried state, as the two below are
  const double* mean;      // (B, G)
  const double* variance;  // (B, G)
  const bool* padding;     // (B, L), true = padded, or null
  double* tiles;           // (B, tiles + 1, G, 3), on a GPU: count, mean and variance before each tile, and after all
};

struct TimestepNormOutputs {
  void* y;           // (B, L, D), dtype
  void* narrow;      // the same in bfloat16, on a GPU; or null
  int64_t* count;    // (B,) after the last step, as the two below are
  double* mean;      // (B, G)
  double* variance;  // (B, G)
};

struct TimestepNormGradients {
  const void* grad_y;                 // (B, L, D), dtype
  const void* grad_narrow;            // (B, L, D) in bfloat16, on a GPU: to be added; or null
  const double* grad_final_mean;      // (B, G), or null for zeros
  const double* grad_final_variance;  // (B, G), or null for zeros
  void* grad_x;                       // (B, L, D), dtype
  float* grad_weight;                 // of (P, 2, D) with grad_bias, to be summed over the P parts of the work
  float* grad_bias;
  int64_t stride;                     // of these two, from part to part
  double* grad_mean;                  // (B, G); null without a carried state
  double* grad_variance;              // (B, G)

  void place(float* sums, int64_t width) {
    grad_weight = sums;
    grad_bias = sums + width;
    stride = 2 * width;
  }
};

// The range [begin, end) of sequence x group blocks, of which there are timestep_norm_tasks_cpu(shape). P = B.
int64_t timestep_norm_tasks_cpu(const TimestepNormShape& shape);
void timestep_norm_forward_cpu(const TimestepNormShape&, const TimestepNormInputs&, const TimestepNormOutputs&,
                               int64_t begin, int64_t end);
void timestep_norm_backward_cpu(const TimestepNormShape&, const TimestepNormInputs&, const TimestepNormGradients&,
                                int64_t begin, int64_t end);

// Steps are in tiles, of which the forward pass writes the statistics for the backward pass. The functions that launch
// return a cudaError_t; they need so many bytes on the device, counters that are zero (device.h), and backward memory for
// so many sums of parts of the work.
int64_t timestep_norm_tiles_cuda(const TimestepNormShape& shape);
int64_t timestep_norm_workspace_cuda(const TimestepNormShape& shape, bool backward);
int64_t timestep_norm_counters_cuda(const TimestepNormShape& shape, bool backward);
int64_t timestep_norm_parts_cuda(const TimestepNormShape& shape);
int timestep_norm_forward_cuda(const TimestepNormShape&, const TimestepNormInputs&, const TimestepNormOutputs&,
                               void* workspace, unsigned* counters, void* stream);
int timestep_norm_backward_cuda(const TimestepNormShape&, const TimestepNormInputs&, const TimestepNormGradients&,
                                const RowSums& columns, void* workspace, void* stream);

}  // namespace fm
