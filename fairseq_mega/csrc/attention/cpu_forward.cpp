// Attention of whole groups, forward; see blocks.h.
#include "attention/cpu_blocks.h"

namespace fm {
namespace {

struct Memory {
  Pieces pieces;
  float *wide_q, *wide_k, *wide_values;
  uint32_t *keys, *values, *rounded;
  float *logits, *out;

  Memory(const AttentionGroups& g, const Factors& f, float* memory) : pieces(memory) {
    const int64_t n = g.call.queries, m = g.call.keys, rows = block_rows(g);
    wide_q = pieces.floats(f.wide(n * g.z));
    wide_k = pieces.floats(f.wide(m * g.z));
    wide_values = pieces.floats(f.wide(m * g.v));
    keys = pieces.words(f.panels(m, g.z));
    values = pieces.words(f.panels(g.v, m));
    rounded = pieces.words(f.rounded(rows, m));
    logits = pieces.floats(rows * m);
    out = pieces.floats(f.narrowed(rows * g.v));
  }
};

void forward(const AttentionGroups& g, const Factors& f, const Memory& at, void* out, int64_t group) {
  const int64_t n = g.call.queries, m = g.call.keys, step = block_rows(g), z = f.words(g.z);
  const uint32_t* q = f.matrix(g.q, group, n * g.z, at.wide_q);
  f.pack_columns(f.matrix(g.k, group, m * g.z, at.wide_k), m, g.z, at.keys);
  f.pack_rows(f.matrix(g.values, group, m * g.v, at.wide_values), m, g.v, at.values);
  for (int64_t first = 0; first < n; first += step) {
    const AttentionBlock block = block_at(g.call, group, first, std::min(step, n - first));
    const int64_t rows = block.rows, seen = block.columns, keys = f.words(seen);
    multiply_cpu({q + first * z, z, false, at.keys, z * kPanel, at.logits, seen, rows, seen, z, f.word(), false});
    attention_weights_cpu(block, at.logits, g.statistics, 0, attention_tasks_cpu(block));
    const uint32_t* weights = f.rows(at.logits, rows, seen, at.rounded);
    const int64_t offset = (group * n + first) * g.v;
    float* target = f.target(out, offset, at.out);
    multiply_cpu({weights, keys, false, at.values, f.words(m) * kPanel, target, g.v, rows, g.v, keys, f.word(), false});
    f.finish(out, offset, rows * g.v, target);
  }
}

}  // namespace

Word attention_word_cpu(DType dtype, int64_t z, int64_t v) {
  const bool pairs = dtype == DType::kBFloat16 && z % 2 == 0 && v % 2 == 0 && multiplies_pairs_cpu();
  return pairs ? Word::kBFloat16Pair : Word::kFloat;
}

int64_t attention_forward_memory_cpu(const AttentionGroups& g) {
  return Memory(g, Factors(g), nullptr).pieces.used();
}

void attention_forward_cpu(const AttentionGroups& g, void* out, float* memory, int64_t begin, int64_t end) {
  const Factors factors(g);
  const Memory at(g, factors, memory);
  for (int64_t group = begin; group < end; ++group) forward(g, factors, at, out, group);
}

}  // namespace fm
