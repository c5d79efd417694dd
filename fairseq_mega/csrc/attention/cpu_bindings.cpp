// Operators of the attention of whole groups on the CPU: shapes, types and memory; see blocks.h.
#include "attention/arguments.h"
#include "attention/blocks.h"

namespace fm {
namespace {

// The tensors of a call, packed, which the pointers in `groups` are those of.
struct Call {
  Tensor q, k, v, bias;
  std::optional<Tensor> padding, counts, seed;
  AttentionGroups groups;
};

// Arguments of both operators.
struct Arguments {
  const Tensor &q, &k, &v;
  const std::optional<Tensor>&bias, &padding, &counts, &seed;
  int64_t function;
  bool causal;
  double scale, dropout, drop_key;
};

Call call_of(const Arguments& arguments, const char* op) {
  const auto& [q, k, v, bias, padding, counts, seed, function, causal, scale, dropout, drop_key] = arguments;
  check_devices(op, {{"q", q}, {"k", k}, {"v", v}});
  STD_TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && v.dim() == 3 && k.size(0) == q.size(0) && v.size(0) == q.size(0) &&
                      k.size(2) == q.size(2) && v.size(1) == k.size(1),
                  op, ": q, k and v must be (groups, queries, z), (groups, keys, z) and (groups, keys, v)");
  STD_TORCH_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(), op,
                  ": q, k and v must have one type");
  const int64_t queries = q.size(1), keys = k.size(1);
  STD_TORCH_CHECK(q.numel() > 0 && keys > 0 && v.size(2) > 0, op, ": q, k and v must not be empty");
  STD_TORCH_CHECK(!bias.has_value() || (bias->dim() == 1 && bias->size(0) == queries + keys - 1), op,
                  ": bias must be the queries + keys - 1 values");
  Call call{packed(q), packed(k), packed(v), q, packed(padding), packed(counts), seed, {}};
  if (bias.has_value()) {
    call.bias = packed(*bias);
  } else {
    call.bias = torch::stable::new_empty(q, {queries + keys - 1}, ScalarType::Float);
    torch::stable::zero_(call.bias);
  }
  AttentionGroups& groups = call.groups;
  groups.call = attention_block(
      {"q", q}, {q.size(0), queries, keys},
      {call.bias, call.padding, call.counts, seed, function, causal, scale, dropout, drop_key, queries, 0, 0}, op);
  groups.dtype = element_type(q, "q");
  groups.z = q.size(2);
  groups.v = v.size(2);
  groups.word = attention_word_cpu(groups.dtype, groups.z, groups.v);
  groups.q = call.q.const_data_ptr();
  groups.k = call.k.const_data_ptr();
  groups.values = call.v.const_data_ptr();
  return call;
}

// Calls work(memory, begin, end) for parts of the groups; every thread allocates its own floats.
template <class Work>
void for_groups(const Call& call, int64_t floats, Work work) {
  torch::stable::parallel_for(0, call.groups.call.groups, 1, [&](int64_t begin, int64_t end) {
    Tensor memory = torch::stable::new_empty(call.q, {floats}, ScalarType::Float);
    work(memory.mutable_data_ptr<float>(), begin, end);
  });
}

