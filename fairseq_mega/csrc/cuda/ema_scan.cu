// The EMA scan's host side: how a call is divided, its workspace, its launches. See ema_plan.cuh.
#include "cuda/ema_launch.cuh"
#include "cuda/ema_segments.cuh"

namespace fm {
namespace {

constexpr int64_t kInvalid = cudaErrorInvalidValue;
constexpr int64_t kLargest = 0x7fffffff, kLongest = 1 << 30;  // steps are counted in int, twice the length too

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

int multiprocessors() {
#if defined(FM_CUDA_SIM)
  return fm_sim::kMultiprocessors;
#else
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 100;
  }
  return count;
#endif
}

// Two blocks of 8 warps per multiprocessor keep it busy, as every thread works on 8 or 16 components at a time. Where
// whole sequences give half as many blocks or more, cutting them up would not pay for reading the input twice.
EmaPlan make_plan(const EmaShape& shape, bool gradient) {
  EmaPlan plan;
  const int floats = shape.parts();
  const bool lag = shape.truncation > 0;
  plan.warps = kMaxWarps;
  while (plan.warps > kMinWarps && plan.warps / 2 * kSteps >= shape.length) plan.warps /= 2;
  plan.n = static_cast<int>(round_up(shape.n, group_size(floats, gradient, lag)));
  plan.width = static_cast<int>(round_up(shape.width, kLanes));
  plan.rows = shape.bidirectional ? 2 * plan.width : plan.width;
  const int64_t tiles = ceil_div(shape.length, plan.tile()), units = shape.batch * (plan.width / kLanes);
  const int64_t processors = multiprocessors();
  int64_t segments = tiles;
  if (!shape.bidirectional) {
    segments = units >= processors ? 1 : std::min(tiles, ceil_div(2 * processors, units));
  }
  plan.tiles_per_segment = static_cast<int>(ceil_div(tiles, segments));
  plan.segments = static_cast<int>(ceil_div(tiles, plan.tiles_per_segment));
  plan.blocks = units * plan.segments;
  const int sets = lag && !shape.bidirectional ? 1 : 2;
  plan.carry_bytes = static_cast<int64_t>(sets) * plan.n * (gradient ? 4 : 1) * kLanes * floats * sizeof(float);
  plan.carry_in_shared = plan.carry_bytes <= kMaxSharedCarry;
  return plan;
}

bool possible(const EmaShape& shape, const EmaPlan& plan) {
  const int64_t states = shape.batch * plan.n * plan.rows;
  return shape.length <= kLongest && shape.width <= kLongest && plan.blocks <= kLargest &&
         static_cast<int64_t>(plan.n) * plan.rows <= kLargest && ceil_div(states, kSmallBlock) <= kLargest;
}

// Hands out pieces of the workspace; on a null pointer it only counts.
class Workspace {
 public:
  explicit Workspace(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <class T>
  T* take(int64_t count) {
    T* place = memory_ ? reinterpret_cast<T*>(memory_ + used_) : nullptr;
    used_ += round_up(count * static_cast<int64_t>(sizeof(T)), 256);
    return place;
  }
  int64_t used() const { return used_; }

 private:
  char* memory_;
  int64_t used_ = 0;
};

template <class T>
int64_t lay_out(EmaArguments<T>& a, bool gradient, void* memory) {
  Workspace workspace(memory);
  const int64_t table = static_cast<int64_t>(a.plan.n) * a.plan.rows;
  for (T** place : {&a.decay, &a.weight, &a.memory_weight, &a.lag, &a.lag_slope, &a.whole.high, &a.whole.low,
                    &a.whole.slope, &a.partial.high, &a.partial.low, &a.partial.slope}) {
    *place = workspace.take<T>(table);
  }
  if (a.plan.segments > 1) {
    const int64_t states = a.shape.batch * a.plan.segments * (gradient ? 2 : 1) * table;
    a.states = workspace.take<T>(states);
    if (!a.shape.bidirectional && a.shape.truncation == 0) a.memory_states = workspace.take<T>(states);
    a.cuts = workspace.take<int>(a.shape.batch * a.plan.segments * 2);
  }
  if (!a.plan.carry_in_shared) a.carry = workspace.take<T>(a.plan.blocks * a.plan.carry_bytes / sizeof(T));
  if (a.shape.truncation > 0) a.lag_ok = workspace.take<bool>(a.shape.batch * a.shape.length);
  return workspace.used();
}

template <class T>
EmaArguments<T> make_arguments(const EmaShape& shape, bool gradient) {
  EmaArguments<T> a{};
  a.shape = shape;
  a.plan = make_plan(shape, gradient);
  return a;
}

template <class T>
int64_t workspace_bytes(const EmaShape& shape, bool gradient) {
  EmaArguments<T> a = make_arguments<T>(shape, gradient);
  return lay_out(a, gradient, nullptr);
}

template <class T, bool kGradient>
int run(EmaArguments<T> a, const EmaCoefficients& c, const EmaInputs& in, void* workspace, void* stream) {
  if (!possible(a.shape, a.plan)) return kInvalid;
  lay_out(a, kGradient, workspace);
  a.c = c;
  a.padding = in.padding;
  a.reset = in.reset;
  const int64_t table = static_cast<int64_t>(a.plan.n) * a.plan.rows;
  const auto blocks = [](int64_t threads) { return static_cast<unsigned>(ceil_div(threads, kSmallBlock)); };
  FM_LAUNCH(blocks(table), kSmallBlock, 0, stream, ema_tables_kernel<T, kGradient>)(a);
  if (a.shape.truncation > 0 && a.reset != nullptr) {
    FM_LAUNCH(static_cast<unsigned>(a.shape.batch), kLanes, 0, stream, ema_lag_kernel)
    (a.reset, a.lag_ok, a.shape.length, a.shape.truncation);
  }
  const bool segmented = a.plan.segments > 1;
  if (segmented) {
    a.totals = true;
    ema_scan_launch<T, kGradient>(a, stream);
    FM_LAUNCH(blocks(a.shape.batch * table), kSmallBlock, 0, stream, ema_carry_kernel<T, kGradient>)(a);
    a.totals = false;
  }
  ema_scan_launch<T, kGradient>(a, stream);
  if (kGradient && segmented) {
    FM_LAUNCH(blocks(a.shape.batch * table), kSmallBlock, 0, stream, ema_sum_kernel<T>)(a);
  }
  return FM_LAST_ERROR();
}

template <class T>
int forward(const EmaShape& shape, const EmaCoefficients& c, const EmaInputs& in, const EmaOutputs& out,
            void* workspace, void* stream) {
  EmaArguments<T> a = make_arguments<T>(shape, false);
  a.input = in.x;
  a.output = out.y;
  a.state = in.state;
  a.final_state = out.final_state;
  return run<T, false>(a, c, in, workspace, stream);
}

template <class T>
int backward(const EmaShape& shape, const EmaCoefficients& c, const EmaInputs& in, const EmaGradients& out,
             void* workspace, void* stream) {
  EmaArguments<T> a = make_arguments<T>(shape, true);
  a.input = out.grad_y;
  a.x = in.x;
  a.output = out.grad_x;
  a.state = out.grad_final_state;
  a.moments = out.moments;
  a.moments_memory = out.moments_state;
  return run<T, true>(a, c, in, workspace, stream);
}

bool is_empty(const EmaShape& shape) { return shape.batch == 0 || shape.length == 0 || shape.width == 0; }

// Lags beyond the length count nothing: the same as none.
EmaShape effective(EmaShape shape) {
  if (shape.truncation >= shape.length) shape.truncation = 0;
  return shape;
}

}  // namespace

int64_t ema_scan_workspace_cuda(const EmaShape& given, bool backward) {
  if (is_empty(given)) return 0;
  const EmaShape shape = effective(given);
  return shape.complex ? workspace_bytes<Complex>(shape, backward) : workspace_bytes<float>(shape, backward);
}

int ema_scan_forward_cuda(const EmaShape& given, const EmaCoefficients& c, const EmaInputs& in, const EmaOutputs& out,
                          void* workspace, void* stream) {
  if (is_empty(given)) return 0;
  const EmaShape shape = effective(given);
  return shape.complex ? forward<Complex>(shape, c, in, out, workspace, stream)
                       : forward<float>(shape, c, in, out, workspace, stream);
}

int ema_scan_backward_cuda(const EmaShape& given, const EmaCoefficients& c, const EmaInputs& in,
                           const EmaGradients& out, void* workspace, void* stream) {
  if (is_empty(given)) return 0;
  const EmaShape shape = effective(given);
  return shape.complex ? backward<Complex>(shape, c, in, out, workspace, stream)
                       : backward<float>(shape, c, in, out, workspace, stream);
}

}  // namespace fm
