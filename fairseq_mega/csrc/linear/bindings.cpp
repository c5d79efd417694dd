// Operators of linear maps on the CPU: shapes, types, threads and memory; see linear.h.
#include "common/bindings.h"

FM_LIBRARY(m) {
  m.def("multiply_add_registers(int rounds) -> int");
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  m.def(
      "linear_backward(Tensor grad, Tensor x, Tensor weight, bool need_x, bool need_weight, bool need_bias) -> "
      "(Tensor, Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
#include "linear/linear.h"

namespace fm {
namespace {

constexpr int64_t kWork = 1 << 20;    // multiplications that are worth a thread
constexpr int64_t kPacked = 1 << 20;  // words of a factor that are packed at once

DType product_type(const Tensor& t, const char* op, const char* name) {
  STD_TORCH_CHECK(t.scalar_type() == ScalarType::Float || t.scalar_type() == ScalarType::BFloat16, op, ": ", name,
                  " must be float32 or bfloat16");
  return element_type(t, name);
}

// A matrix whose rows may lie apart, and the tensor that keeps its numbers.
struct Kept {
  RowView view;
  Matrix matrix;
};

Kept matrix_of(const Tensor& t, const char* op, const char* name) {
  STD_TORCH_CHECK(t.dim() == 2, op, ": ", name, " must be a matrix");
  const DType dtype = product_type(t, op, name);
  Kept kept{rows_of(t), {}};
  kept.matrix = {kept.view.tensor.const_data_ptr(), kept.view.stride, dtype};
  return kept;
}

int64_t grain(int64_t work) { return std::max<int64_t>(1, kWork / std::max<int64_t>(work, 1)); }

Tensor floats(const Tensor& like, int64_t size) { return torch::stable::new_empty(like, {size}, ScalarType::Float); }

uint32_t* words(Tensor& memory) { return static_cast<uint32_t*>(memory.mutable_data_ptr()); }

// Packs a part of the factor's panels, with which all rows are multiplied: threads share the panels, then the rows.
void multiply(const LinearRows& call, const Tensor& like) {
  const int64_t panels = call.panels(), blocks = (call.rows + kLinearRows - 1) / kLinearRows;
  const int64_t part = std::clamp<int64_t>(kPacked / std::max<int64_t>(call.panel_words(), 1), 1, panels);
  Tensor packed_factor = floats(like, part * call.panel_words());
  for (int64_t first = 0; first < panels; first += part) {
    const int64_t last = std::min(first + part, panels);
    torch::stable::parallel_for(first, last, grain(call.panel_words()), [&](int64_t begin, int64_t end) {
      pack_linear_cpu(call, begin, end, words(packed_factor) + (begin - first) * call.panel_words());
    });
    const int64_t width = (last - first) * kPanel;
    torch::stable::parallel_for(
        0, blocks, grain(kLinearRows * width * call.steps), [&](int64_t begin, int64_t end) {
          Tensor memory = floats(like, call.block_floats(width));
          linear_rows_cpu(call, words(packed_factor), first, last, begin, end, memory.mutable_data_ptr<float>());
        });
  }
}

Tensor linear(Tensor x, Tensor weight, std::optional<Tensor> bias) {
  const char* op = "linear";
  check_devices(op, {{"x", x}, {"weight", weight}, {"bias", bias}});
  const Tensor w = packed(weight);
  const Kept inputs = matrix_of(x, op, "x"), factor = matrix_of(w, op, "weight");
  const int64_t rows = x.size(0), width = x.size(1), outputs = w.size(0);
  STD_TORCH_CHECK(w.size(1) == width, op, ": weight must be (outputs, inputs) with ", width, " inputs");
  Tensor y = torch::stable::new_empty(x, {rows, outputs});
  std::vector<float> start;
  if (bias.has_value()) {
    product_type(*bias, op, "bias");
    STD_TORCH_CHECK(bias->dim() == 1 && bias->size(0) == outputs, op, ": bias must be (outputs)");
    const Tensor b = packed(*bias);
    start.resize(static_cast<size_t>(round_up(outputs, kPanel)));
    if (b.scalar_type() == ScalarType::Float) {
      std::copy_n(b.const_data_ptr<float>(), outputs, start.data());
    } else {
      widen_cpu(b.const_data_ptr(), DType::kBFloat16, outputs, start.data());
    }
  }
  const Word word = linear_word_cpu(inputs.matrix.dtype, width, outputs);
  if (rows > 0 && outputs > 0) {
    multiply({inputs.matrix, factor.matrix, true, bias.has_value() ? start.data() : nullptr, y.mutable_data_ptr(),
              rows, width, outputs, word},
             x);
  }
  return y;
}

std::tuple<Tensor, Tensor, Tensor> backward(Tensor grad, Tensor x, Tensor weight, bool need_x, bool need_weight,
                                            bool need_bias) {
  const char* op = "linear_backward";
  check_devices(op, {{"grad", grad}, {"x", x}, {"weight", weight}});
  const Tensor w = packed(weight);
  const Kept gradients = matrix_of(grad, op, "grad"), inputs = matrix_of(x, op, "x");
  const Kept factor = matrix_of(w, op, "weight");
  const int64_t rows = x.size(0), width = x.size(1), outputs = w.size(0);
  STD_TORCH_CHECK(w.size(1) == width && grad.size(0) == rows && grad.size(1) == outputs, op,
                  ": grad must be (rows, outputs), x (rows, inputs) and weight (outputs, inputs)");
  STD_TORCH_CHECK(grad.scalar_type() == x.scalar_type(), op, ": grad and x must have one type");
  const Word word = linear_word_cpu(inputs.matrix.dtype, width, outputs);
  const bool sums = need_weight || need_bias;
  Tensor grad_x = torch::stable::new_empty(x, {need_x ? rows : 0, width});
  Tensor grad_weight = torch::stable::new_empty(w, {sums ? outputs : 0, width});
  Tensor grad_bias = floats(x, need_bias ? outputs : 0);
  if (rows == 0 || outputs == 0 || width == 0) {
    for (Tensor* t : {&grad_x, &grad_weight, &grad_bias}) torch::stable::zero_(*t);
    return {grad_x, grad_weight, grad_bias};
  }
  if (need_x) {
    void* found = grad_x.mutable_data_ptr();
    multiply({gradients.matrix, factor.matrix, false, nullptr, found, rows, outputs, width, word}, x);
  }
  if (sums) {
    const LinearWeight call{gradients.matrix, inputs.matrix, grad_weight.mutable_data_ptr(), factor.matrix.dtype,
                            need_bias ? grad_bias.mutable_data_ptr<float>() : nullptr, rows, outputs, width, word};
    const int64_t work = rows * kPanel * (call.by_outputs() ? width : outputs);
    torch::stable::parallel_for(0, call.panels(), grain(work), [&](int64_t begin, int64_t end) {
      Tensor memory = floats(x, call.floats(end - begin));
      linear_weight_cpu(call, begin, end, memory.mutable_data_ptr<float>());
    });
  }
  return {grad_x, grad_weight, grad_bias};
}

// Multiplies and adds numbers in registers; returns how many operations these were.
int64_t multiply_add_registers(int64_t rounds) { return multiply_add_registers_cpu(rounds); }

}  // namespace
}  // namespace fm

FM_LIBRARY_IMPL_(FM_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("multiply_add_registers", TORCH_BOX(&fm::multiply_add_registers));
}

FM_LIBRARY_CPU(m) {
  m.impl("linear", TORCH_BOX(&fm::linear));
  m.impl("linear_backward", TORCH_BOX(&fm::backward));
}
#endif