std::tuple<Tensor, Tensor> forward(Tensor q, Tensor k, Tensor v, std::optional<Tensor> bias,
                                   std::optional<Tensor> padding, std::optional<Tensor> counts,
                                   std::optional<Tensor> seed, int64_t function, bool causal, double scale,
                                   double dropout, double drop_key) {
  Call call = call_of({q, k, v, bias, padding, counts, seed, function, causal, scale, dropout, drop_key},
                      "attention_groups");
  AttentionGroups& groups = call.groups;
  const bool softmax = groups.call.function == AttentionFunction::kSoftmax;
  Tensor out = torch::stable::new_empty(v, {q.size(0), q.size(1), v.size(2)});
  Tensor statistics = torch::stable::new_empty(q, {q.size(0), softmax ? q.size(1) : 0, 2}, ScalarType::Float);
  if (softmax) groups.statistics = static_cast<AttentionStatistics*>(statistics.mutable_data_ptr());
  void* target = out.mutable_data_ptr();
  for_groups(call, attention_forward_memory_cpu(groups), [&](float* memory, int64_t begin, int64_t end) {
    attention_forward_cpu(groups, target, memory, begin, end);
  });
  return {out, statistics};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(Tensor grad_out, Tensor q, Tensor k, Tensor v,
                                                    std::optional<Tensor> bias, std::optional<Tensor> padding,
                                                    std::optional<Tensor> counts, std::optional<Tensor> seed,
                                                    Tensor statistics, int64_t function, bool causal, double scale,
                                                    double dropout, double drop_key) {
  const char* op = "attention_groups_backward";
  Call call = call_of({q, k, v, bias, padding, counts, seed, function, causal, scale, dropout, drop_key}, op);
  AttentionGroups& groups = call.groups;
  check_devices(op, {{"q", q}, {"grad_out", grad_out}, {"statistics", statistics}});
  STD_TORCH_CHECK(grad_out.scalar_type() == v.scalar_type() && grad_out.dim() == 3 && grad_out.size(0) == q.size(0) &&
                      grad_out.size(1) == q.size(1) && grad_out.size(2) == v.size(2),
                  op, ": grad_out must have the shape and type of the result");
  if (groups.call.function == AttentionFunction::kSoftmax) {
    check_type(statistics, ScalarType::Float, op, "statistics", "float32");
    STD_TORCH_CHECK(statistics.dim() == 3 && statistics.size(0) == q.size(0) && statistics.size(1) == q.size(1) &&
                        statistics.size(2) == 2,
                    op, ": statistics must be (groups, queries, 2)");
    groups.statistics = static_cast<AttentionStatistics*>(statistics.mutable_data_ptr());
  }
  const Tensor grad = packed(grad_out);
  const int64_t diagonals = q.size(1) + k.size(1) - 1;
  Tensor grad_q = torch::stable::new_empty(q, {q.size(0), q.size(1), q.size(2)});
  Tensor grad_k = torch::stable::new_empty(k, {k.size(0), k.size(1), k.size(2)});
  Tensor grad_v = torch::stable::new_empty(v, {v.size(0), v.size(1), v.size(2)});
  Tensor grad_bias = torch::stable::new_empty(q, {bias.has_value() ? diagonals : 0}, ScalarType::Float);
  Tensor sums = torch::stable::new_empty(q, {bias.has_value() ? q.size(0) : 0, diagonals}, ScalarType::Double);
  torch::stable::zero_(sums);
  double* sum = bias.has_value() ? sums.mutable_data_ptr<double>() : nullptr;
  const AttentionGroupGradients gradients{grad.const_data_ptr(), grad_q.mutable_data_ptr(), grad_k.mutable_data_ptr(),
                                          grad_v.mutable_data_ptr(), sum};
  for_groups(call, attention_backward_memory_cpu(groups), [&](float* memory, int64_t begin, int64_t end) {
    attention_backward_cpu(groups, gradients, memory, begin, end);
  });
  if (sum) {  // in the order of the groups, whichever threads they were computed by
    float* found = grad_bias.mutable_data_ptr<float>();
    for (int64_t d = 0; d < diagonals; ++d) {
      for (int64_t group = 1; group < q.size(0); ++group) sum[d] += sum[group * diagonals + d];
      found[d] = static_cast<float>(sum[d]);
    }
  }
  return {grad_q, grad_k, grad_v, grad_bias};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "attention_groups(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? padding, Tensor? counts, Tensor? seed, "
      "int function, bool causal, float scale, float dropout, float drop_key) -> (Tensor, Tensor)");
  m.def(
      "attention_groups_backward(Tensor grad_out, Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? padding, "
      "Tensor? counts, Tensor? seed, Tensor statistics, int function, bool causal, float scale, float dropout, "
      "float drop_key) -> (Tensor, Tensor, Tensor, Tensor)");
}

FM_LIBRARY_CPU(m) {
  m.impl("attention_groups", TORCH_BOX(&fm::forward));
  m.impl("attention_groups_backward", TORCH_BOX(&fm::backward));
}
