#pragma once
// Arguments of all operators of the attention, and their checks.
#include "attention/attention.h"
#include "common/bindings.h"

namespace fm {

struct AttentionArguments {
  const Tensor& bias;
  const std::optional<Tensor>& padding;
  const std::optional<Tensor>& counts;
  const std::optional<Tensor>& seed;
  int64_t function;
  bool causal;
  double scale, dropout, drop_key;
  int64_t queries, first_group, first_row;
};

struct BlockSize {
  int64_t groups, rows, columns;
};

// The block that the arguments describe, on the device of `first`. Raises an error for what the kernels cannot read.
AttentionBlock attention_block(Named first, BlockSize size, const AttentionArguments& arguments, const char* op);

void check_type(const Tensor& t, ScalarType type, const char* op, const char* name, const char* expected);

// A tensor, where there is one, that starts with all groups of the block and has so many columns.
void check_rows(const std::optional<Tensor>& t, const AttentionBlock& block, int64_t columns, const char* op,
                const char* name, const char* expected);

}  // namespace fm
