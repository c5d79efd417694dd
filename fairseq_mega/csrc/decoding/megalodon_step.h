#pragma once
// One step of decoding on the CPU: MEGALODON's timestep norm (Eq. 4) and, in two parts, its normalised gated
// attention (Eq. 2, 5 to 9, 16 to 18) between its linear maps. All tensors are float32 but the decay and the statistics of
// the timestep norm.
#include <cstdint>

namespace fm {

// The statistics with one more step, and the step normalised by them; see timestep_norm.h.
struct TimestepNormStep {
  const float* x;                 // (B, D)
  const float *scale, *shift;     // (D), or null for one and zero
  const int64_t* count;           // (B)
  const double *mean, *variance;  // (B, G)
  float* y;                       // (B, D)
  int64_t* new_count;
  double *new_mean, *new_variance;
  int64_t width, groups;
};

void timestep_norm_step_cpu(const TimestepNormStep& step, int64_t begin, int64_t end);  // batch rows [begin, end)

// h' = q h + p x, y = Re(sum_n g h') + omega x, then the RMS norm over the features, or SiLU.
struct ComplexAverageStep {
  const float *x, *state;          // (B, D), (B, D, N, 2) or null
  const double* decay;             // (D, N, 2): a long text multiplies by it thousands of times
  const float *expansion;          // (D, N)
  const float* projection;         // (D, N, 2): real part, minus the imaginary part
  const float *omega, *scale;      // (D), of the skip; (D) or null for one, of the norm
  float *y, *new_state;            // (B, D), (B, D, N, 2)
  int64_t width, n;
  bool rms;                        // else SiLU
};

void complex_average_step_cpu(const ComplexAverageStep& step, int64_t begin, int64_t end);  // batch rows [begin, end)

// From the gates' linear map to what the output's linear map reads.
struct NormalizedAttentionStep {
  const float* gates;             // (B, z + v + D): shared representation, output gate, candidate
  const float* value;             // (B, v), of this step, before SiLU
  const float *scale, *offset;    // (2, z), of query and key
  const float* turn;              // (z / heads / 2, 2): cosine and sine of this step's angles
  float *keys, *values;           // (B, room, z), (B, room, v); row `past` of each is written
  float* y;                       // (B, v): attention times output gate
  int64_t gates_width, z, v, heads, room, past;
};

void normalized_attention_step_cpu(const NormalizedAttentionStep& step, int64_t begin, int64_t end);  // batch rows

// out = residual + (candidate + out)
struct CandidateStep {
  const float *residual, *gates;  // (B, D), as above
  float* out;                     // (B, D)
  int64_t width, gates_width;
};

void candidate_step_cpu(const CandidateStep& step, int64_t begin, int64_t end);  // batch rows [begin, end)

}  // namespace fm
