// Activations on the CPU; see activation.h.
#include "activation/activation.h"

#include "common/cpu_parts.h"

namespace fm {
namespace {

// The argument of the SiLU.
template <class Span, class Type>
FM_INLINE typename Span::Floats argument(const void* x, const void* skip, const float* omega, Span span, Type type) {
  typename Span::Floats sum = read(x, span, type);
  if (skip) sum += read(omega, span, kFloat) * read(skip, span, type);
  return sum;
}

template <CpuLevel kLevel>
FM_INLINE void silu_forward(const RowParts& shape, const SiluInputs& in, void* out, int64_t part) {
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
      prefetch_row(shape, in.x, i, part, type);
      const void *x = row_of(in.x, i, type), *factor = row_of(in.factor, i, type), *skip = row_of(in.skip, i, type);
      void* to = row_of(out, i, shape.width, type);
      for_each_span<kVector<kLevel>>(shape.width, [&](auto span) __attribute__((always_inline)) {
        const auto sum = argument(x, skip, in.omega, span, type);
        auto y = sum * sigmoid(sum);
        if (factor) y *= read(factor, span, type);
        write(to, span, type, y);
      });
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void silu_backward(const RowParts& shape, const SiluInputs& in, const SiluGradients& gradients,
                             int64_t part) {
  float* sums = in.omega ? gradients.columns.parts + part * 2 * shape.width : nullptr;
  if (sums) std::memset(sums, 0, 2 * shape.width * sizeof(float));
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
      prefetch_row(shape, in.x, i, part, type);
      const void *x = row_of(in.x, i, type), *factor = row_of(in.factor, i, type), *skip = row_of(in.skip, i, type);
      const void* grad = row_of(gradients.out, i, shape.width, type);
      void* grad_x = row_of(gradients.x, i, gradients.stride, type);
      void* grad_factor = factor ? row_of(gradients.factor, i, gradients.stride, type) : nullptr;
      void* grad_skip = skip ? row_of(gradients.skip, i, gradients.stride, type) : nullptr;
      for_each_span<kVector<kLevel>>(shape.width, [&](auto span) __attribute__((always_inline)) {
        const auto sum = argument(x, skip, in.omega, span, type), s = sigmoid(sum);
        auto g = read(grad, span, type);
        if (factor) {
          write(grad_factor, span, type, g * sum * s);
          g *= read(factor, span, type);
        }
        g *= silu_slope(sum, s);
        write(grad_x, span, type, g);
        if (skip) {
          write(grad_skip, span, type, g * read(in.omega, span, kFloat));
          add(sums, span, g * read(skip, span, type));
        }
      });
    }
  });
}

}  // namespace

void silu_forward_cpu(const RowParts& shape, const SiluInputs& in, void* out, int64_t part) {
  FM_AT_CPU_LEVEL(silu_forward<kLevel>(shape, in, out, part));
}

void silu_backward_cpu(const RowParts& shape, const SiluInputs& in, const SiluGradients& gradients, int64_t part) {
  FM_AT_CPU_LEVEL(silu_backward<kLevel>(shape, in, gradients, part));
}

}  // namespace fm
