// Operators of the cross entropy: shapes, strides and memory; see cross_entropy.h. There are kernels for CPUs only.
#include "common/bindings.h"

#if defined(FM_LIBRARY_CPU)
#include "cross_entropy/cross_entropy.h"

namespace fm {
namespace {

struct Call {
  CrossEntropy inputs;
  RowView logits;
  Tensor targets;

  int64_t grain() const { return std::max<int64_t>(1, 32768 / std::max<int64_t>(inputs.symbols, 1)); }
};

Call call_of(const Tensor& logits, const Tensor& target, const char* op) {
  STD_TORCH_CHECK(logits.dim() == 2 && logits.size(1) > 0, op, ": the logits must be (rows, symbols)");
  STD_TORCH_CHECK(target.dim() == 1 && target.size(0) == logits.size(0) && target.scalar_type() == ScalarType::Long, op,
                  ": the targets must be one int64 for each row");
  check_devices(op, {{"logits", logits}, {"target", target}});
  Call call{{}, rows_of(logits), packed(target)};
  call.inputs = {logits.size(0), logits.size(1), element_type(logits, "logits"), call.logits.tensor.const_data_ptr(),
                 call.logits.stride, call.targets.const_data_ptr<int64_t>()};
  for (int64_t i = 0; i < call.inputs.rows; ++i) {
    const int64_t found = call.inputs.targets[i];
    STD_TORCH_CHECK(found >= 0 && found < call.inputs.symbols, op, ": target ", found, " is none of the ",
                    call.inputs.symbols, " symbols");
  }
  return call;
}

std::tuple<Tensor, Tensor, Tensor> cross_entropy(Tensor logits, Tensor target) {
  const Call call = call_of(logits, target, "cross_entropy");
  const int64_t rows = call.inputs.rows;
  Tensor nll = torch::stable::new_empty(logits, {rows}, ScalarType::Float), smooth = like(nll);
  Tensor statistics = torch::stable::new_empty(logits, {rows, 2}, ScalarType::Float);
  const RowLosses out{nll.mutable_data_ptr<float>(), smooth.mutable_data_ptr<float>(),
                      statistics.mutable_data_ptr<float>()};
  torch::stable::parallel_for(0, rows, call.grain(), [&](int64_t begin, int64_t end) {
    cross_entropy_forward_cpu(call.inputs, out, begin, end);
  });
  return {nll, smooth, statistics};
}

Tensor cross_entropy_backward(Tensor grad_nll, Tensor grad_smooth, Tensor logits, Tensor target, Tensor statistics) {
  const char* op = "cross_entropy_backward";
  const Call call = call_of(logits, target, op);
  const Named rows[] = {{"grad_nll", grad_nll}, {"grad_smooth", grad_smooth}, {"statistics", statistics}};
  for (const Named& row : rows) {
    check_devices(op, {{"logits", logits}, row});
    const int64_t numbers = (row.tensor == &statistics ? 2 : 1) * call.inputs.rows;
    STD_TORCH_CHECK(row.tensor->scalar_type() == ScalarType::Float && row.tensor->numel() == numbers, op, ": ",
                    row.name, " must have ", numbers, " numbers of float32");
  }
  const Tensor nll = packed(grad_nll), smooth = packed(grad_smooth), kept = packed(statistics);
  Tensor grad = like(logits);
  const RowGradients gradients{nll.const_data_ptr<float>(), smooth.const_data_ptr<float>(),
                               kept.const_data_ptr<float>(), grad.mutable_data_ptr()};
  torch::stable::parallel_for(0, call.inputs.rows, call.grain(), [&](int64_t begin, int64_t end) {
    cross_entropy_backward_cpu(call.inputs, gradients, begin, end);
  });
  return grad;
}

}  // namespace
}  // namespace fm
#endif

FM_LIBRARY(m) {
  m.def("cross_entropy(Tensor logits, Tensor target) -> (Tensor, Tensor, Tensor)");
  m.def(
      "cross_entropy_backward(Tensor grad_nll, Tensor grad_smooth, Tensor logits, Tensor target, Tensor statistics) -> "
      "Tensor");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("cross_entropy", TORCH_BOX(&fm::cross_entropy));
  m.impl("cross_entropy_backward", TORCH_BOX(&fm::cross_entropy_backward));
}
#endif
