#pragma once
// Attention of whole groups on the CPU, block by block of queries: products, weights and products again while the
// numbers are in cache. The weights are those of attention.h, the products those of product.h.
#include "attention/attention.h"
#include "common/product.h"

namespace fm {

struct AttentionGroups {
  AttentionBlock call;  // of all groups and queries: rows = queries, columns = keys
  DType dtype;          // of every tensor but the statistics
  Word word;            // that the products are computed with, see attention_word_cpu
  int64_t z, v;         // widths
  const void* q;        // (groups, n, z)
  const void* k;        // (groups, m, z)
  const void* values;   // (groups, m, v)
  AttentionStatistics* statistics;  // (groups, n): softmax only
};

struct AttentionGroupGradients {
  const void* grad_out;  // (groups, n, v)
  void* grad_q;
  void* grad_k;
  void* grad_values;
  double* grad_bias;  // (groups, n + m - 1), zero before; or null
};

// Pairs of bfloat16 where the processor multiplies them and the widths are whole pairs; float32 elsewhere.
Word attention_word_cpu(DType dtype, int64_t z, int64_t v);

// Floats of memory that a thread works in.
int64_t attention_forward_memory_cpu(const AttentionGroups& groups);
int64_t attention_backward_memory_cpu(const AttentionGroups& groups);

// Groups [begin, end); out is (groups, n, v).
void attention_forward_cpu(const AttentionGroups& groups, void* out, float* memory, int64_t begin, int64_t end);
void attention_backward_cpu(const AttentionGroups& groups, const AttentionGroupGradients& gradients, float* memory,
                            int64_t begin, int64_t end);

}  // namespace fm
