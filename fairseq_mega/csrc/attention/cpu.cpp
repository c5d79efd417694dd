// Attention weights of blocks of queries, forward and backward, on the CPU (see attention.h).
#include <algorithm>
#include <limits>

#include "attention/attention.h"
#include "common/elements.h"

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

// Consecutive keys of a row: as many as a vector V has numbers, or what is left of the row.
template <class V>
struct Keys {
  static constexpr int kLanes = lanes_of<V>;
  int64_t first;
  int count;

  FM_INLINE V load(const float* row) const {
    V x{};
    if (count == kLanes) {
      std::memcpy(&x, row + first, sizeof x);
    } else {
      for (int i = 0; i < count; ++i) x[i] = row[first + i];
    }
    return x;
  }

  FM_INLINE void store(float* row, V x) const {
    if (count == kLanes) {
      std::memcpy(row + first, &x, sizeof x);
    } else {
      for (int i = 0; i < count; ++i) row[first + i] = x[i];
    }
  }

  // x, and `other` where there is no key.
  FM_INLINE V among(V x, float other) const {
    for (int i = count; i < kLanes; ++i) x[i] = other;
    return x;
  }
};

// Calls body(Keys) over the row: whole vectors first, so that the compiler sees their constant width.
template <class V, class Body>
FM_INLINE void for_keys(int64_t seen, Body body) {
  constexpr int kLanes = lanes_of<V>;
  int64_t j = 0;
  for (; j + kLanes <= seen; j += kLanes) body(Keys<V>{j, kLanes});
  if (j < seen) body(Keys<V>{j, static_cast<int>(seen - j)});
}

template <class V>
using Hashes = decltype(V{} < V{});  // signed: below 2^24, so that a difference of two has the sign of a comparison

template <bool kDropped, class V>
FM_INLINE Hashes<V> hashes(const AttentionRow& row, Keys<V> keys) {
  typename WordsOf<V>::Type key{};
  for (int i = 0; i < Keys<V>::kLanes; ++i) key[i] = static_cast<uint32_t>(i);
  return kDropped ? with_bits<Hashes<V>>(hash_of(row.bits, key + static_cast<uint32_t>(keys.first))) : Hashes<V>{};
}

// All bits where the hash is below the limit, else none. With AVX-512 GCC 12 joins two comparisons, of hashes and of
// padding, number by number.
template <class H>
FM_INLINE H below(H hash, int32_t limit) {
  return (hash - limit) >> 31;
}

// `unseen` where the mask has all bits, x where it has none.
template <class V>
FM_INLINE V masked(V x, Hashes<V> mask) {
  return with_bits<V>((with_bits<Hashes<V>>(x) & ~mask) | (with_bits<Hashes<V>>(V{} + kUnseen) & mask));
}

// x, or kUnseen. kHidden: some keys are padding. kDropped: DropKey, dropout or both.
template <bool kHidden, bool kDropped, class V>
FM_INLINE V logits_of(const AttentionRow& row, V products, Keys<V> keys, Hashes<V> hash, int32_t drop_key) {
  V x = products * row.scale + keys.load(row.bias);
  if (kDropped) x = masked(x, below(hash, drop_key));
  if (kHidden) {
    typedef uint8_t Bytes __attribute__((vector_size(Keys<V>::kLanes)));
    Bytes padding{};
    std::memcpy(&padding, row.padding + keys.first, static_cast<size_t>(keys.count));
    // In two steps, which GCC has instructions for.
    const auto halves = __builtin_convertvector(padding, typename Lanes<Keys<V>::kLanes>::Halves);
    x = masked(x, -__builtin_convertvector(halves, Hashes<V>));
  }
  return x;
}

// What dropout multiplies weights with, by a mask of those that it drops.
template <bool kDropped, class V>
FM_INLINE V kept(const AttentionBlock& block, Hashes<V> dropped) {
  const V all = V{} + (kDropped ? block.kept : 1.f);
  return kDropped ? with_bits<V>(with_bits<Hashes<V>>(all) & ~dropped) : all;
}

