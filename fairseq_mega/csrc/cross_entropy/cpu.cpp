// Cross entropy on the CPU; see cross_entropy.h.
#include "cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>

#include "common/elements.h"

namespace fm {
namespace {

// The elements of a span, and `other` in the place of those that do not exist.
template <int kN, bool kAll, class Type>
FM_INLINE typename Lanes<kN>::Floats read_or(const void* row, Span<kN, kAll> span, Type type, float other) {
  auto x = read(row, span, type);
  if constexpr (!kAll) {
    for (int i = 0; i < kN; ++i) x[i] = i < span.rest ? x[i] : other;
  }
  return x;
}

template <class Type>
FM_INLINE float read_one(const void* row, int64_t column, Type type) {
  return read(row, Span<8, false>{column, 1}, type)[0];
}

template <CpuLevel kLevel>
FM_INLINE void forward(const CrossEntropy& call, const RowLosses& out, int64_t begin, int64_t end) {
  constexpr int kN = kVector<kLevel>;
  using Floats = typename Lanes<kN>::Floats;
  with_type(call.dtype, [&](auto type) __attribute__((always_inline)) {
    for (int64_t i = begin; i < end; ++i) {
      const void* x = row_of(call.logits, i, call.stride, type);
      constexpr float kNone = -std::numeric_limits<float>::infinity();
      Floats most = Floats{} + kNone, sums{}, totals{};
      for_each_vector<kN>(call.symbols, [&](auto span) __attribute__((always_inline)) {
        const Floats value = read_or(x, span, type, most[0]);
        most = select(value > most, value, most);
      });
      float highest = most[0];
      for (int j = 1; j < kN; ++j) highest = most[j] > highest ? most[j] : highest;
      for_each_vector<kN>(call.symbols, [&](auto span) __attribute__((always_inline)) {
        totals += exp_nonpositive(read_or(x, span, type, kNone) - highest);
        sums += read_or(x, span, type, highest) - highest;
      });
      double sum = 0., total = 0.;
      for (int j = 0; j < kN; ++j) {
        sum += sums[j];
        total += totals[j];
      }
      const double log_total = std::log(total);
      out.statistics[2 * i] = highest;
      out.statistics[2 * i + 1] = static_cast<float>(log_total);
      out.nll[i] = static_cast<float>(log_total - (read_one(x, call.targets[i], type) - highest));
      out.smooth[i] = static_cast<float>(static_cast<double>(call.symbols) * log_total - sum);
    }
  });
}

template <CpuLevel kLevel>
FM_INLINE void backward(const CrossEntropy& call, const RowGradients& gradients, int64_t begin, int64_t end) {
  with_type(call.dtype, [&](auto type) __attribute__((always_inline)) {
    for (int64_t i = begin; i < end; ++i) {
      const void* x = row_of(call.logits, i, call.stride, type);
      void* to = row_of(gradients.logits, i, call.symbols, type);
      const float nll = gradients.nll[i], smooth = gradients.smooth[i];
      const float highest = gradients.statistics[2 * i], log_total = gradients.statistics[2 * i + 1];
      const float share = nll + smooth * static_cast<float>(call.symbols);
      const bool unscored = nll == 0.f && smooth == 0.f;  // padding
      for_each_vector<kVector<kLevel>>(call.symbols, [&](auto span) __attribute__((always_inline)) {
        using Floats = typename decltype(span)::Floats;
        if (unscored) return write(to, span, type, Floats{});
        write(to, span, type, share * exp_nonpositive(read(x, span, type) - highest - log_total) - smooth);
      });
      if (unscored) continue;
      const int64_t target = call.targets[i];
      const float value = share * std::exp(read_one(x, target, type) - highest - log_total) - smooth - nll;
      write(to, Span<8, false>{target, 1}, type, typename Span<8, false>::Floats{value});
    }
  });
}

}  // namespace

void cross_entropy_forward_cpu(const CrossEntropy& call, const RowLosses& out, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(forward<kLevel>(call, out, begin, end));
}

void cross_entropy_backward_cpu(const CrossEntropy& call, const RowGradients& gradients, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(backward<kLevel>(call, gradients, begin, end));
}

}  // namespace fm
