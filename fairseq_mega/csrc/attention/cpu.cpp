// Attention weights of blocks of queries, forward and backward, on the CPU (see attention.h).
#include <algorithm>
#include <limits>

#include "attention/attention.h"
#include "common/cpu_level.h"
#include "common/vector_math.h"

namespace fm {
namespace {

#define FM_INLINE_LAMBDA __attribute__((always_inline))

constexpr float kUnseen = -std::numeric_limits<float>::infinity();
constexpr int64_t kTaskRows = 32;  // consecutive queries of one group; their bias gradients share one vector

struct Task {
  int64_t group, first, last;  // rows [first, last) of a group of the block
};

FM_INLINE int64_t strips(const AttentionBlock& block) { return (block.rows + kTaskRows - 1) / kTaskRows; }

FM_INLINE Task task(const AttentionBlock& block, int64_t index) {
  const int64_t first = index % strips(block) * kTaskRows;
  return {index / strips(block), first, std::min(first + kTaskRows, block.rows)};
}

// Diagonals that a task's rows touch, from its last row's first key to its first row's last key.
FM_INLINE int64_t diagonals(const AttentionBlock& block) { return block.columns + kTaskRows - 1; }

// Eight consecutive keys of a row, or what is left of it.
struct Keys {
  int64_t first;
  int count;
};

FM_INLINE Floats load(const float* row, Keys keys) {
  if (keys.count == kWidth) return fm::load(row + keys.first);
  Floats x{};
  for (int i = 0; i < keys.count; ++i) x[i] = row[keys.first + i];
  return x;
}

FM_INLINE void store(float* row, Keys keys, Floats x) {
  if (keys.count == kWidth) return fm::store(row + keys.first, x);
  for (int i = 0; i < keys.count; ++i) row[keys.first + i] = x[i];
}

// Calls body(Keys) over the row: whole vectors first, so that the compiler sees their constant width.
template <class Body>
FM_INLINE void for_keys(int64_t seen, Body body) {
  int64_t j = 0;
  for (; j + kWidth <= seen; j += kWidth) body(Keys{j, kWidth});
  if (j < seen) body(Keys{j, static_cast<int>(seen - j)});
}

template <bool kDropped>
FM_INLINE Ints hashes(const AttentionRow& row, Keys keys) {
  if (!kDropped) return Ints{};
  const Words key = Words{0, 1, 2, 3, 4, 5, 6, 7} + static_cast<uint32_t>(keys.first);
  return reinterpret_cast<Ints>(hash_of(row.bits, key));
}

// x, or kUnseen. kHidden: some keys are padding. kDropped: DropKey, dropout or both.
template <bool kHidden, bool kDropped>
FM_INLINE Floats logits_of(const AttentionRow& row, Floats products, Keys keys, Ints hash, int32_t drop_key) {
  Floats x = products * row.scale + load(row.bias, keys);
  if (kDropped) x = select(hash < drop_key, broadcast(kUnseen), x);
  if (kHidden) {
    using Bytes = uint8_t __attribute__((vector_size(8)));
    Bytes padding{};
    std::memcpy(&padding, row.padding + keys.first, static_cast<size_t>(keys.count));
    x = select(__builtin_convertvector(padding, Ints) != 0, broadcast(kUnseen), x);
  }
  return x;
}

template <bool kDropped>
FM_INLINE Floats kept(const AttentionBlock& block, Ints hash) {
  if (!kDropped) return broadcast(1.f);
  return select(hash < block.drop, Floats{}, broadcast(block.kept));
}

template <bool kHidden, bool kDropped>
FM_INLINE AttentionStatistics softmax_row(const AttentionBlock& block, const AttentionRow& row, float* s) {
  Floats largest = broadcast(kUnseen);
  for_keys(row.seen, [&](Keys keys) FM_INLINE_LAMBDA {
    const Floats x =
        logits_of<kHidden, kDropped>(row, load(s, keys), keys, hashes<kDropped>(row, keys), block.drop_key);
    store(s, keys, x);
    Floats counted = x;
    for (int i = keys.count; i < kWidth; ++i) counted[i] = kUnseen;
    largest = maximum(largest, counted);
  });
  const float top = maximum(largest);
  if (top == kUnseen) {  // DropKey left nothing
    std::fill(s, s + row.seen, 0.f);
    return {0.f, 0.f};
  }
  Floats total{};
  for_keys(row.seen, [&](Keys keys) FM_INLINE_LAMBDA {
    const Floats e = exp_nonpositive(load(s, keys) - top);
    store(s, keys, e);
    Floats counted = e;
    for (int i = keys.count; i < kWidth; ++i) counted[i] = 0.f;
    total += counted;
  });
  const float factor = 1.f / sum(total);
  for_keys(row.seen, [&](Keys keys) FM_INLINE_LAMBDA {
    store(s, keys, load(s, keys) * factor * kept<kDropped>(block, hashes<kDropped>(row, keys)));
  });
  return {top, factor};
}

struct Value {
  Floats weight, slope;  // f(x) and f'(x)
};

template <AttentionFunction kFunction>
FM_INLINE Value value(Floats x) {
  if constexpr (kFunction == AttentionFunction::kRelu2) {
    const Floats positive = select(x < 0.f, Floats{}, x);
    return {positive * positive, 2.f * positive};
  } else {
    const LaplaceFloats laplace = laplace_floats((x - kLaplaceMu) * kLaplaceSlope);
    return {laplace.weight, laplace.bell * kLaplacePeak};
  }
}

template <AttentionFunction kFunction, bool kHidden, bool kDropped>
FM_INLINE AttentionStatistics weights_row(const AttentionBlock& block, const AttentionRow& row, float* s) {
  if constexpr (kFunction == AttentionFunction::kSoftmax) return softmax_row<kHidden, kDropped>(block, row, s);
  for_keys(row.seen, [&](Keys keys) FM_INLINE_LAMBDA {
    const Ints hash = hashes<kDropped>(row, keys);
    const Floats x = logits_of<kHidden, kDropped>(row, load(s, keys), keys, hash, block.drop_key);
    store(s, keys, value<kFunction>(x).weight * kept<kDropped>(block, hash));
  });
  return {0.f, 0.f};
}

// A softmax row in two passes: its gradient is relative to the mean of the weights' gradients.
template <bool kHidden, bool kDropped>
FM_INLINE void softmax_gradient_row(const AttentionBlock& block, const AttentionRow& row,
                                    AttentionStatistics statistics, float* s, float* grad, float* diagonal) {
  Floats total{};
  for_keys(row.seen, [&](Keys keys) FM_INLINE_LAMBDA {
    const Ints hash = hashes<kDropped>(row, keys);
    const Floats x = logits_of<kHidden, kDropped>(row, load(s, keys), keys, hash, block.drop_key);
    Floats weight = exp_nonpositive(x - statistics.maximum) * statistics.factor;
    for (int i = keys.count; i < kWidth; ++i) weight[i] = 0.f;
    const Floats grad_weight = load(grad, keys) * kept<kDropped>(block, hash);
    store(s, keys, weight);
    if (kDropped) store(grad, keys, grad_weight);
    total += weight * grad_weight;
  });
  const float mean = sum(total);
  for_keys(row.seen, [&](Keys keys) FM_INLINE_LAMBDA {
    const Floats weight = load(s, keys);
    const Floats grad_x = weight * (load(grad, keys) - mean);
    if (kDropped) store(s, keys, weight * kept<kDropped>(block, hashes<kDropped>(row, keys)));
    store(grad, keys, grad_x * row.scale);
    store(diagonal, keys, load(diagonal, keys) + grad_x);
  });
}

template <AttentionFunction kFunction, bool kHidden, bool kDropped>
FM_INLINE void gradient_row(const AttentionBlock& block, const AttentionRow& row, AttentionStatistics statistics,
                            float* s, float* grad, float* diagonal) {
  if constexpr (kFunction == AttentionFunction::kSoftmax) {
    return softmax_gradient_row<kHidden, kDropped>(block, row, statistics, s, grad, diagonal);
  }
  for_keys(row.seen, [&](Keys keys) FM_INLINE_LAMBDA {
    const Ints hash = hashes<kDropped>(row, keys);
    const Floats x = logits_of<kHidden, kDropped>(row, load(s, keys), keys, hash, block.drop_key);
    const Value f = value<kFunction>(x);
    const Floats factor = kept<kDropped>(block, hash);
    const Floats grad_x = f.slope * load(grad, keys) * factor;
    store(s, keys, f.weight * factor);
    store(grad, keys, grad_x * row.scale);
    store(diagonal, keys, load(diagonal, keys) + grad_x);
  });
}

template <AttentionFunction kFunction>
FM_INLINE void weights(const AttentionBlock& block, float* logits, AttentionStatistics* statistics, int64_t begin,
                       int64_t end) {
  for (int64_t index = begin; index < end; ++index) {
    const Task now = task(block, index);
    for (int64_t r = now.first; r < now.last; ++r) {
      float* s = logits + (now.group * block.rows + r) * block.columns;
      const AttentionRow row = attention_row(block, now.group, r);
      const bool hidden = row.padding != nullptr, dropped = block.seed != nullptr;
      const AttentionStatistics found = hidden ? (dropped ? weights_row<kFunction, true, true>(block, row, s)
                                                          : weights_row<kFunction, true, false>(block, row, s))
                                               : (dropped ? weights_row<kFunction, false, true>(block, row, s)
                                                          : weights_row<kFunction, false, false>(block, row, s));
      std::fill(s + row.seen, s + block.columns, 0.f);
      if (statistics) statistics[(block.first_group + now.group) * block.queries + block.first_row + r] = found;
    }
  }
}

template <AttentionFunction kFunction>
FM_INLINE void gradients_of(const AttentionBlock& block, const AttentionGradients& g, float* logits,
                            float* grad_weights, int64_t begin, int64_t end) {
  constexpr bool kSoftmax = kFunction == AttentionFunction::kSoftmax;
  for (int64_t index = begin; index < end; ++index) {
    const Task now = task(block, index);
    float* partial = g.partials + index * diagonals(block);
    std::fill(partial, partial + diagonals(block), 0.f);
    for (int64_t r = now.first; r < now.last; ++r) {
      const int64_t at = (block.first_group + now.group) * block.queries + block.first_row + r;
      float* s = logits + (now.group * block.rows + r) * block.columns;
      float* grad = grad_weights + (now.group * block.rows + r) * block.columns;
      float* diagonal = partial + kTaskRows - 1 - (r - now.first);
      const AttentionRow row = attention_row(block, now.group, r);
      const AttentionStatistics statistics = kSoftmax ? g.statistics[at] : AttentionStatistics{0.f, 0.f};
      const bool hidden = row.padding != nullptr, dropped = block.seed != nullptr;
      if (hidden && dropped) {
        gradient_row<kFunction, true, true>(block, row, statistics, s, grad, diagonal);
      } else if (hidden) {
        gradient_row<kFunction, true, false>(block, row, statistics, s, grad, diagonal);
      } else if (dropped) {
        gradient_row<kFunction, false, true>(block, row, statistics, s, grad, diagonal);
      } else {
        gradient_row<kFunction, false, false>(block, row, statistics, s, grad, diagonal);
      }
      std::fill(s + row.seen, s + block.columns, 0.f);
      std::fill(grad + row.seen, grad + block.columns, 0.f);
    }
  }
}

}  // namespace

int64_t attention_tasks_cpu(const AttentionBlock& block) { return block.groups * strips(block); }

void attention_weights_cpu(const AttentionBlock& block, float* logits, AttentionStatistics* statistics, int64_t begin,
                           int64_t end) {
  switch (block.function) {
    case AttentionFunction::kSoftmax:
      return FM_AT_CPU_LEVEL(weights<AttentionFunction::kSoftmax>(block, logits, statistics, begin, end));
    case AttentionFunction::kRelu2:
      return FM_AT_CPU_LEVEL(weights<AttentionFunction::kRelu2>(block, logits, nullptr, begin, end));
    case AttentionFunction::kLaplace:
      return FM_AT_CPU_LEVEL(weights<AttentionFunction::kLaplace>(block, logits, nullptr, begin, end));
  }
}

void attention_weights_backward_cpu(const AttentionBlock& block, const AttentionGradients& g, float* logits,
                                    float* grad_weights, int64_t begin, int64_t end) {
  switch (block.function) {
    case AttentionFunction::kSoftmax:
      return FM_AT_CPU_LEVEL(gradients_of<AttentionFunction::kSoftmax>(block, g, logits, grad_weights, begin, end));
    case AttentionFunction::kRelu2:
      return FM_AT_CPU_LEVEL(gradients_of<AttentionFunction::kRelu2>(block, g, logits, grad_weights, begin, end));
    case AttentionFunction::kLaplace:
      return FM_AT_CPU_LEVEL(gradients_of<AttentionFunction::kLaplace>(block, g, logits, grad_weights, begin, end));
  }
}

int64_t attention_partials_cpu(const AttentionBlock& block) { return attention_tasks_cpu(block) * diagonals(block); }

void attention_bias_cpu(const AttentionBlock& block, const float* partials, double* grad_bias) {
  for (int64_t index = 0; index < attention_tasks_cpu(block); ++index) {
    const Task now = task(block, index);
    const float* partial = partials + index * diagonals(block);
    // The partial vector starts at the diagonal of row first + kTaskRows - 1, which need not exist.
    const int64_t start = block.queries - 1 - (block.first_row + now.first + kTaskRows - 1);
    for (int64_t d = kTaskRows - (now.last - now.first); d < diagonals(block); ++d) grad_bias[start + d] += partial[d];
  }
}

}  // namespace fm