template <class V, bool kHidden, bool kDropped>
FM_INLINE AttentionStatistics softmax_row(const AttentionBlock& block, const AttentionRow& row, float* s) {
  V largest = V{} + kUnseen;
  const auto find_largest = [&](auto key_dropped) FM_INLINE_LAMBDA {
    constexpr bool kKeyDropped = decltype(key_dropped)::value;
    for_keys<V>(row.seen, [&](Keys<V> keys) FM_INLINE_LAMBDA {
      const auto hash = hashes<kKeyDropped>(row, keys);
      const V x = logits_of<kHidden, kKeyDropped>(row, keys.load(s), keys, hash, block.drop_key);
      keys.store(s, x);
      const V counted = keys.among(x, kUnseen);
      largest = select(largest > counted, largest, counted);
    });
  };
  if (kDropped && block.drop_key > 0) {
    find_largest(std::true_type());
  } else {
    find_largest(std::false_type());
  }
  float top = largest[0];
  for (int i = 1; i < Keys<V>::kLanes; ++i) top = std::max(top, static_cast<float>(largest[i]));
  if (top == kUnseen) {  // DropKey left nothing
    std::fill(s, s + row.seen, 0.f);
    return {0.f, 0.f};
  }
  V total{};
  for_keys<V>(row.seen, [&](Keys<V> keys) FM_INLINE_LAMBDA {
    const V e = exp_nonpositive(keys.load(s) - top);
    keys.store(s, e);
    total += keys.among(e, 0.f);
  });
  const float factor = 1.f / sum(total);
  for_keys<V>(row.seen, [&](Keys<V> keys) FM_INLINE_LAMBDA {
    keys.store(s, keys.load(s) * factor * kept<kDropped, V>(block, below(hashes<kDropped>(row, keys), block.drop)));
  });
  return {top, factor};
}

template <class V>
struct Value {
  V weight, slope;  // f(x) and f'(x)
};

template <AttentionFunction kFunction, class V>
FM_INLINE Value<V> value(V x) {
  if constexpr (kFunction == AttentionFunction::kRelu2) {
    const V positive = select(x < 0.f, V{}, x);
    return {positive * positive, 2.f * positive};
  } else {
    const auto laplace = laplace_floats((x - kLaplaceMu) * kLaplaceSlope);
    return {laplace.weight, laplace.bell * kLaplacePeak};
  }
}

template <class V, AttentionFunction kFunction, bool kHidden, bool kDropped>
FM_INLINE AttentionStatistics weights_row(const AttentionBlock& block, const AttentionRow& row, float* s) {
  if constexpr (kFunction == AttentionFunction::kSoftmax) return softmax_row<V, kHidden, kDropped>(block, row, s);
  for_keys<V>(row.seen, [&](Keys<V> keys) FM_INLINE_LAMBDA {
    const Hashes<V> hash = hashes<kDropped>(row, keys);
    const V x = logits_of<kHidden, kDropped>(row, keys.load(s), keys, hash, block.drop_key);
    keys.store(s, value<kFunction>(x).weight * kept<kDropped, V>(block, below(hash, block.drop)));
  });
  return {0.f, 0.f};
}

// A softmax row in two passes: its gradient is relative to the mean of the weights' gradients.
template <class V, bool kHidden, bool kDropped>
FM_INLINE void softmax_gradient_row(const AttentionBlock& block, const AttentionRow& row,
                                    AttentionStatistics statistics, float* s, float* grad, float* diagonal) {
  V total{};
  for_keys<V>(row.seen, [&](Keys<V> keys) FM_INLINE_LAMBDA {
    const Hashes<V> hash = hashes<kDropped>(row, keys);
    const V x = logits_of<kHidden, kDropped>(row, keys.load(s), keys, hash, block.drop_key);
    const V weight = keys.among(exp_nonpositive(x - statistics.maximum) * statistics.factor, 0.f);
    const Hashes<V> dropped = below(hash, block.drop);
    const V grad_weight = keys.load(grad) * kept<kDropped, V>(block, dropped);
    // The weight with the sign bit where it is dropped, for the second pass.
    keys.store(s, kDropped ? with_bits<V>(with_bits<Hashes<V>>(weight) | (dropped & INT32_MIN)) : weight);
    if (kDropped) keys.store(grad, grad_weight);
    total += weight * grad_weight;
  });
  const float mean = sum(total);
  for_keys<V>(row.seen, [&](Keys<V> keys) FM_INLINE_LAMBDA {
    const Hashes<V> bits = with_bits<Hashes<V>>(keys.load(s));
    const V weight = with_bits<V>(bits & INT32_MAX);
    const V grad_x = weight * (keys.load(grad) - mean);
    if (kDropped) keys.store(s, weight * kept<kDropped, V>(block, bits >> 31));
    keys.store(grad, grad_x * row.scale);
    keys.store(diagonal, keys.load(diagonal) + grad_x);
  });
}

