#pragma once
// What the forward and the backward pass of blocks.h share: memory, and the tensors of one group as factors.
#include <algorithm>
#include <cstring>

#include "attention/blocks.h"

namespace fm {

// Hands out pieces of one allocation, each at the beginning of a cache line.
class Pieces {
 public:
  explicit Pieces(float* memory) : memory_(memory) {}
  float* floats(int64_t size) {
    float* piece = memory_ ? memory_ + used_ : nullptr;
    used_ += round_up(size, 16);
    return piece;
  }
  uint32_t* words(int64_t size) { return reinterpret_cast<uint32_t*>(floats(size)); }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

// Queries of a block: its logits fill a part of the cache, two rows form pairs.
inline int64_t block_rows(const AttentionGroups& g) {
  const int64_t fitting = (int64_t{1} << 16) / std::max<int64_t>(g.call.keys, 1) / 2 * 2;
  return std::clamp<int64_t>(fitting, product_least_rows_cpu(), 64);
}

// Keys that the queries before `stop` see at most.
inline int64_t seen_before(const AttentionBlock& call, int64_t stop) {
  return call.causal ? call.keys - call.queries + stop : call.keys;
}

inline AttentionBlock block_at(const AttentionBlock& call, int64_t group, int64_t first, int64_t rows) {
  AttentionBlock block = call;
  block.groups = 1;
  block.first_group = group;
  block.first_row = first;
  block.rows = rows;
  block.columns = seen_before(call, first + rows);
  return block;
}

// Matrices of one group as factors of products.
class Factors {
 public:
  explicit Factors(const AttentionGroups& g) : word_(g.word), dtype_(g.dtype) {}

  Word word() const { return word_; }
  int64_t words(int64_t steps) const { return words_of(steps, word_); }
  int64_t panels(int64_t columns, int64_t steps) const { return round_up(columns, kPanel) * words(steps); }

  // Floats that `matrix` needs for a matrix of so many elements.
  int64_t wide(int64_t size) const { return word_ == Word::kFloat && dtype_ != DType::kFloat32 ? size : 0; }

  // Matrix number `index` of a tensor, as rows of words.
  const uint32_t* matrix(const void* tensor, int64_t index, int64_t size, float* room) const {
    const int64_t bytes = dtype_ == DType::kFloat32 ? 4 : 2;
    const void* found = static_cast<const char*>(tensor) + index * size * bytes;
    if (wide(size) == 0) return static_cast<const uint32_t*>(found);
    widen_cpu(found, dtype_, size, room);
    return reinterpret_cast<const uint32_t*>(room);
  }

  // Panels whose steps are the rows, or the columns, of a matrix.
  void pack_rows(const uint32_t* matrix, int64_t rows, int64_t columns, uint32_t* out) const {
    const int64_t panel = words(rows) * kPanel;
    if (word_ == Word::kFloat) {
      return pack_floats_cpu(reinterpret_cast<const float*>(matrix), columns, rows, columns, out, panel);
    }
    pack_pairs_cpu(reinterpret_cast<const uint16_t*>(matrix), columns, rows, columns, out, panel);
  }
  void pack_columns(const uint32_t* matrix, int64_t rows, int64_t columns, uint32_t* out) const {
    pack_transposed_cpu(matrix, rows, words(columns), out);
  }

  // Results of the weights' kernels, floats, as rows of words.
  const uint32_t* rows(const float* found, int64_t count, int64_t columns, uint32_t* room) const {
    if (word_ == Word::kFloat) return reinterpret_cast<const uint32_t*>(found);
    round_rows_cpu(found, count, columns, room);
    return room;
  }
  int64_t rounded(int64_t count, int64_t columns) const {
    return word_ == Word::kFloat ? 0 : count * words(columns);
  }

  // Where a product puts matrix number `index` of a tensor: there, or into `room` until `finish`.
  int64_t narrowed(int64_t size) const { return dtype_ == DType::kFloat32 ? 0 : size; }
  float* target(void* tensor, int64_t offset, float* room) const {
    return dtype_ == DType::kFloat32 ? static_cast<float*>(tensor) + offset : room;
  }
  void finish(void* tensor, int64_t offset, int64_t size, const float* room) const {
    if (dtype_ != DType::kFloat32) narrow_cpu(room, size, dtype_, static_cast<uint16_t*>(tensor) + offset);
  }

 private:
  Word word_;
  DType dtype_;
};

}  // namespace fm
