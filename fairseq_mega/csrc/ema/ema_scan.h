#pragma once
// The damped EMA as a scan over time: what the CPU and the CUDA kernels compute.
//
//   u_t = q u_{t-1} + x_t          q = exp(log_decay), per row k of K and component n of N; real or complex
//   h_t = p u_t + w_t              p = expansion (real), w_t = q^(t+1) state: the memory after step t
//   y_t = sum_n Re(g h_t)          g = projection
//
// Causal: K = D. Bidirectional: K = 2D; rows D..2D-1 run from the future to the past and add to the same y, with
// `shift` from the next position on (y_t takes their h_{t+1}, zero at the end). Such a scan has no states.
//
//   padding    (B, L), true: x_t counts as zero; time goes on. May be null, as may:
//   reset      (B, L), true at the first step of a document: nothing crosses the border between t-1 and t, in
//              neither direction; the incoming state survives until the first reset (a reset at 0 discards it)
//   truncation M > 0: only lags 0..M-1 count, within the document (never together with states); for M = 1 take q = 0
//              (and q^M = 0), so that a memory of no length leaves exactly nothing
//
// The gradient comes as sums over time from which the caller makes the gradients of q, p, g and the state
// (ops/ema/native.py; on a GPU the kernel itself). With v_t = sum_{s >= t} q^(s-t) gy_s (the same document; truncated: s < t + M), z_t = dv_t/dq:
//
//   grad_x_t = sum_n Re(p g v_t), plus Re(p r_t) where the final state has a gradient G (and 0 where padded)
//   moments       (4, B, K, N[, 2]): sum_t x_t v_t, sum_t x_t z_t, v_0, z_0
//   moments_state (4, B, K, N[, 2]): the same of r_t = q^(L-1-t) conj(G), zero before the last reset, and dr_t/dq
//
// v_0, z_0, r_0, dr_0/dq belong to the incoming state: they are zero for bidirectional scans and where reset[0] is
// true. For rows D..2D-1 time runs the other way round: v_t = sum_{s <= t} q^(t-s) gy_s, with shift s <= t - 1 and
// q^(t-1-s).
//
// Numbers: state, sums and coefficients in float32; the decay over a block of steps is exact to its last digit however
// slow it is: q is exp(log_decay) in double precision, and what rounding q to float32 loses is added back block by
// block.
#include "common/common.h"
#include "common/random.h"

namespace fm {

struct EmaShape {
  int64_t batch = 0, length = 0, width = 0;  // B, L, D
  int n = 0;                                 // N, at least 1
  bool complex = false, bidirectional = false, shift = false;
  int64_t truncation = 0;  // M; 0 = none
  DType dtype = DType::kFloat32;
  int64_t rows() const { return bidirectional ? 2 * width : width; }  // K
  int parts() const { return complex ? 2 : 1; }  // floats per component in log_decay, projection, states, moments
};

struct EmaCoefficients {
  const float* log_decay;   // (K, N), or (K, N, 2): real part and angle
  const float* expansion;   // (K, N)
  const float* projection;  // (K, N), or (K, N, 2)
};

struct EmaInputs {
  const void* x;         // (B, L, D), dtype
  const float* state;    // (B, D, N[, 2]) or null
  const bool* padding;   // (B, L) or null
  const bool* reset;     // (B, L) or null
};

struct EmaOutputs {
  void* y;             // (B, L, D), dtype
  float* final_state;  // (B, D, N[, 2]); null for bidirectional scans
};

struct EmaGradients {
  const void* grad_y;             // (B, L, D), dtype
  const float* grad_final_state;  // (B, D, N[, 2]) or null
  void* grad_x;                   // (B, L, D), dtype
  float* moments;                 // (4, B, K, N[, 2]); on a CPU, as is
  float* moments_state;           // the same shape; null where grad_final_state is
};

// What a GPU's kernel does with its outputs: dropout(SiLU(y + omega x)), where x includes padding. Never together with
// padding and the gradient of a final state.
struct EmaGate {
  const float* omega = nullptr;  // (D,); null: nothing
  bool activated = false;        // whether there is a SiLU, and dropout after it
  Dropping dropping;
  void* sum = nullptr;  // (B, L, D), dtype: the SiLU's argument, written if not null, and read by the backward pass
};

// On a GPU the last block makes the gradients of the coefficients and the state.
struct EmaCoefficientGradients {
  float *log_decay, *expansion, *projection;  // as EmaCoefficients
  float* state;                               // (B, D, N[, 2]), where there is one
  float* omega;                               // (D,), where there is one
  unsigned* counters;                         // zero, ema_scan_counters(shape) of them
};

// One step for decoding, fused with the skip and with the SiLU of MEGA's EMA sub-layer:
//   new_state = q state + p x;  y = SiLU(sum_n Re(g new_state) + omega x)
struct EmaStep {
  const void* x;       // (B, D), dtype
  const float* omega;  // (D,), or null for no skip
  const float* state;  // (B, D, N[, 2]) or null
  void* y;             // (B, D), dtype
  float* new_state;    // (B, D, N[, 2])
  bool activated;      // whether there is a SiLU
};

// The range [begin, end) of batch x channel blocks, of which there are ema_scan_tasks(shape).
int64_t ema_scan_tasks_cpu(const EmaShape& shape);
void ema_scan_forward_cpu(const EmaShape&, const EmaCoefficients&, const EmaInputs&, const EmaOutputs&, int64_t begin,
                          int64_t end);
void ema_scan_backward_cpu(const EmaShape&, const EmaCoefficients&, const EmaInputs&, const EmaGradients&,
                           int64_t begin, int64_t end);
void ema_step_cpu(const EmaShape&, const EmaCoefficients&, const EmaStep&);

// Return a cudaError_t. `workspace` holds ema_scan_workspace_cuda(shape) bytes on the device.
int64_t ema_scan_workspace_cuda(const EmaShape& shape, bool backward);
int ema_scan_forward_cuda(const EmaShape&, const EmaCoefficients&, const EmaInputs&, const EmaGate&, const EmaOutputs&,
                          void* workspace, void* stream);
inline int64_t ema_scan_counters(const EmaShape& shape) { return (shape.width + 31) / 32; }
int ema_scan_backward_cuda(const EmaShape&, const EmaCoefficients&, const EmaInputs&, const EmaGate&,
                           const EmaGradients&, const EmaCoefficientGradients&, void* workspace, void* stream);
int ema_step_cuda(const EmaShape&, const EmaCoefficients&, const EmaStep&, void* stream);

}  // namespace fm
