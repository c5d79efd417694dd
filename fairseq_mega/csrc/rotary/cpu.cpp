// Normalised, turned queries and keys on the CPU; see rotary.h.
#include "rotary/rotary.h"

#include <cmath>
#include <vector>

#include "common/elements.h"

namespace fm {
namespace {

// The features of each pair in the other's place.
template <class Floats>
FM_INLINE Floats swapped(Floats x) {
  Floats y;
  for (int i = 0; i < lanes_of<Floats>; ++i) y[i] = x[i ^ 1];
  return y;
}

// A row of one head.
struct Head {
  int64_t features;
  const void* x;                // (E)
  const float *scale, *offset;  // of the query; those of the key are `width` further on
  int64_t width;
  const float* turn;            // (2, E)
  float root;                   // 1 / sqrt(mean(x^2) + eps)

  template <class Span>
  FM_INLINE auto column(const float* of, int key, Span span) const {
    return read(of + key * width, span, kFloat);
  }

  // v turned by the angle, or back.
  template <class Span>
  FM_INLINE typename Span::Floats turned(typename Span::Floats v, Span span, bool back) const {
    const auto cosine = read(turn, span, kFloat), other = swapped(v) * read(turn + features, span, kFloat);
    return back ? v * cosine - other : v * cosine + other;
  }
};

template <int kN, class Type>
FM_INLINE Head head_of(const RotaryShape& shape, const RotaryInputs& in, const void* row, int64_t position, int64_t head,
                       Type type) {
  const int64_t first = head * shape.features;
  Head h{shape.features, row_of(row, 1, first, type), in.scale + first, in.offset ? in.offset + first : nullptr,
         shape.width, in.turns + position * 2 * shape.features, 0.f};
  typename Lanes<kN>::Floats squares = {};
  for_each_vector<kN>(shape.features, [&](auto span) __attribute__((always_inline)) {
    const auto x = read(h.x, span, type);
    squares += x * x;
  });
  h.root = 1.f / std::sqrt(sum(squares) / static_cast<float>(shape.features) + shape.eps);
  return h;
}

// Calls body(row, head's first column, head) for the heads of all rows of a part.
template <int kN, class Type, class Body>
FM_INLINE void for_heads(const RotaryShape& shape, const RotaryInputs& in, int64_t part, Type type, const Body& body) {
  for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
    const void* row = row_of(in.x, i, in.stride, type);
    for (int64_t h = 0; h < shape.heads; ++h) {
      body(i, h * shape.features, head_of<kN>(shape, in, row, shape.position(i), h, type));
    }
  }
}

template <CpuLevel kLevel>
FM_INLINE void forward(const RotaryShape& shape, const RotaryInputs& in, void* query, void* key, int64_t part) {
  constexpr int kN = kVector<kLevel>;
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    for_heads<kN>(shape, in, part, type, [&](int64_t row, int64_t first, const Head& head)
                                             __attribute__((always_inline)) {
      void* to[] = {row_of(row_of(query, row, shape.width, type), 1, first, type),
                    row_of(row_of(key, row, shape.width, type), 1, first, type)};
      for_each_vector<kN>(shape.features, [&](auto span) __attribute__((always_inline)) {
        const auto n = read(head.x, span, type) * head.root;
        for (int j = 0; j < 2; ++j) {
          const auto v = head.column(head.offset, j, span) + n * head.column(head.scale, j, span);
          write(to[j], span, type, head.turned(v, span, false));
        }
      });
    });
  });
}

template <CpuLevel kLevel>
FM_INLINE void backward(const RotaryShape& shape, const RotaryInputs& in, const RotaryGradients& gradients,
                        int64_t part) {
  constexpr int kN = kVector<kLevel>;
  const int64_t width = shape.width;
  float* sums = gradients.coefficients.parts + part * 4 * width;
  std::memset(sums, 0, 4 * width * sizeof(float));
  std::vector<float> kept(static_cast<size_t>(shape.features));  // gradient of n
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    for_heads<kN>(shape, in, part, type, [&](int64_t row, int64_t first, const Head& head)
                                             __attribute__((always_inline)) {
      const void* grads[] = {row_of(row_of(gradients.query, row, width, type), 1, first, type),
                             row_of(row_of(gradients.key, row, width, type), 1, first, type)};
      typename Lanes<kN>::Floats products = {};
      for_each_vector<kN>(shape.features, [&](auto span) __attribute__((always_inline)) {
        const auto n = read(head.x, span, type) * head.root;
        typename Lanes<kN>::Floats of_n = {};
        for (int j = 0; j < 2; ++j) {
          const auto g = head.turned(read(grads[j], span, type), span, true);
          float *of_scale = sums + j * width + first, *of_offset = of_scale + 2 * width;
          write(of_scale, span, kFloat, read(of_scale, span, kFloat) + g * n);
          write(of_offset, span, kFloat, read(of_offset, span, kFloat) + g);
          of_n += g * head.column(head.scale, j, span);
        }
        write(kept.data(), span, kFloat, of_n);
        products += of_n * n;
      });
      const float slope = sum(products) / static_cast<float>(shape.features);
      void* to = row_of(row_of(gradients.x, row, width, type), 1, first, type);
      for_each_vector<kN>(shape.features, [&](auto span) __attribute__((always_inline)) {
        const auto n = read(head.x, span, type) * head.root;
        write(to, span, type, (read(kept.data(), span, kFloat) - n * slope) * head.root);
      });
    });
  });
}

}  // namespace

void rotary_forward_cpu(const RotaryShape& shape, const RotaryInputs& in, void* query, void* key, int64_t part) {
  FM_AT_CPU_LEVEL(forward<kLevel>(shape, in, query, key, part));
}

void rotary_backward_cpu(const RotaryShape& shape, const RotaryInputs& in, const RotaryGradients& gradients,
                         int64_t part) {
  FM_AT_CPU_LEVEL(backward<kLevel>(shape, in, gradients, part));
}

}  // namespace fm
