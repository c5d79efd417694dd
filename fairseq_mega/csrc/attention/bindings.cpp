// Operators of the attention weights: shapes, types and memory; see attention.h for what they compute.
#include "attention/arguments.h"

namespace fm {
namespace {

constexpr const char* kForward = "attention_weights_";
constexpr const char* kBackward = "attention_weights_backward_";

AttentionBlock block_of(const Tensor& logits, const AttentionArguments& arguments, const char* op) {
  STD_TORCH_CHECK(logits.dim() == 3, op, ": logits must be (G, R, K)");
  check_type(logits, ScalarType::Float, op, "logits", "float32");
  return attention_block({"logits", logits}, {logits.size(0), logits.size(1), logits.size(2)}, arguments, op);
}

// (groups, queries, 2) float32 where the function is softmax.
AttentionStatistics* statistics_of(const Tensor& logits, const std::optional<Tensor>& statistics,
                                   const AttentionBlock& block, const char* op) {
  check_devices(op, {{"logits", logits}, {"statistics", statistics}});
  if (block.function != AttentionFunction::kSoftmax) return nullptr;
  STD_TORCH_CHECK(statistics.has_value(), op, ": softmax needs statistics");
  check_type(*statistics, ScalarType::Float, op, "statistics", "float32");
  STD_TORCH_CHECK(statistics->dim() == 3 && statistics->size(2) == 2, op, ": statistics must be (groups, queries, 2)");
  check_rows(statistics, block, block.queries, op, "statistics", "(groups, queries, 2)");
  return static_cast<AttentionStatistics*>(statistics->mutable_data_ptr());
}

AttentionGradients gradients_of(const Tensor& logits, const Tensor& grad_weights,
                                const std::optional<Tensor>& statistics, const std::optional<Tensor>& grad_bias,
                                const AttentionBlock& block) {
  check_devices(kBackward, {{"logits", logits}, {"grad_weights", grad_weights}, {"grad_bias", grad_bias}});
  check_type(grad_weights, ScalarType::Float, kBackward, "grad_weights", "float32");
  STD_TORCH_CHECK(grad_weights.dim() == 3 && grad_weights.size(0) == block.groups &&
                      grad_weights.size(1) == block.rows && grad_weights.size(2) == block.columns,
                  kBackward, ": grad_weights must have the shape of logits");
  const AttentionGradients gradients{statistics_of(logits, statistics, block, kBackward), nullptr};
  if (grad_bias.has_value()) {
    check_type(*grad_bias, ScalarType::Double, kBackward, "grad_bias", "float64");
    STD_TORCH_CHECK(grad_bias->numel() == block.queries + block.keys - 1, kBackward,
                    ": grad_bias must have the size of bias");
  }
  return gradients;
}

#if !defined(FM_CUDA_SIM)
int64_t grain(const AttentionBlock& block, int64_t tasks) {
  const int64_t per_task = block.groups * block.rows * block.columns / std::max<int64_t>(tasks, 1);
  return std::max<int64_t>(1, 8192 / std::max<int64_t>(per_task, 1));
}

void forward_cpu(Tensor logits, std::optional<Tensor> weights, Tensor bias, std::optional<Tensor> padding,
                 std::optional<Tensor> counts, std::optional<Tensor> seed, std::optional<Tensor> statistics,
                 int64_t function, bool causal, double scale, double dropout, double drop_key, int64_t queries,
                 int64_t first_group, int64_t first_row) {
  const AttentionBlock block = block_of(
      logits,
      {bias, padding, counts, seed, function, causal, scale, dropout, drop_key, queries, first_group, first_row},
      kForward);
  STD_TORCH_CHECK(!weights.has_value(), kForward, ": on the CPU the weights replace the logits");
  AttentionStatistics* found = statistics_of(logits, statistics, block, kForward);
  float* data = logits.mutable_data_ptr<float>();
  const int64_t tasks = attention_tasks_cpu(block);
  torch::stable::parallel_for(0, tasks, grain(block, tasks), [&](int64_t begin, int64_t end) {
    attention_weights_cpu(block, data, found, begin, end);
  });
}

void backward_cpu(Tensor logits, Tensor grad_weights, std::optional<Tensor> weights, std::optional<Tensor> grad_logits,
                  std::optional<Tensor> grad_bias, Tensor bias, std::optional<Tensor> padding,
                  std::optional<Tensor> counts, std::optional<Tensor> seed, std::optional<Tensor> statistics,
                  int64_t function, bool causal, double scale, double dropout,
                  double drop_key, int64_t queries, int64_t first_group, int64_t first_row) {
  const AttentionBlock block = block_of(
      logits,
      {bias, padding, counts, seed, function, causal, scale, dropout, drop_key, queries, first_group, first_row},
      kBackward);
  STD_TORCH_CHECK(!weights.has_value() && !grad_logits.has_value(), kBackward,
                  ": on the CPU the results replace the inputs");
  AttentionGradients gradients = gradients_of(logits, grad_weights, statistics, grad_bias, block);
  const Tensor partials = torch::stable::new_empty(logits, {attention_partials_cpu(block)});
  gradients.partials = partials.mutable_data_ptr<float>();
  float* data = logits.mutable_data_ptr<float>();
  float* grad = grad_weights.mutable_data_ptr<float>();
  const int64_t tasks = attention_tasks_cpu(block);
  torch::stable::parallel_for(0, tasks, grain(block, tasks), [&](int64_t begin, int64_t end) {
    attention_weights_backward_cpu(block, gradients, data, grad, begin, end);
  });
  if (grad_bias.has_value()) attention_bias_cpu(block, gradients.partials, grad_bias->mutable_data_ptr<double>());
}
#endif

#if defined(FM_WITH_CUDA)
// Where a result goes and in which type: its own tensor, or over the float32 tensor that it is computed from.
DType check_target(const std::optional<Tensor>& target, const Tensor& source, const char* op, const char* name) {
  if (!target.has_value()) return DType::kFloat32;
  check_devices(op, {{"logits", source}, {name, target}});
  STD_TORCH_CHECK(target->is_contiguous() && target->numel() == source.numel(), op, ": ", name,
                  " must be contiguous, with as many elements as logits");
  return element_type(*target, name);
}

void forward_cuda(Tensor logits, std::optional<Tensor> weights, Tensor bias, std::optional<Tensor> padding,
                  std::optional<Tensor> counts, std::optional<Tensor> seed, std::optional<Tensor> statistics,
                  int64_t function, bool causal, double scale, double dropout, double drop_key, int64_t queries,
                  int64_t first_group, int64_t first_row) {
  const AttentionBlock block = block_of(
      logits,
      {bias, padding, counts, seed, function, causal, scale, dropout, drop_key, queries, first_group, first_row},
      kForward);
  const DType dtype = check_target(weights, logits, kForward, "weights");
  void* target = weights.has_value() ? weights->mutable_data_ptr() : logits.mutable_data_ptr();
  const DeviceOf device(logits);
  const int error = attention_weights_cuda(block, dtype, logits.const_data_ptr<float>(), target,
                                           statistics_of(logits, statistics, block, kForward), current_stream(logits));
  check_cuda(kForward, error);
}

void backward_cuda(Tensor logits, Tensor grad_weights, std::optional<Tensor> weights,
                   std::optional<Tensor> grad_logits, std::optional<Tensor> grad_bias, Tensor bias,
                   std::optional<Tensor> padding, std::optional<Tensor> counts, std::optional<Tensor> seed,
                   std::optional<Tensor> statistics, int64_t function, bool causal,
                   double scale, double dropout, double drop_key, int64_t queries, int64_t first_group,
                   int64_t first_row) {
  const AttentionBlock block = block_of(
      logits,
      {bias, padding, counts, seed, function, causal, scale, dropout, drop_key, queries, first_group, first_row},
      kBackward);
  AttentionGradients gradients = gradients_of(logits, grad_weights, statistics, grad_bias, block);
  const DType dtype = check_target(weights, logits, kBackward, "weights");
  STD_TORCH_CHECK(check_target(grad_logits, logits, kBackward, "grad_logits") == dtype, kBackward,
                  ": weights and grad_logits must have one type");
  void* target = weights.has_value() ? weights->mutable_data_ptr() : logits.mutable_data_ptr();
  void* grad_target = grad_logits.has_value() ? grad_logits->mutable_data_ptr() : grad_weights.mutable_data_ptr();
  const DeviceOf device(logits);
  const Tensor partials =
      torch::stable::new_empty(logits, {grad_bias.has_value() ? attention_partials_cuda(block) : 0});
  if (grad_bias.has_value()) gradients.partials = partials.mutable_data_ptr<float>();
  void* stream = current_stream(logits);
  int error = attention_weights_backward_cuda(block, gradients, dtype, logits.const_data_ptr<float>(),
                                              grad_weights.mutable_data_ptr<float>(), target, grad_target, stream);
  if (error == 0 && grad_bias.has_value()) {
    error = attention_bias_cuda(block, gradients.partials, grad_bias->mutable_data_ptr<double>(), stream);
  }
  check_cuda(kBackward, error);
}
#endif

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "attention_weights_(Tensor(a!) logits, Tensor(b!)? weights, Tensor bias, Tensor? padding, Tensor? counts, "
      "Tensor? seed, Tensor(c!)? statistics, int function, bool causal, float scale, float dropout, float drop_key, "
      "int queries, int first_group, int first_row) -> ()");
  m.def(
      "attention_weights_backward_(Tensor(a!) logits, Tensor(b!) grad_weights, Tensor(c!)? weights, "
      "Tensor(d!)? grad_logits, Tensor(e!)? grad_bias, Tensor bias, Tensor? padding, Tensor? counts, Tensor? seed, "
      "Tensor? statistics, int function, bool causal, float scale, float dropout, float drop_key, "
      "int queries, int first_group, int first_row) -> ()");
}

#if !defined(FM_CUDA_SIM)
FM_LIBRARY_CPU(m) {
  m.impl("attention_weights_", TORCH_BOX(&fm::forward_cpu));
  m.impl("attention_weights_backward_", TORCH_BOX(&fm::backward_cpu));
}
#endif

#if defined(FM_WITH_CUDA)
FM_LIBRARY_CUDA(m) {
  m.impl("attention_weights_", TORCH_BOX(&fm::forward_cuda));
  m.impl("attention_weights_backward_", TORCH_BOX(&fm::backward_cuda));
}
#endif
