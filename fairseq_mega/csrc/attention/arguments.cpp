// Checks of the arguments that all operators of the attention have; see arguments.h.
#include "attention/arguments.h"

#include <cmath>

namespace fm {

void check_type(const Tensor& t, ScalarType type, const char* op, const char* name, const char* expected) {
  STD_TORCH_CHECK(t.scalar_type() == type && t.is_contiguous(), op, ": ", name, " must be contiguous ", expected);
}

void check_rows(const std::optional<Tensor>& t, const AttentionBlock& block, int64_t columns, const char* op,
                const char* name, const char* expected) {
  if (!t.has_value()) return;
  STD_TORCH_CHECK(t->dim() >= 2 && t->size(0) >= block.first_group + block.groups && t->size(1) == columns, op, ": ",
                  name, " must be ", expected);
}

AttentionBlock attention_block(Named first, BlockSize size, const AttentionArguments& a, const char* op) {
  check_devices(op, {first, {"bias", a.bias}, {"padding", a.padding}, {"counts", a.counts}, {"seed", a.seed}});
  check_type(a.bias, ScalarType::Float, op, "bias", "float32");
  STD_TORCH_CHECK(a.function >= 0 && a.function <= 2, op, ": function must be 0 (softmax), 1 (relu2) or 2 (laplace)");
  STD_TORCH_CHECK(a.dropout >= 0. && a.dropout <= 1., op, ": dropout must be a probability");
  STD_TORCH_CHECK(a.drop_key >= 0. && a.drop_key < 1., op, ": drop_key must be a probability below 1");
  STD_TORCH_CHECK(a.seed.has_value() == (a.dropout > 0. || a.drop_key > 0.), op,
                  ": a seed is needed exactly where something is dropped");
  AttentionBlock block{};
  block.groups = size.groups;
  block.rows = size.rows;
  block.columns = size.columns;
  block.first_group = a.first_group;
  block.first_row = a.first_row;
  block.queries = a.queries;
  block.keys = a.bias.numel() - a.queries + 1;
  STD_TORCH_CHECK(a.bias.dim() == 1 && block.keys >= 1, op, ": bias must be the queries + keys - 1 values");
  STD_TORCH_CHECK(a.first_group >= 0 && a.first_row >= 0 && a.first_row + block.rows <= block.queries &&
                      block.columns <= block.keys && block.keys <= INT32_MAX,
                  op, ": the block must lie within the queries and keys");
  const int64_t last = block.keys - block.queries + block.first_row + block.rows;  // keys that its last row may see
  STD_TORCH_CHECK(block.columns >= (a.causal ? last : block.keys), op, ": the block must hold all visible keys");
  STD_TORCH_CHECK(!a.causal || block.queries <= block.keys, op, ": a causal block needs as many keys as queries");
  STD_TORCH_CHECK(a.padding.has_value() == a.counts.has_value(), op, ": padding and counts belong together");
  check_rows(a.padding, block, block.keys, op, "padding", "(groups, keys)");
  check_rows(a.counts, block, block.queries, op, "counts", "(groups, queries)");
  if (a.padding.has_value()) {
    check_type(*a.padding, ScalarType::Bool, op, "padding", "bool");
    check_type(*a.counts, ScalarType::Int, op, "counts", "int32");
  }
  if (a.seed.has_value()) check_type(*a.seed, ScalarType::Long, op, "seed", "int64");
  block.function = static_cast<AttentionFunction>(a.function);
  block.causal = a.causal;
  block.scale = static_cast<float>(a.scale);
  STD_TORCH_CHECK(std::isfinite(block.scale) && (block.scale > 0.f || (a.scale == 0. && a.function != 0)), op,
                  ": scale must be positive in float32, or 0 for relu2 and laplace; found ", a.scale);
  block.bias = a.bias.const_data_ptr<float>();
  block.padding = data_or_null<bool>(a.padding);
  block.counts = data_or_null<int32_t>(a.counts);
  block.seed = data_or_null<int64_t>(a.seed);
  block.drop_key = static_cast<int32_t>(std::lround(a.drop_key * kHashes));
  block.drop = block.drop_key + static_cast<int32_t>(std::lround(a.dropout * (kHashes - block.drop_key)));
  block.kept = a.dropout < 1. ? static_cast<float>(1. / (1. - a.dropout)) : 0.f;
  return block;
}

}  // namespace fm
