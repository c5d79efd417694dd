// Norms of rows on the CPU; see norm.h.
#include "norm/norm.h"

#include <cmath>

#include "common/elements.h"

namespace fm {
namespace {

// Sum of body(span) over a row, whose missing elements body gives as zero.
template <int kN, class Body>
FM_INLINE float total(int64_t width, const Body& body) {
  typename Lanes<kN>::Floats sums = {};
  for_each_vector<kN>(width, [&](auto span) __attribute__((always_inline)) { sums += body(span); });
  return sum(sums);
}

// The elements of a span, and zero beyond the end of the row.
template <class Span>
FM_INLINE typename Span::Floats existing(Span span, typename Span::Floats x) {
  for (int64_t i = span.count(); i < lanes_of<typename Span::Floats>; ++i) x[i] = 0.f;
  return x;
}

// Of a row; the mean is measured from the first element, so that a large one costs no digits.
struct Statistics {
  float origin = 0.f, centre = 0.f, scale = 0.f;  // m = origin + centre, r

  template <class Span, class Type>
  FM_INLINE typename Span::Floats distance(const void* x, Span span, Type type) const {
    return (read(x, span, type) - origin) - centre;
  }
};

template <int kN, class Type>
FM_INLINE Statistics statistics(const NormShape& shape, const void* x, Type type) {
  const float part = 1.f / static_cast<float>(shape.width);
  Statistics s;
  const auto moment = [&](bool square) __attribute__((always_inline)) {
    return part * total<kN>(shape.width, [&](auto span) __attribute__((always_inline)) {
      const auto distance = existing(span, s.distance(x, span, type));
      return square ? distance * distance : distance;
    });
  };
  if (shape.centred) {
    s.origin = read(x, Span<kN, false>{0, 1}, type)[0];
    s.centre = moment(false);
  }
  s.scale = 1.f / std::sqrt(moment(true) + shape.eps);
  return s;
}

// Calls function(type of x, type of y).
template <class Function>
FM_INLINE void with_types(const NormShape& shape, const Function& function) {
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    if (shape.result_dtype == shape.dtype) {
      function(type, type);
    } else {
      function(type, Type<DType::kBFloat16>());
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void forward(const NormShape& shape, const NormInputs& in, void* y, int64_t part) {
  constexpr int kN = kVector<kLevel>;
  with_types(shape, [&](auto type, auto result) __attribute__((always_inline)) {
    for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
      const void* x = row_of(in.x, i, in.stride, type);
      void* to = row_of(y, i, shape.width, result);
      const Statistics s = statistics<kN>(shape, x, type);
      for_each_vector<kN>(shape.width, [&](auto span) __attribute__((always_inline)) {
        using Span = decltype(span);
        auto value = s.distance(x, span, type) * s.scale;
        if (in.weight) value *= read<Span>(in.weight, span, kFloat) + shape.origin;
        if (in.bias) value += read<Span>(in.bias, span, kFloat);
        write(to, span, result, value);
      });
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void backward(const NormShape& shape, const NormInputs& in, const NormGradients& gradients, int64_t part) {
  constexpr int kN = kVector<kLevel>;
  const float share = 1.f / static_cast<float>(shape.width);
  float *of_weight = gradients.coefficients.parts + part * 2 * shape.width, *of_bias = of_weight + shape.width;
  std::memset(of_weight, 0, 2 * shape.width * sizeof(float));
  with_types(shape, [&](auto type, auto result) __attribute__((always_inline)) {
    for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
      const void* x = row_of(in.x, i, in.stride, type);
      const void* grad = row_of(gradients.y, i, shape.width, result);
      void* to = row_of(gradients.x, i, shape.width, type);
      const Statistics s = statistics<kN>(shape, x, type);
      const auto weighted = [&](auto span) __attribute__((always_inline)) {
        auto h = read(grad, span, result);
        if (in.weight) h *= read<decltype(span)>(in.weight, span, kFloat) + shape.origin;
        return h;
      };
      typename Lanes<kN>::Floats sums = {};  // of h; zero where there are no elements, as the gradient is read
      const float slope = share * total<kN>(shape.width, [&](auto span) __attribute__((always_inline)) {
        using Span = decltype(span);
        const auto normed = s.distance(x, span, type) * s.scale, g = read(grad, span, result);
        write(of_weight, span, kFloat, read<Span>(of_weight, span, kFloat) + g * normed);
        write(of_bias, span, kFloat, read<Span>(of_bias, span, kFloat) + g);
        const auto h = weighted(span);
        sums += h;
        return h * normed;
      });
      const float offset = shape.centred ? share * sum(sums) : 0.f;
      for_each_vector<kN>(shape.width, [&](auto span) __attribute__((always_inline)) {
        const auto normed = s.distance(x, span, type) * s.scale;
        write(to, span, type, s.scale * (weighted(span) - offset - normed * slope));
      });
    }
  });
}

}  // namespace

void norm_forward_cpu(const NormShape& shape, const NormInputs& in, void* y, int64_t part) {
  FM_AT_CPU_LEVEL(forward<kLevel>(shape, in, y, part));
}

void norm_backward_cpu(const NormShape& shape, const NormInputs& in, const NormGradients& gradients, int64_t part) {
  FM_AT_CPU_LEVEL(backward<kLevel>(shape, in, gradients, part));
}

}  // namespace fm