template <class V, AttentionFunction kFunction, bool kHidden, bool kDropped>
FM_INLINE void gradient_row(const AttentionBlock& block, const AttentionRow& row, AttentionStatistics statistics,
                            float* s, float* grad, float* diagonal) {
  if constexpr (kFunction == AttentionFunction::kSoftmax) {
    return softmax_gradient_row<V, kHidden, kDropped>(block, row, statistics, s, grad, diagonal);
  }
  for_keys<V>(row.seen, [&](Keys<V> keys) FM_INLINE_LAMBDA {
    const Hashes<V> hash = hashes<kDropped>(row, keys);
    const V x = logits_of<kHidden, kDropped>(row, keys.load(s), keys, hash, block.drop_key);
    const Value<V> f = value<kFunction>(x);
    const V factor = kept<kDropped, V>(block, below(hash, block.drop));
    const V grad_x = f.slope * keys.load(grad) * factor;
    keys.store(s, f.weight * factor);
    keys.store(grad, grad_x * row.scale);
    keys.store(diagonal, keys.load(diagonal) + grad_x);
  });
}

template <class V, AttentionFunction kFunction>
FM_INLINE void weights(const AttentionBlock& block, float* logits, AttentionStatistics* statistics, int64_t begin,
                       int64_t end) {
  for (int64_t index = begin; index < end; ++index) {
    const Task now = task(block, index);
    for (int64_t r = now.first; r < now.last; ++r) {
      float* s = logits + (now.group * block.rows + r) * block.columns;
      const AttentionRow row = attention_row(block, now.group, r);
      const bool hidden = row.padding != nullptr, dropped = block.seed != nullptr;
      const AttentionStatistics found = hidden ? (dropped ? weights_row<V, kFunction, true, true>(block, row, s)
                                                          : weights_row<V, kFunction, true, false>(block, row, s))
                                               : (dropped ? weights_row<V, kFunction, false, true>(block, row, s)
                                                          : weights_row<V, kFunction, false, false>(block, row, s));
      std::fill(s + row.seen, s + block.columns, 0.f);
      if (statistics) statistics[(block.first_group + now.group) * block.queries + block.first_row + r] = found;
    }
  }
}

template <class V, AttentionFunction kFunction>
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
        gradient_row<V, kFunction, true, true>(block, row, statistics, s, grad, diagonal);
      } else if (hidden) {
        gradient_row<V, kFunction, true, false>(block, row, statistics, s, grad, diagonal);
      } else if (dropped) {
        gradient_row<V, kFunction, false, true>(block, row, statistics, s, grad, diagonal);
      } else {
        gradient_row<V, kFunction, false, false>(block, row, statistics, s, grad, diagonal);
      }
      std::fill(s + row.seen, s + block.columns, 0.f);
      std::fill(grad + row.seen, grad + block.columns, 0.f);
    }
  }
}

template <CpuLevel kLevel>
using Vector = typename Lanes<kVector<kLevel>>::Floats;

}  // namespace

int64_t attention_tasks_cpu(const AttentionBlock& block) { return block.groups * strips(block); }

void attention_weights_cpu(const AttentionBlock& block, float* logits, AttentionStatistics* statistics, int64_t begin,
                           int64_t end) {
  switch (block.function) {
    case AttentionFunction::kSoftmax:
      return FM_AT_CPU_LEVEL(
          weights<Vector<kLevel>, AttentionFunction::kSoftmax>(block, logits, statistics, begin, end));
    case AttentionFunction::kRelu2:
      return FM_AT_CPU_LEVEL(weights<Vector<kLevel>, AttentionFunction::kRelu2>(block, logits, nullptr, begin, end));
    case AttentionFunction::kLaplace:
      return FM_AT_CPU_LEVEL(weights<Vector<kLevel>, AttentionFunction::kLaplace>(block, logits, nullptr, begin, end));
  }
}

void attention_weights_backward_cpu(const AttentionBlock& block, const AttentionGradients& g, float* logits,
                                    float* grad_weights, int64_t begin, int64_t end) {
  switch (block.function) {
    case AttentionFunction::kSoftmax:
      return FM_AT_CPU_LEVEL(
          gradients_of<Vector<kLevel>, AttentionFunction::kSoftmax>(block, g, logits, grad_weights, begin, end));
    case AttentionFunction::kRelu2:
      return FM_AT_CPU_LEVEL(
          gradients_of<Vector<kLevel>, AttentionFunction::kRelu2>(block, g, logits, grad_weights, begin, end));
    case AttentionFunction::kLaplace:
      return FM_AT_CPU_LEVEL(
          gradients_of<Vector<kLevel>, AttentionFunction::kLaplace>(block, g, logits, grad_weights, begin, end));
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
