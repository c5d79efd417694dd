#pragma once
// Attention weights of blocks of queries: what the CPU and the CUDA kernels compute between the matrix products.
//
//   x_ij = s_i q_i.k_j + bias[n - 1 + j - i]    n queries, m keys; s_i = scale, or 1 / keys that i sees where it is 0
//   w_ij = f(x_ij)                              softmax over j, max(x, 0)^2 or 0.5 (1 + erf((x - mu) / (sigma sqrt 2)))
//
// Causal: queries are the last n positions of the keys, query i sees keys 0 .. m - n + i. Padded keys are not seen,
// except by a query that would see no key at all: it sees those that causality leaves. What is not seen weighs zero.
//
// A block holds R consecutive queries of some groups (sequences, heads or chunks) and their first K keys:
//   forward:   raw products q.k in, dropped weights out
//   backward:  raw products and gradients of the dropped weights in, dropped weights and gradients of the raw products
//              out; the weights are computed again, from two numbers per row
//
// DropKey: a key counts as not seen with some probability; no rescaling, and a query that lost all keys weighs zero.
// Dropout: a weight becomes zero with some probability, the others are divided by the probability to stay. Both read
// one number between 0 and 2^24, a hash of (seed, group, query, key): blocks, devices and recomputation change nothing.
#include "common/common.h"
#include "common/random.h"

namespace fm {

enum class AttentionFunction : int { kSoftmax = 0, kRelu2 = 1, kLaplace = 2 };

// The published code's rounded values of sqrt(1/2) and sqrt(1/(4 pi)); t = (x - mu) kLaplaceSlope is erf's argument.
constexpr float kLaplaceMu = 0.707107f;
constexpr float kLaplaceSlope = static_cast<float>(0.70710678118654752 / 0.282095);
constexpr float kLaplacePeak = static_cast<float>(0.70710678118654752 / 0.282095 * 0.56418958354775628);  // dw/dx at mu

struct AttentionBlock {
  int64_t groups, rows, columns;   // G, R, K of the block
  int64_t first_group, first_row;  // where it stands among all groups and queries
  int64_t queries, keys;           // n, m
  AttentionFunction function;
  bool causal;
  float scale;            // of the products; 0, not for softmax: one over the number of keys that the query sees
  const float* bias;      // (n + m - 1,)
  const bool* padding;    // (all groups, m), true: not seen; or null
  const int32_t* counts;  // (all groups, n): visible keys without padding; null where padding is
  const int64_t* seed;    // one number; null where nothing is dropped
  int32_t drop_key;       // hashes below this: DropKey
  int32_t drop;           // hashes from drop_key to below this: dropout
  float kept;             // factor of the weights that dropout keeps
};

// Softmax of one row: w = exp(x - maximum) factor. A row without keys has 0, 0.
struct AttentionStatistics {
  float maximum, factor;
};

struct AttentionGradients {
  const AttentionStatistics* statistics;  // (all groups, n): softmax only
  float* partials;  // see attention_partials_*; null: no gradient of the bias is wanted
};

// What one row of a block needs to know.
struct AttentionRow {
  int64_t seen;        // of the block's columns; padding aside
  const float* bias;   // of the row's first key
  const bool* padding;  // of the row's keys, or null
  float scale;
  RowBits bits;  // of its hashes
};

FM_EVERYWHERE AttentionRow attention_row(const AttentionBlock& block, int64_t g, int64_t r) {
  const int64_t group = block.first_group + g, query = block.first_row + r;
  const int64_t limit = block.causal ? block.keys - block.queries + query + 1 : block.keys;
  const int64_t count = block.counts ? block.counts[group * block.queries + query] : limit;
  AttentionRow row;
  row.seen = limit < block.columns ? limit : block.columns;
  row.bias = block.bias + block.queries - 1 - query;
  row.padding = block.padding && count > 0 ? block.padding + group * block.keys : nullptr;
  row.scale = block.scale > 0.f ? block.scale : 1.f / static_cast<float>(count > 0 ? count : limit);
  if (block.seed) row.bits = row_bits(mix_bits(static_cast<uint64_t>(*block.seed + group)), query);
  return row;
}

// CPU: logits (G, R, K) float32 in place. The work is divided into tasks, of which [begin, end) is done.
int64_t attention_tasks_cpu(const AttentionBlock& block);
void attention_weights_cpu(const AttentionBlock& block, float* logits, AttentionStatistics* statistics, int64_t begin,
                           int64_t end);
void attention_weights_backward_cpu(const AttentionBlock& block, const AttentionGradients& gradients, float* logits,
                                    float* grad_weights, int64_t begin, int64_t end);
// Floats that `partials` needs; attention_bias_cpu adds them to grad_bias (n + m - 1), in the order of the tasks.
int64_t attention_partials_cpu(const AttentionBlock& block);
void attention_bias_cpu(const AttentionBlock& block, const float* partials, double* grad_bias);

// CUDA: logits and grad_weights (G, R, K) float32; `weights` and `grad_logits` are (G, R, K) of `dtype`, and may be the
// memory of the former two if that is float32 (otherwise these are overwritten, too). They return CUDA error codes.
int attention_weights_cuda(const AttentionBlock& block, DType dtype, const float* logits, void* weights,
                           AttentionStatistics* statistics, void* stream);
int attention_weights_backward_cuda(const AttentionBlock& block, const AttentionGradients& gradients, DType dtype,
                                    const float* logits, float* grad_weights, void* weights, void* grad_logits,
                                    void* stream);
int64_t attention_partials_cuda(const AttentionBlock& block);
int attention_bias_cuda(const AttentionBlock& block, const float* partials, double* grad_bias, void* stream);

}  // namespace fm
