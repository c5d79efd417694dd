// Queries and keys of MEGA on the CPU; see query_key.h.
#include "query_key/query_key.h"

#include "common/cpu_parts.h"

namespace fm {
namespace {

template <CpuLevel kLevel>
FM_INLINE void query_key_forward(const RowParts& shape, const QueryKey& in, void* query, void* key,
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
FM_INLINE void query_key_backward(const RowParts& shape, const QueryKey& in, const QueryKeyGradients& gradients,
                                  int64_t part) {
  float* sums = gradients.coefficients.parts + part * 4 * shape.width;
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
        write(grad_x, span, type, g * silu_slope(value, s));
        add(sums, span, q * shared);
        add(sums + shape.width, span, k * shared);
        add(sums + 2 * shape.width, span, q);
        add(sums + 3 * shape.width, span, k);
      });
    }
  });
}

}  // namespace

void query_key_forward_cpu(const RowParts& shape, const QueryKey& in, void* query, void* key, int64_t part) {
  FM_AT_CPU_LEVEL(query_key_forward<kLevel>(shape, in, query, key, part));
}

void query_key_backward_cpu(const RowParts& shape, const QueryKey& in, const QueryKeyGradients& gradients,
                            int64_t part) {
  FM_AT_CPU_LEVEL(query_key_backward<kLevel>(shape, in, gradients, part));
}

}  // namespace fm
