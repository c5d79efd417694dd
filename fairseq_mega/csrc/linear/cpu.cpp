// Blocks of the products of a linear map; see linear.h.
#include <algorithm>
#include <cstring>
#include <vector>

#include "activation/activation.h"
#include "common/elements.h"
#include "linear/linear.h"

namespace fm {
namespace {

constexpr int64_t kSummedRows = 256;    // rows of x and dy that are summed over at once
constexpr int64_t kMadeRows = 32;       // of f SiLU(s), which are computed at once
constexpr int64_t kBlockOutputs = 384;  // whose packed gradients stay in the second cache meanwhile

int64_t bytes_of(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

const void* row_of(const Matrix& m, int64_t row, int64_t column = 0) {
  return static_cast<const char*>(m.data) + (row * m.stride + column) * bytes_of(m.dtype);
}

void* row_to(const Matrix& m, int64_t row, int64_t column) { return const_cast<void*>(row_of(m, row, column)); }

// Calls function(part, its first column, the first requested one of them, their number) for the columns [begin, end).
template <class Function>
void for_parts(const Columns& m, int64_t begin, int64_t end, const Function& function) {
  int64_t first = 0;
  for (int k = 0; k < m.count; first += m.widths[k++]) {
    const int64_t from = std::max(begin, first), to = std::min(end, first + m.widths[k]);
    if (from < to) function(m.parts[k], first, from, to - from);
  }
}

// Panels whose steps are `rows` rows of a matrix from `source` on.
void pack_steps(const Matrix& m, const void* source, int64_t rows, int64_t columns, Word word, uint32_t* out,
                int64_t panel) {
  if (m.dtype == DType::kFloat32) {
    const auto pack = word == Word::kFloat ? pack_floats_cpu : pack_rounded_cpu;
    return pack(static_cast<const float*>(source), m.stride, rows, columns, out, panel);
  }
  const auto pack = word == Word::kFloat ? pack_widened_cpu : pack_pairs_cpu;
  pack(static_cast<const uint16_t*>(source), m.stride, rows, columns, out, panel);
}

RowsIn rows_in(const Matrix& m, int64_t row, int64_t column) {
  return m.data ? RowsIn{row_of(m, row, column), m.stride} : RowsIn{};
}

// f SiLU(s) in some rows and columns, as a matrix at `out`.
Matrix silu_of(const SiluRows& of, int64_t row, int64_t rows, int64_t column, int64_t columns, void* out) {
  const RowParts shape{rows, columns, of.logits.dtype};
  silu_forward_cpu(shape, {rows_in(of.logits, row, column), rows_in(of.factor, row, column), {}, nullptr}, out, 0);
  return {out, columns, of.logits.dtype};
}

// Its gradients from that at `grad`, in the same place.
void silu_gradients(const SiluRows& of, int64_t row, int64_t rows, int64_t column, int64_t columns, const void* grad) {
  void* factor = of.factor.data ? row_to(of.grad_factor, row, column) : nullptr;
  silu_backward_cpu({rows, columns, of.logits.dtype},
                    {rows_in(of.logits, row, column), rows_in(of.factor, row, column), {}, nullptr},
                    {grad, row_to(of.grad_logits, row, column), factor, nullptr, of.grad_logits.stride, {}}, 0);
}

// Whether rows of a matrix are words as they are.
bool made_of(const Matrix& m, Word word) {
  return word == Word::kFloat ? m.dtype == DType::kFloat32 : m.dtype == DType::kBFloat16 && m.stride % 2 == 0;
}

// Rows of a matrix as rows of words, one after the other.
void to_words(const Matrix& m, int64_t first, int64_t rows, int64_t columns, Word word, uint32_t* out) {
  const int64_t words = words_of(columns, word);
  for (int64_t i = 0; i < rows; ++i, out += words) {
    const void* row = row_of(m, first + i);
    if ((word == Word::kFloat) == (m.dtype == DType::kFloat32)) {
      std::memcpy(out, row, columns * bytes_of(m.dtype));
    } else if (word == Word::kFloat) {
      widen_cpu(row, m.dtype, columns, reinterpret_cast<float*>(out));
    } else {
      round_rows_cpu(static_cast<const float*>(row), 1, columns, out);
    }
  }
}

// Adds the columns of packed gradients to their sums.
template <CpuLevel kLevel>
FM_INLINE void add_columns(const uint32_t* panels, int64_t words, int64_t columns, Word word, float* sums) {
  constexpr int kLanes = kVector<kLevel>;
  using Floats = typename Lanes<kLanes>::Floats;
  using Words = typename Lanes<kLanes>::Words;
  const uint32_t upper = word == Word::kFloat ? 0xffffffffu : 0xffff0000u;
  for (int64_t first = 0; first < columns; first += kLanes) {
    const uint32_t* from = panels + first / kPanel * words * kPanel + first % kPanel;
    Floats total{}, other{};
    for (int64_t k = 0; k < words; ++k, from += kPanel) {
      Words bits;
      std::memcpy(&bits, from, sizeof bits);
      const Words high = bits & upper, low = bits << 16;
      Floats number;
      std::memcpy(&number, &high, sizeof number);
      total += number;
      if (word == Word::kFloat) continue;
      std::memcpy(&number, &low, sizeof number);
      other += number;
    }
    total += other;
    float found[kLanes];
    std::memcpy(found, &total, sizeof found);
    for (int64_t j = 0; j < std::min<int64_t>(kLanes, columns - first); ++j) sums[first + j] += found[j];
  }
}

void add_columns_cpu(const uint32_t* panels, int64_t words, int64_t columns, Word word, float* sums) {
  FM_AT_CPU_LEVEL(add_columns<kLevel>(panels, words, columns, word, sums));
}

}  // namespace

Word linear_word_cpu(DType dtype, int64_t inputs, int64_t outputs) {
  const bool pairs = dtype == DType::kBFloat16 && inputs % 2 == 0 && outputs % 2 == 0 && multiplies_pairs_cpu();
  return pairs ? Word::kBFloat16Pair : Word::kFloat;
}

int64_t LinearRows::block_floats(int64_t block_columns) const {
  const bool summed_there = x.dtype() == DType::kFloat32 && !y_of;
  return block_rows() * (words_of(steps, word) + (x_of ? steps : 0) + (summed_there ? 0 : 2 * block_columns));
}

// The panels of the factor with its numbers as they are, or as pairs.
void pack_factor(const LinearRows& call, int64_t begin, int64_t end, uint32_t* out) {
  const Matrix& m = call.factor;
  const int64_t first = begin * kPanel, columns = std::min(end * kPanel, call.columns) - first;
  if (!call.transposed) {
    return pack_steps(m, row_of(m, 0, first), call.steps, columns, call.word, out, call.panel_words());
  }
  const int64_t words = words_of(call.steps, call.word);
  if (made_of(m, call.word)) {
    return pack_transposed_cpu(static_cast<const uint32_t*>(row_of(m, first)), columns, words, out);
  }
  std::vector<uint32_t> rows(static_cast<size_t>(kPanel * words));
  for (int64_t j = 0; j < columns; j += kPanel, out += call.panel_words()) {
    const int64_t count = std::min(kPanel, columns - j);
    to_words(m, first + j, count, call.steps, call.word, rows.data());
    pack_transposed_cpu(rows.data(), count, words, out);
  }
}

void pack_linear_cpu(const LinearRows& call, int64_t begin, int64_t end, uint32_t* out) {
  pack_factor(call, begin, end, out);
  const bool wider = call.factor.dtype == DType::kFloat32 && call.x.dtype() == DType::kBFloat16;
  if (wider && call.word == Word::kFloat) round_words_cpu(out, (end - begin) * call.panel_words());
}

// Prefetches the rows of x in the block that begins with a row.
void prefetch_rows(const LinearRows& call, int64_t row) {
  for (int k = 0; k < call.x.count; ++k) {
    const Matrix& m = call.x.parts[k];
    for (int64_t i = row; i < std::min(row + call.block_rows(), call.rows); ++i) {
      const char* begin = static_cast<const char*>(row_of(m, i));
      for (int64_t byte = 0; byte < call.x.widths[k] * bytes_of(m.dtype); byte += 64) __builtin_prefetch(begin + byte);
    }
  }
}

void linear_rows_cpu(const LinearRows& call, const uint32_t* factor, int64_t first, int64_t last, int64_t begin,
                     int64_t end, float* memory) {
  const int64_t panel = call.panel_words(), from = first * kPanel, to = std::min(last * kPanel, call.columns);
  const int64_t most = call.block_rows();
  const bool wide = call.x.dtype() == DType::kFloat32, summed_there = wide && !call.y_of;
  float* const made = memory + most * words_of(call.steps, call.word);
  float* const block = made + (call.x_of ? most * call.steps : 0);  // of y, in float32
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = i * most, rows = std::min(most, call.rows - row);
    uint32_t* copied = reinterpret_cast<uint32_t*>(memory);
    if (i + 1 < end) prefetch_rows(call, row + most);
    for (int64_t k = 0, step = 0; k < call.x.count; step += words_of(call.x.widths[k++], call.word)) {
      const Matrix x = call.x_of ? silu_of(*call.x_of, row, rows, 0, call.steps, made) : call.x.parts[k];
      const int64_t x_row = call.x_of ? 0 : row, words = words_of(call.x.widths[k], call.word);
      const bool direct = made_of(x, call.word);
      if (!direct) to_words(x, x_row, rows, call.x.widths[k], call.word, copied);
      const uint32_t* a = direct ? static_cast<const uint32_t*>(row_of(x, x_row)) : copied;
      const int64_t a_row = direct ? words_of(x.stride, call.word) : words;
      for_parts(call.y, from, to, [&](const Matrix& y, int64_t start, int64_t column, int64_t columns) {
        const uint32_t* b = factor + (column - from) / kPanel * panel + step * kPanel;
        float* sums = summed_there ? static_cast<float*>(row_to(y, row, column - start)) : block + (column - from);
        multiply_cpu({a, a_row, false, b, panel, sums, summed_there ? y.stride : to - from, rows, columns, words,
                      call.word, k > 0, call.start && k == 0 ? call.start + column : nullptr});
      });
    }
    if (summed_there) continue;
    void* narrowed = block + most * (to - from);
    if (call.y_of) {
      if (!wide) narrow_cpu(block, rows * (to - from), DType::kBFloat16, narrowed);
      silu_gradients(*call.y_of, row, rows, from, to - from, wide ? block : narrowed);
      continue;
    }
    for_parts(call.y, from, to, [&](const Matrix& y, int64_t start, int64_t column, int64_t columns) {
      for (int64_t j = 0; j < rows; ++j) {
        narrow_cpu(block + j * (to - from) + (column - from), columns, y.dtype, row_to(y, row + j, column - start));
      }
    });
  }
}

int64_t LinearWeight::floats(int64_t count) const {
  const int64_t share = count * kPanel, all_x = by_outputs() ? round_up(inputs, kPanel) : share;
  const int64_t all_outputs = by_outputs() ? share : round_up(outputs, kPanel);
  const int64_t sums = dtype == DType::kFloat32 ? 0 : all_outputs * all_x;
  const int64_t made = x_of ? kMadeRows * all_x : 0;
  return words_of(kSummedRows, word) * (all_x + std::min(all_outputs, kBlockOutputs)) + made + sums;
}

void linear_weight_cpu(const LinearWeight& call, int64_t begin, int64_t end, float* memory) {
  const bool by_outputs = call.by_outputs(), wide = call.dtype == DType::kFloat32;
  const int64_t output = by_outputs ? begin * kPanel : 0, input = by_outputs ? 0 : begin * kPanel;
  const int64_t stop = by_outputs ? std::min(end * kPanel, call.outputs) : call.outputs;
  const int64_t inputs = (by_outputs ? call.inputs : std::min(end * kPanel, call.inputs)) - input;
  uint32_t* x = reinterpret_cast<uint32_t*>(memory);
  uint32_t* grad = x + words_of(kSummedRows, call.word) * round_up(inputs, kPanel);
  uint32_t* made = grad + words_of(kSummedRows, call.word) * std::min(round_up(stop - output, kPanel), kBlockOutputs);
  float* sums = memory + call.floats(end - begin) - (wide ? 0 : (stop - output) * inputs);
  float* weight = wide ? static_cast<float*>(call.weight) + output * call.inputs + input : sums;
  const int64_t weight_row = wide ? call.inputs : inputs;
  float* bias = input == 0 ? call.bias : nullptr;
  if (bias) std::fill(bias + output, bias + stop, 0.f);
  for (int64_t row = 0; row < call.rows; row += kSummedRows) {
    const int64_t rows = std::min(kSummedRows, call.rows - row);
    const int64_t words = words_of(rows, call.word), panel = words * kPanel;
    if (!call.x_of) pack_steps(call.x, row_of(call.x, row, input), rows, inputs, call.word, x, panel);
    for (int64_t i = 0; i < rows && call.x_of; i += kMadeRows) {
      const int64_t some = std::min(kMadeRows, rows - i);
      const Matrix m = silu_of(*call.x_of, row + i, some, input, inputs, made);
      pack_steps(m, m.data, some, inputs, call.word, x + words_of(i, call.word) * kPanel, panel);
    }
    for (int64_t first = output; first < stop; first += kBlockOutputs) {
      const int64_t outputs = std::min(kBlockOutputs, stop - first);
      for_parts(call.grad, first, first + outputs, [&](const Matrix& m, int64_t start, int64_t column, int64_t columns) {
        uint32_t* to = grad + (column - first) / kPanel * panel;
        pack_steps(m, row_of(m, row, column - start), rows, columns, call.word, to, panel);
      });
      if (bias) add_columns_cpu(grad, words, outputs, call.word, bias + first);
      multiply_cpu({grad, panel, true, x, panel, weight + (first - output) * weight_row, weight_row, outputs, inputs,
                    words, call.word, row > 0});
    }
  }
  for (int64_t i = output; i < stop && !wide; ++i) {
    uint16_t* to = static_cast<uint16_t*>(call.weight) + i * call.inputs + input;
    narrow_cpu(sums + (i - output) * inputs, inputs, DType::kBFloat16, to);
  }
}

}  // namespace fm
