#pragma once
// One step of decoding on the CPU: the layer norm, MEGA's gated attention (Eq. 5 to 15) between its linear maps, in three
// parts instead of some thirty operators, and the feed-forward sub-layer. All tensors are float32.
#include <cstdint>

#include "attention/attention.h"

namespace fm {

// y = (x - m) / sqrt(mean((x - m)^2) + eps) scale + shift with the mean m of a row.
struct LayerNormStep {
  const float* x;              // (B, D)
  const float *scale, *shift;  // (D), or null for one and zero
  float* y;                    // (B, D)
  int64_t width;
};

void layer_norm_step_cpu(const LayerNormStep& step, int64_t begin, int64_t end);  // batch rows [begin, end)

// h' = q h + p x and y = SiLU(sum_n g h' + omega x). q is the sum of its float32 rounding and of what that left out.
struct AverageStep {
  const float *x, *state;                                            // (B, D), (B, D, N) or null
  const float *decay_high, *decay_low, *expansion, *projection, *omega;  // (D, N) each, omega (D)
  float *y, *new_state;                                              // (B, D), (B, D, N)
  int64_t width, n;
};

void average_step_cpu(const AverageStep& step, int64_t begin, int64_t end);  // elements [begin, end) of B D

// From the gates' linear map to what the output's linear map reads.
struct AttentionStep {
  const float* gates;          // (B, D + z + v + D): update, shared representation, reset, candidate, before SiLU
  const float* value;          // (B, v), of this step, before SiLU
  const float *kappa, *mu;     // (2, z)
  const float* bias;           // (keys), relative bias of the last query
  float *keys, *values;        // (B, room, z), (B, room, v); row `past` of each is written
  float* y;                    // (B, v): attention times reset gate
  int64_t width, z, v, room, past;
  AttentionFunction function;
};

void attention_step_cpu(const AttentionStep& step, int64_t begin, int64_t end);  // batch rows [begin, end)

// out = residual + sigmoid(update) (SiLU(candidate + projected) - residual)
struct MixStep {
  const float *residual, *gates, *projected;  // (B, D), as above, (B, D)
  float* out;                                 // (B, D)
  int64_t width, gates_width;
};

void mix_step_cpu(const MixStep& step, int64_t begin, int64_t end);  // batch rows [begin, end)

// The inside of a feed-forward sub-layer: out = SiLU(in), or SiLU of the first half of in times the second.
struct InnerStep {
  const float* in;  // (B, width), gated (B, 2 width)
  float* out;       // (B, width)
  int64_t width;
  bool gated;
};

void inner_step_cpu(const InnerStep& step, int64_t begin, int64_t end);  // batch rows [begin, end)

// out = residual + scale out
struct AddStep {
  const float *residual, *scale;  // (B, width), (width) or null for one
  float* out;                     // (B, width)
  int64_t width;
};

void add_step_cpu(const AddStep& step, int64_t begin, int64_t end);  // batch rows [begin, end)

}  // namespace fm
