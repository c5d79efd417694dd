// Operators of linear maps: shapes, types, threads and memory; see linear.h for those on the CPU, join.h for that on the GPU.
#include <numeric>

#include "common/row_bindings.h"
#include "linear/join.h"

FM_LIBRARY(m) {
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  m.def(
      "linear_backward(Tensor grad, Tensor x, Tensor weight, bool need_x, bool need_weight, bool need_bias) -> "
      "(Tensor, Tensor, Tensor)");
  m.def(
      "linear_parts(Tensor x, Tensor weight, Tensor? bias, int second, int third, int fourth) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "linear_parts_backward(Tensor first, Tensor second, Tensor third, Tensor fourth, Tensor x, Tensor weight, "
      "bool need_x, bool need_weight, bool need_bias) -> (Tensor, Tensor, Tensor)");
  m.def("silu_linear(Tensor x, Tensor? factor, Tensor weight, Tensor? bias) -> Tensor");
  m.def(
      "silu_linear_backward(Tensor grad, Tensor x, Tensor? factor, Tensor weight, bool need_x, bool need_weight, "
      "bool need_bias) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("join_parts(Tensor first, Tensor? second, Tensor? third, Tensor? fourth) -> (Tensor, Tensor)");
}

#if defined(FM_WITH_CUDA)
namespace fm {
namespace {

std::tuple<Tensor, Tensor> join_parts(Tensor first, std::optional<Tensor> second, std::optional<Tensor> third,
                                      std::optional<Tensor> fourth) {
  const char* op = "join_parts";
  RowParts shape = row_parts(first, op);
  const int64_t rows = shape.rows;
  std::vector<RowView> views;
  JoinedParts joined{};
  shape.width = 0;
  for (const std::optional<Tensor>& part : {std::optional<Tensor>(first), second, third, fourth}) {
    if (!part) continue;
    check_devices(op, {{"first", first}, {"a part", *part}});
    STD_TORCH_CHECK(part->scalar_type() == first.scalar_type() && row_parts(*part, op).rows == rows, op,
                    ": parts must be of one type and of as many rows");
    views.push_back(rows_of(*part));
    joined.begins[views.size() - 1] = shape.width;
    joined.parts[views.size() - 1] = rows_in(views.back());
    shape.width += part->size(part->dim() - 1);
  }
  std::fill(joined.begins + views.size(), joined.begins + kMostJoined, shape.width);
  Tensor out = torch::stable::new_empty(first, {rows, shape.width});
  DeviceOf guard(first);
  const CudaSums sums(torch::stable::new_empty(first, {shape.parts(), shape.width}, ScalarType::Float), {shape.width},
                      row_tiles(shape));
  return {out, sums.by(op, shape, [&](void* stream) {
            return join_parts_cuda(shape, joined, out.mutable_data_ptr(), sums.memory, stream);
          })};
}

}  // namespace
}  // namespace fm

FM_LIBRARY_CUDA(m) { m.impl("join_parts", TORCH_BOX(&fm::join_parts)); }
#endif

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

// Matrices of as many rows, whose columns are read as those of one, and the tensors that own their memory.
struct Kept {
  std::vector<RowView> views;
  Columns columns{};

  Kept(const std::vector<Tensor>& tensors, const char* op, const char* name) {
    for (const Tensor& t : tensors) {
      STD_TORCH_CHECK(t.dim() == 2 && t.size(0) == tensors[0].size(0), op, ": ", name, " must be a matrix");
      STD_TORCH_CHECK(t.scalar_type() == tensors[0].scalar_type(), op, ": ", name, " must be of one type");
      if (!views.empty() && t.size(1) == 0) continue;
      STD_TORCH_CHECK(width() % kPanel == 0, op, ": all parts of ", name, " but the last must be multiples of ", kPanel,
                      " wide");
      const DType dtype = product_type(t, op, name);
      views.push_back(rows_of(t));
      columns.parts[columns.count] = {views.back().tensor.const_data_ptr(), views.back().stride, dtype};
      columns.widths[columns.count++] = t.size(1);
    }
  }

  int64_t width() const { return std::accumulate(columns.widths, columns.widths + columns.count, int64_t{0}); }
  const Matrix& matrix() const { return columns.parts[0]; }
};

int64_t grain(int64_t work) { return std::max<int64_t>(1, kWork / std::max<int64_t>(work, 1)); }

Tensor floats(const Tensor& like, int64_t size) { return torch::stable::new_empty(like, {size}, ScalarType::Float); }

uint32_t* words(Tensor& memory) { return static_cast<uint32_t*>(memory.mutable_data_ptr()); }

// Packs a part of the factor's panels, with which all rows are multiplied: threads share the panels, then the rows.
void multiply(const LinearRows& call, const Tensor& like) {
  const int64_t panels = call.panels(), blocks = (call.rows + call.block_rows() - 1) / call.block_rows();
  const int64_t part = std::clamp<int64_t>(kPacked / std::max<int64_t>(call.panel_words(), 1), 1, panels);
  Tensor packed_factor = floats(like, part * call.panel_words());
  for (int64_t first = 0; first < panels; first += part) {
    const int64_t last = std::min(first + part, panels);
    torch::stable::parallel_for(first, last, grain(call.panel_words()), [&](int64_t begin, int64_t end) {
      pack_linear_cpu(call, begin, end, words(packed_factor) + (begin - first) * call.panel_words());
    });
    const int64_t width = (last - first) * kPanel;
    torch::stable::parallel_for(
        0, blocks, grain(call.block_rows() * width * call.steps), [&](int64_t begin, int64_t end) {
          Tensor memory = floats(like, call.block_floats(width));
          linear_rows_cpu(call, words(packed_factor), first, last, begin, end, memory.mutable_data_ptr<float>());
        });
  }
}

// Logits and factor of a map's inputs, and what keeps their numbers.
struct SiluViews {
  RowView x;
  std::optional<RowView> factor;
  SiluRows rows{};

  SiluViews(const Tensor& logits, const std::optional<Tensor>& by, const char* op) : x(rows_of(logits)) {
    const DType dtype = product_type(logits, op, "x");
    check_devices(op, {{"x", logits}, {"factor", by}});
    rows.logits = {x.tensor.const_data_ptr(), x.stride, dtype};
    if (!by) return;
    STD_TORCH_CHECK(same_shape(*by, logits) && by->scalar_type() == logits.scalar_type(), op,
                    ": factor must have the shape and type of x");
    factor = rows_of(*by);
    rows.factor = {factor->tensor.const_data_ptr(), factor->stride, dtype};
  }
};

// x W^T + bias, whose columns are those of the tensors of these widths; x is the logits where there are such.
std::vector<Tensor> forward(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                            const std::vector<int64_t>& widths, const char* op, const SiluRows* x_of = nullptr) {
  check_devices(op, {{"x", x}, {"weight", weight}, {"bias", bias}});
  const Tensor w = packed(weight);
  const Kept inputs({x}, op, "x"), factor({w}, op, "weight");
  const int64_t rows = x.size(0), width = x.size(1), outputs = w.size(0);
  STD_TORCH_CHECK(w.size(1) == width, op, ": weight must be (outputs, inputs) with ", width, " inputs");
  std::vector<Tensor> found;
  for (const int64_t part : widths) found.push_back(torch::stable::new_empty(x, {rows, part}));
  const Kept y(found, op, "the result");
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
  const Word word = linear_word_cpu(inputs.matrix().dtype, width, outputs);
  if (rows > 0 && outputs > 0) {
    multiply({inputs.columns, factor.matrix(), true, bias.has_value() ? start.data() : nullptr, y.columns, rows, width,
              outputs, word, x_of},
             x);
  }
  return found;
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;  // of x, weight and bias

// The gradients of such a map; that of x goes through the SiLU where `of` says where.
Gradients backward(const std::vector<Tensor>& grads, const Tensor& x, const Tensor& weight, bool need_x,
                   bool need_weight, bool need_bias, const char* op, SiluRows* of = nullptr) {
  for (const Tensor& grad : grads) check_devices(op, {{"grad", grad}, {"x", x}, {"weight", weight}});
  const Tensor w = packed(weight);
  const Kept gradients(grads, op, "grad"), inputs({x}, op, "x"), factor({w}, op, "weight");
  const int64_t rows = x.size(0), width = x.size(1), outputs = w.size(0);
  STD_TORCH_CHECK(w.size(1) == width && grads[0].size(0) == rows && gradients.width() == outputs, op,
                  ": grad must be (rows, outputs), x (rows, inputs) and weight (outputs, inputs)");
  STD_TORCH_CHECK(grads[0].scalar_type() == x.scalar_type(), op, ": grad and x must have one type");
  const Word word = linear_word_cpu(inputs.matrix().dtype, width, outputs);
  const bool sums = need_weight || need_bias;
  Tensor grad_x = torch::stable::new_empty(x, {need_x ? rows : 0, width});
  Tensor grad_weight = torch::stable::new_empty(w, {sums ? outputs : 0, width});
  Tensor grad_bias = floats(x, need_bias ? outputs : 0);
  if (rows == 0 || outputs == 0 || width == 0) {
    for (Tensor* t : {&grad_x, &grad_weight, &grad_bias}) torch::stable::zero_(*t);
    return {grad_x, grad_weight, grad_bias};
  }
  if (need_x) {
    const Kept found({grad_x}, op, "the gradient");
    if (of) of->grad_logits = found.matrix();
    multiply({gradients.columns, factor.matrix(), false, nullptr, found.columns, rows, outputs, width, word, nullptr,
              of},
             x);
  }
  if (sums) {
    const LinearWeight call{gradients.columns, inputs.matrix(), grad_weight.mutable_data_ptr(), factor.matrix().dtype,
                            need_bias ? grad_bias.mutable_data_ptr<float>() : nullptr, rows, outputs, width, word, of};
    const int64_t work = rows * kPanel * (call.by_outputs() ? width : outputs);
    torch::stable::parallel_for(0, call.panels(), grain(work), [&](int64_t begin, int64_t end) {
      Tensor memory = floats(x, call.floats(end - begin));
      linear_weight_cpu(call, begin, end, memory.mutable_data_ptr<float>());
    });
  }
  return {grad_x, grad_weight, grad_bias};
}

Tensor linear(Tensor x, Tensor weight, std::optional<Tensor> bias) {
  return forward(x, weight, bias, {weight.size(0)}, "linear")[0];
}

Gradients linear_backward(Tensor grad, Tensor x, Tensor weight, bool need_x, bool need_weight, bool need_bias) {
  return backward({grad}, x, weight, need_x, need_weight, need_bias, "linear_backward");
}

std::tuple<Tensor, Tensor, Tensor, Tensor> linear_parts(Tensor x, Tensor weight, std::optional<Tensor> bias,
                                                        int64_t second, int64_t third, int64_t fourth) {
  const char* op = "linear_parts";
  const int64_t first = weight.size(0) - second - third - fourth;
  STD_TORCH_CHECK(std::min({first, second, third, fourth}) >= 0, op, ": the parts must be of the weight's rows");
  const std::vector<Tensor> found = forward(x, weight, bias, {first, second, third, fourth}, op);
  return {found[0], found[1], found[2], found[3]};
}

Gradients linear_parts_backward(Tensor first, Tensor second, Tensor third, Tensor fourth, Tensor x, Tensor weight,
                                bool need_x, bool need_weight, bool need_bias) {
  const char* op = "linear_parts_backward";
  return backward({first, second, third, fourth}, x, weight, need_x, need_weight, need_bias, op);
}

Tensor silu_linear(Tensor x, std::optional<Tensor> factor, Tensor weight, std::optional<Tensor> bias) {
  const SiluViews silu(x, factor, "silu_linear");
  return forward(x, weight, bias, {weight.size(0)}, "silu_linear", &silu.rows)[0];
}

std::tuple<Tensor, Tensor, Tensor, Tensor> silu_linear_backward(Tensor grad, Tensor x, std::optional<Tensor> factor,
                                                                Tensor weight, bool need_x, bool need_weight,
                                                                bool need_bias) {
  const char* op = "silu_linear_backward";
  SiluViews silu(x, factor, op);
  Tensor grad_factor = torch::stable::new_empty(x, {need_x && factor ? x.size(0) : 0, x.size(1)});
  silu.rows.grad_factor = {grad_factor.mutable_data_ptr(), x.size(1), silu.rows.logits.dtype};
  const auto [grad_x, grad_weight, grad_bias] =
      backward({grad}, x, weight, need_x, need_weight, need_bias, op, &silu.rows);
  if (weight.size(0) == 0) torch::stable::zero_(grad_factor);
  return {grad_x, grad_factor, grad_weight, grad_bias};
}

}  // namespace
}  // namespace fm

FM_LIBRARY_CPU(m) {
  m.impl("linear", TORCH_BOX(&fm::linear));
  m.impl("linear_backward", TORCH_BOX(&fm::linear_backward));
  m.impl("linear_parts", TORCH_BOX(&fm::linear_parts));
  m.impl("linear_parts_backward", TORCH_BOX(&fm::linear_parts_backward));
  m.impl("silu_linear", TORCH_BOX(&fm::silu_linear));
  m.impl("silu_linear_backward", TORCH_BOX(&fm::silu_linear_backward));
}
#endif
