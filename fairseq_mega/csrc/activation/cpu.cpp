// Activations on the CPU; see activation.h.
#include "activation/activation.h"

#include "common/elements.h"

namespace fm {
namespace {

constexpr Type<DType::kFloat32> kFloat;

// A row of a part, or null where the rows are absent.
template <class Type>
FM_INLINE const void* row_of(const RowsIn& rows, int64_t row, Type type) {
  return rows.data ? row_of(rows.data, row, rows.stride, type) : nullptr;
}

// Asks for a later row of the part.
template <class Type>
FM_INLINE void prefetch_row(const ActivationShape& shape, const RowsIn& rows, int64_t row, int64_t part, Type type) {
  if (row + kAhead < shape.end(part)) prefetch_row(rows.data, row + kAhead, rows.stride, shape.width, type);
}

// Adds a vector to a row of sums.
template <class Span>
FM_INLINE void add(float* sums, Span span, typename Span::Floats x) {
  write(sums, span, kFloat, read(sums, span, kFloat) + x);
}

// The derivative of SiLU(x), where s = sigmoid(x).
template <class Floats>
FM_INLINE Floats slope(Floats x, Floats s) {
  return s * (1.f + x * (1.f - s));
}

// The argument of the SiLU.
template <class Span, class Type>
FM_INLINE typename Span::Floats argument(const void* x, const void* skip, const float* omega, Span span, Type type) {
  typename Span::Floats sum = read(x, span, type);
  if (skip) sum += read(omega, span, kFloat) * read(skip, span, type);
  return sum;
}

template <CpuLevel kLevel>
FM_INLINE void silu_forward(const ActivationShape& shape, const SiluInputs& in, void* out, int64_t part) {
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
FM_INLINE void silu_backward(const ActivationShape& shape, const SiluInputs& in, const SiluGradients& gradients,
                             int64_t part) {
  float* sums = in.omega ? gradients.omega + part * shape.width : nullptr;
  if (sums) std::memset(sums, 0, shape.width * sizeof(float));
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
        g *= slope(sum, s);
        write(grad_x, span, type, g);
        if (skip) {
          write(grad_skip, span, type, g * read(in.omega, span, kFloat));
          add(sums, span, g * read(skip, span, type));
        }
      });
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void query_key_forward(const ActivationShape& shape, const QueryKey& in, void* query, void* key,
                                 int64_t part) {
  const float *kappa = in.kappa, *mu = in.mu;
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
      prefetch_row(shape, in.x, i, part, type);
      const void* x = row_of(in.x, i, type);
      void *q = row_of(query, i, shape.width, type), *k = row_of(key, i, shape.width, type);
      for_each_span<kVector<kLevel>>(shape.width, [&](auto span) __attribute__((always_inline)) {
        auto s = read(x, span, type);
        s *= sigmoid(s);
        write(q, span, type, read(kappa, span, kFloat) * s + read(mu, span, kFloat));
        write(k, span, type,
              read(kappa + shape.width, span, kFloat) * s + read(mu + shape.width, span, kFloat));
      });
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void query_key_backward(const ActivationShape& shape, const QueryKey& in, const QueryKeyGradients& gradients,
                                  int64_t part) {
  float* sums = gradients.coefficients + part * 4 * shape.width;
  std::memset(sums, 0, 4 * shape.width * sizeof(float));
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
      prefetch_row(shape, in.x, i, part, type);
      const void* x = row_of(in.x, i, type);
      const void* query = row_of(gradients.query, i, shape.width, type);
      const void* key = row_of(gradients.key, i, shape.width, type);
      void* grad_x = row_of(gradients.x, i, shape.width, type);
      for_each_span<kVector<kLevel>>(shape.width, [&](auto span) __attribute__((always_inline)) {
        const auto value = read(x, span, type), s = sigmoid(value), shared = value * s;
        const auto q = read(query, span, type), k = read(key, span, type);
        const auto g = q * read(in.kappa, span, kFloat) + k * read(in.kappa + shape.width, span, kFloat);
        write(grad_x, span, type, g * slope(value, s));
        add(sums, span, q * shared);
        add(sums + shape.width, span, k * shared);
        add(sums + 2 * shape.width, span, q);
        add(sums + 3 * shape.width, span, k);
      });
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void dropout(const ActivationShape& shape, const Dropping& dropping, const RowsIn& in, void* out,
                       int64_t part) {
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
      prefetch_row(shape, in, i, part, type);
      const RowBits bits = dropping.row(i);
      const void* x = row_of(in, i, type);
      void* to = row_of(out, i, shape.width, type);
      for_each_vector<kVector<kLevel>>(shape.width, [&](auto span) __attribute__((always_inline)) {
        write(to, span, type, read(x, span, type) * factors(dropping, bits, span));
      });
    }
  });
}

}  // namespace

void silu_forward_cpu(const ActivationShape& shape, const SiluInputs& in, void* out, int64_t part) {
  FM_AT_CPU_LEVEL(silu_forward<kLevel>(shape, in, out, part));
}

void silu_backward_cpu(const ActivationShape& shape, const SiluInputs& in, const SiluGradients& gradients,
                       int64_t part) {
  FM_AT_CPU_LEVEL(silu_backward<kLevel>(shape, in, gradients, part));
}

void query_key_forward_cpu(const ActivationShape& shape, const QueryKey& in, void* query, void* key, int64_t part) {
  FM_AT_CPU_LEVEL(query_key_forward<kLevel>(shape, in, query, key, part));
}

void query_key_backward_cpu(const ActivationShape& shape, const QueryKey& in, const QueryKeyGradients& gradients,
                            int64_t part) {
  FM_AT_CPU_LEVEL(query_key_backward<kLevel>(shape, in, gradients, part));
}

void dropout_cpu(const ActivationShape& shape, const Dropping& dropping, const RowsIn& x, void* out, int64_t part) {
  FM_AT_CPU_LEVEL(dropout<kLevel>(shape, dropping, x, out, part));
}

}  // namespace fm
