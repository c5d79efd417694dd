// The update gate on the CPU; see gate.h.
#include "gate/gate.h"

#include "common/elements.h"

namespace fm {
namespace {

template <class Floats>
struct Element {
  Floats x, gate, sum, slope, kept, candidate;  // slope: sigmoid(sum), for the SiLU; kept: what dropout multiplies with
};

struct Row {
  const void *x, *update, *candidate, *addend;
  const Dropping* dropping;  // or null
  RowBits bits;
};

template <class Residual, class Other>
FM_INLINE Row row_of(const GateInputs& in, int64_t row, Residual residual, Other other) {
  return {row_of(in.x, row, in.x_stride, residual), row_of(in.update, row, in.update_stride, other),
          row_of(in.candidate, row, in.candidate_stride, other),
          in.addend ? row_of(in.addend, row, in.addend_stride, other) : nullptr,
          in.dropping.seed ? &in.dropping : nullptr, in.dropping.row(row)};
}

template <class Span, class Residual, class Other>
FM_INLINE Element<typename Span::Floats> element(const Row& row, Span span, Residual residual, Other other) {
  Element<typename Span::Floats> e = {};
  e.x = read(row.x, span, residual);
  e.gate = sigmoid(read(row.update, span, other));
  e.sum = e.candidate = read(row.candidate, span, other);
  if (row.addend) {
    e.sum += read(row.addend, span, other);
    e.slope = sigmoid(e.sum);
    e.candidate = e.sum * e.slope;
  }
  e.kept += 1.f;
  if (row.dropping) {
    e.kept = factors(*row.dropping, row.bits, span);
    e.candidate *= e.kept;
  }
  return e;
}

// Calls function(type of the residual, type of the others).
template <class Function>
FM_INLINE void with_types(const GateShape& shape, const Function& function) {
  with_type(shape.dtype, [&](auto other) __attribute__((always_inline)) {
    if (shape.residual_dtype == DType::kFloat32) {
      function(Type<DType::kFloat32>(), other);
    } else {
      function(other, other);
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void forward(const GateShape& shape, const GateInputs& in, void* out, int64_t begin, int64_t end) {
  with_types(shape, [&](auto residual, auto other) __attribute__((always_inline)) {
    for (int64_t i = begin; i < end; ++i) {
      const Row row = row_of(in, i, residual, other);
      if (i + kAhead < end) {
        prefetch_row(in.update, i + kAhead, in.update_stride, shape.width, other);
        prefetch_row(in.candidate, i + kAhead, in.candidate_stride, shape.width, other);
      }
      void* to = row_of(out, i, shape.width, residual);
      for_each_vector<kVector<kLevel>>(shape.width, [&](auto span) __attribute__((always_inline)) {
        const auto e = element(row, span, residual, other);
        write(to, span, residual, e.x + e.gate * (e.candidate - e.x));
      });
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void backward(const GateShape& shape, const GateInputs& in, const GateGradients& gradients, int64_t begin,
                        int64_t end) {
  with_types(shape, [&](auto residual, auto other) __attribute__((always_inline)) {
    for (int64_t i = begin; i < end; ++i) {
      const Row row = row_of(in, i, residual, other);
      if (i + kAhead < end) {
        prefetch_row(in.update, i + kAhead, in.update_stride, shape.width, other);
        prefetch_row(in.candidate, i + kAhead, in.candidate_stride, shape.width, other);
      }
      const void* grad = row_of(gradients.out, i, shape.width, residual);
      void* grad_x = row_of(gradients.x, i, shape.width, residual);
      void* grad_update = row_of(gradients.update, i, shape.width, other);
      void* grad_candidate = row_of(gradients.candidate, i, shape.width, other);
      for_each_vector<kVector<kLevel>>(shape.width, [&](auto span) __attribute__((always_inline)) {
        const auto e = element(row, span, residual, other);
        const auto g = read(grad, span, residual);
        auto candidate = g * e.gate;
        write(grad_x, span, residual, g - candidate);
        write(grad_update, span, other, candidate * (1.f - e.gate) * (e.candidate - e.x));
        candidate *= e.kept;
        if (row.addend) candidate *= e.slope * (1.f + e.sum * (1.f - e.slope));
        write(grad_candidate, span, other, candidate);
      });
    }
  });
}

}  // namespace

void gate_forward_cpu(const GateShape& shape, const GateInputs& in, void* out, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(forward<kLevel>(shape, in, out, begin, end));
}

void gate_backward_cpu(const GateShape& shape, const GateInputs& in, const GateGradients& gradients, int64_t begin,
                       int64_t end) {
  FM_AT_CPU_LEVEL(backward<kLevel>(shape, in, gradients, begin, end));
}

}  // namespace fm
