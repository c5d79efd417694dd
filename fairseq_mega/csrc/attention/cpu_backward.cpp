// Gradients of the attention of whole groups; see blocks.h. The weights are computed again, from two numbers per row.
#include "attention/cpu_blocks.h"

namespace fm {
namespace {

constexpr int64_t kKeys = 4 * kPanel;  // whose gradients are computed at once

// Queries whose weights are kept until the sums over queries are formed, for all keys: a few MiB of them.
int64_t kept_rows(const AttentionGroups& g) {
  const int64_t fitting = (int64_t{1} << 20) / g.call.keys / 64 * 64;
  return std::min(g.call.queries, std::max<int64_t>(fitting, 64));
}

struct Memory {
  Pieces pieces;
  float *wide_q, *wide_k, *wide_values, *wide_grad;
  uint32_t *keys, *key_rows, *values, *query_rows, *grad_rows;  // panels; of rows: to be summed over them
  float *logits, *grad_weights, *diagonals;                     // of a block
  uint32_t *rounded, *weights, *grad_logits;                    // panels of the kept queries
  float *grad_q, *grad_k, *grad_values;

  Memory(const AttentionGroups& g, const Factors& f, float* memory) : pieces(memory) {
    const int64_t n = g.call.queries, m = g.call.keys, rows = block_rows(g), kept = kept_rows(g);
    wide_q = pieces.floats(f.wide(n * g.z));
    wide_k = pieces.floats(f.wide(m * g.z));
    wide_values = pieces.floats(f.wide(m * g.v));
    wide_grad = pieces.floats(f.wide(n * g.v));
    keys = pieces.words(f.panels(m, g.z));
    key_rows = pieces.words(f.panels(g.z, m));
    values = pieces.words(f.panels(m, g.v));
    query_rows = pieces.words(f.panels(g.z, n));
    grad_rows = pieces.words(f.panels(g.v, n));
    logits = pieces.floats(rows * m);
    grad_weights = pieces.floats(rows * m);
    diagonals = pieces.floats(attention_partials_cpu(block_at(g.call, 0, n - std::min(rows, n), std::min(rows, n))));
    rounded = pieces.words(f.rounded(rows, m));
    weights = pieces.words(f.panels(m, kept));
    grad_logits = pieces.words(f.panels(m, kept));
    grad_q = pieces.floats(f.narrowed(rows * g.z));
    grad_k = pieces.floats(f.narrowed(m * g.z));
    grad_values = pieces.floats(f.narrowed(m * g.v));
  }
};

struct Group {
  const AttentionGroups& g;
  const AttentionGroupGradients& gradients;
  const Factors& f;
  const Memory& at;
  int64_t index;
  const uint32_t *q, *grad_out;
  float *grad_k, *grad_values;
};

// Weights and gradients of logits of a block, and what follows from them alone: the gradients of queries and bias.
void block_gradients(const Group& group, const AttentionBlock& block) {
  const auto& [g, gradients, f, at, index, q, grad_out, grad_k, grad_values] = group;
  const int64_t n = block.queries, m = block.keys, rows = block.rows, seen = block.columns;
  const int64_t z = f.words(g.z), v = f.words(g.v), first = block.first_row;
  multiply_cpu({q + first * z, z, false, at.keys, z * kPanel, at.logits, seen, rows, seen, z, f.word(), false});
  multiply_cpu(
      {grad_out + first * v, v, false, at.values, v * kPanel, at.grad_weights, seen, rows, seen, v, f.word(), false});
  attention_weights_backward_cpu(block, {g.statistics, at.diagonals}, at.logits, at.grad_weights, 0,
                                 attention_tasks_cpu(block));
  if (gradients.grad_bias) attention_bias_cpu(block, at.diagonals, gradients.grad_bias + index * (n + m - 1));
  const int64_t offset = (index * n + first) * g.z, keys = f.words(seen);
  float* target = f.target(gradients.grad_q, offset, at.grad_q);
  multiply_cpu({f.rows(at.grad_weights, rows, seen, at.rounded), keys, false, at.key_rows, f.words(m) * kPanel, target,
                g.z, rows, g.z, keys, f.word(), false});
  f.finish(gradients.grad_q, offset, rows * g.z, target);
}

// Puts rows of a block into panels of `panel` words at `out`, with zeros up to a multiple of kKeys.
void keep(const Factors& f, const float* found, const AttentionBlock& block, uint32_t* out, int64_t panel) {
  const int64_t seen = block.columns, words = f.words(block.rows) * kPanel;
  if (f.word() == Word::kFloat) {
    pack_floats_cpu(found, seen, block.rows, seen, out, panel);
  } else {
    pack_rounded_cpu(found, seen, block.rows, seen, out, panel);
  }
  const int64_t end = std::min(round_up(seen, kKeys), round_up(block.keys, kPanel)) / kPanel;
  for (int64_t p = round_up(seen, kPanel) / kPanel; p < end; ++p) std::fill_n(out + p * panel, words, 0u);
}

// Adds what the kept queries [first, stop) contribute to the gradients of keys and values.
void key_gradients(const Group& group, int64_t first, int64_t stop) {
  const auto& [g, gradients, f, at, index, q, grad_out, grad_k, grad_values] = group;
  const int64_t n = g.call.queries, m = g.call.keys, panel = f.words(kept_rows(g)) * kPanel;
  const bool add = stop < n;
  for (int64_t key = 0; key < seen_before(g.call, stop); key += kKeys) {
    const int64_t keys = std::min(kKeys, seen_before(g.call, stop) - key);
    const int64_t seeing = g.call.causal ? std::max<int64_t>(key - (m - n) - first, 0) : 0;  // the first that does
    const int64_t skipped = (f.word() == Word::kFloat ? seeing : seeing / 2) * kPanel;
    const int64_t steps = f.words(stop - first) - skipped / kPanel, past = f.words(first) * kPanel + skipped;
    const int64_t a = key / kPanel * panel + skipped, b = f.words(n) * kPanel;
    multiply_cpu({at.weights + a, panel, true, at.grad_rows + past, b, grad_values + key * g.v, g.v, keys, g.v, steps,
                  f.word(), add});
    multiply_cpu({at.grad_logits + a, panel, true, at.query_rows + past, b, grad_k + key * g.z, g.z, keys, g.z, steps,
                  f.word(), add});
  }
}

void backward(const AttentionGroups& g, const AttentionGroupGradients& gradients, const Factors& f, const Memory& at,
              int64_t index) {
  const int64_t n = g.call.queries, m = g.call.keys, step = block_rows(g), kept = kept_rows(g);
  const uint32_t* q = f.matrix(g.q, index, n * g.z, at.wide_q);
  const uint32_t* k = f.matrix(g.k, index, m * g.z, at.wide_k);
  const uint32_t* values = f.matrix(g.values, index, m * g.v, at.wide_values);
  const uint32_t* grad_out = f.matrix(gradients.grad_out, index, n * g.v, at.wide_grad);
  f.pack_columns(k, m, g.z, at.keys);
  f.pack_rows(k, m, g.z, at.key_rows);
  f.pack_columns(values, m, g.v, at.values);
  f.pack_rows(q, n, g.z, at.query_rows);
  f.pack_rows(grad_out, n, g.v, at.grad_rows);
  float* grad_k = f.target(gradients.grad_k, index * m * g.z, at.grad_k);
  float* grad_values = f.target(gradients.grad_values, index * m * g.v, at.grad_values);
  const Group group{g, gradients, f, at, index, q, grad_out, grad_k, grad_values};
  const int64_t panel = f.words(kept) * kPanel;
  for (int64_t begin = (n - 1) / kept * kept; begin >= 0; begin -= kept) {  // the last queries see all keys
    const int64_t end = std::min(begin + kept, n);
    for (int64_t first = begin; first < end; first += step) {
      const AttentionBlock block = block_at(g.call, index, first, std::min(step, end - first));
      block_gradients(group, block);
      const int64_t offset = f.words(first - begin) * kPanel;
      keep(f, at.logits, block, at.weights + offset, panel);
      keep(f, at.grad_weights, block, at.grad_logits + offset, panel);
    }
    key_gradients(group, begin, end);
  }
  f.finish(gradients.grad_k, index * m * g.z, m * g.z, grad_k);
  f.finish(gradients.grad_values, index * m * g.v, m * g.v, grad_values);
}

}  // namespace

int64_t attention_backward_memory_cpu(const AttentionGroups& g) {
  return Memory(g, Factors(g), nullptr).pieces.used();
}

void attention_backward_cpu(const AttentionGroups& g, const AttentionGroupGradients& gradients, float* memory,
                            int64_t begin, int64_t end) {
  const Factors factors(g);
  const Memory at(g, factors, memory);
  for (int64_t index = begin; index < end; ++index) backward(g, gradients, factors, at, index);
}

}  // namespace fm
