// The EMA scan's host side: how a call is divided, its workspace, its launches. See ema_plan.cuh.
#include "ema/cuda_launch.cuh"
#include "ema/cuda_segments.cuh"
#include "common/device.h"

namespace fm {
namespace {

constexpr int64_t kInvalid = cudaErrorInvalidValue;
constexpr int64_t kLargest = 0x7fffffff, kLongest = 1 << 30;  // steps are counted in int, twice the length too

int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

EmaPlan make_plan(const EmaShape& shape, bool gradient) {
  EmaPlan plan;
  const int floats = shape.parts();
  const bool lag = shape.truncation > 0;
  const EmaDivision division = ema_division(shape, cuda_multiprocessors(), gradient && lag);
  plan.warps = division.warps;
  plan.tiles_per_segment = static_cast<int>(division.tiles_per_segment);
  plan.segments = static_cast<int>(division.segments);
  plan.blocks = division.blocks();
  plan.two_walks = shape.bidirectional && plan.segments == 1 && plan.tiles_per_segment > 1;
  plan.n = static_cast<int>(round_up(shape.n, group_size(floats, gradient, lag)));
  plan.width = static_cast<int>(round_up(shape.width, kLanes));
  plan.rows = shape.bidirectional ? 2 * plan.width : plan.width;
  const int sets = lag && !shape.bidirectional ? 1 : 2;
  plan.record_bytes = static_cast<int64_t>(sets) * plan.n * record_size(gradient, lag) * kLanes * floats * sizeof(float);
  const int64_t room = cuda_shared_bytes() - shared_bytes(plan);
  plan.records_in_shared = plan.record_bytes <= std::min<int64_t>(kMaxSharedRecords, room);
  return plan;
}

bool possible(const EmaShape& shape, const EmaPlan& plan) {
  const int64_t states = shape.batch * plan.n * plan.rows, steps = shape.batch * round_up(shape.length, kLanes);
  const int64_t threads = std::max(states, steps);  // of the small kernels
  return shape.length <= kLongest && shape.width <= kLongest && plan.blocks <= kLargest &&
         static_cast<int64_t>(plan.n) * plan.rows <= kLargest && ceil_div(threads, kSmallBlock) <= kLargest;
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
  if (a.plan.segments > 1) {
    const int64_t states = a.shape.batch * a.plan.segments * (gradient ? 2 : 1) * table;
    a.states = workspace.take<T>(states);
    if (!a.shape.bidirectional && a.shape.truncation == 0) a.memory_states = workspace.take<T>(states);
    a.cuts = workspace.take<int>(a.shape.batch * a.plan.segments * 2);
  }
  if (a.plan.two_walks) {
    const int64_t of_tile = static_cast<int64_t>(gradient ? 2 : 1) * a.plan.n * a.plan.width;
    a.states = workspace.take<T>(a.shape.batch * a.plan.tiles_per_segment * of_tile);
  }
  if (gradient) {
    for (int memory = 0; memory < 2; ++memory) {
      const bool stateless = a.shape.bidirectional || a.shape.truncation > 0;
      if (memory && stateless) break;
      a.sums[memory] = workspace.take<T>(a.shape.batch * a.plan.segments * 2 * table);
      if (!memory) a.omega_sums = workspace.take<float>(a.plan.blocks * kLanes);
      if (!stateless) a.first[memory] = workspace.take<T>(a.shape.batch * 2 * table);
    }
  }
  if (!a.plan.records_in_shared) a.records = workspace.take<T>(a.plan.blocks * a.plan.record_bytes / sizeof(T));
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
int run(EmaArguments<T> a, const EmaCoefficients& c, const EmaInputs& in, const EmaGate& gate, void* workspace,
        void* stream) {
  if (!possible(a.shape, a.plan)) return kInvalid;
  lay_out(a, kGradient, workspace);
  a.c = c;
  a.gate = gate;
  a.padding = in.padding;
  a.reset = in.reset;
  const int64_t table = static_cast<int64_t>(a.plan.n) * a.plan.rows;
  const auto blocks = [](int64_t threads) { return static_cast<unsigned>(ceil_div(threads, kSmallBlock)); };
  if (a.shape.truncation > 0 && a.reset != nullptr) {
    FM_LAUNCH(blocks(a.shape.batch * round_up(a.shape.length, kLanes)), kSmallBlock, 0, stream, ema_lag_kernel)
    (a.reset, a.lag_ok, a.shape.batch, a.shape.length, a.shape.truncation);
  }
  const bool segmented = a.plan.segments > 1;
  if (segmented || a.plan.two_walks) {
    a.totals = true;
    if (const int error = ema_scan_launch<T, kGradient>(a, stream)) return error;
    a.totals = false;
  }
  if (segmented) {
    FM_LAUNCH(blocks(a.shape.batch * table), kSmallBlock, 0, stream, ema_carry_kernel<T, kGradient>)(a);
  }
  if (const int error = ema_scan_launch<T, kGradient>(a, stream)) return error;
  return FM_LAST_ERROR();
}

template <class T>
int forward(const EmaShape& shape, const EmaCoefficients& c, const EmaInputs& in, const EmaGate& gate,
            const EmaOutputs& out, void* workspace, void* stream) {
  EmaArguments<T> a = make_arguments<T>(shape, false);
  a.input = in.x;
  a.output = out.y;
  a.state = in.state;
  a.final_state = out.final_state;
  return run<T, false>(a, c, in, gate, workspace, stream);
}

template <class T>
int backward(const EmaShape& shape, const EmaCoefficients& c, const EmaInputs& in, const EmaGate& gate,
             const EmaGradients& out, const EmaCoefficientGradients& made, void* workspace, void* stream) {
  EmaArguments<T> a = make_arguments<T>(shape, true);
  a.input = out.grad_y;
  a.x = in.x;
  a.output = out.grad_x;
  a.state = out.grad_final_state;
  a.incoming = in.state;
  a.made = made;
  return run<T, true>(a, c, in, gate, workspace, stream);
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

int ema_scan_forward_cuda(const EmaShape& given, const EmaCoefficients& c, const EmaInputs& in, const EmaGate& gate,
                          const EmaOutputs& out, void* workspace, void* stream) {
  if (is_empty(given)) return 0;
  const EmaShape shape = effective(given);
  return shape.complex ? forward<Complex>(shape, c, in, gate, out, workspace, stream)
                       : forward<float>(shape, c, in, gate, out, workspace, stream);
}

int ema_scan_backward_cuda(const EmaShape& given, const EmaCoefficients& c, const EmaInputs& in, const EmaGate& gate,
                           const EmaGradients& out, const EmaCoefficientGradients& made, void* workspace,
                           void* stream) {
  if (is_empty(given)) return 0;
  const EmaShape shape = effective(given);
  return shape.complex ? backward<Complex>(shape, c, in, gate, out, made, workspace, stream)
                       : backward<float>(shape, c, in, gate, out, made, workspace, stream);
}

}  // namespace fm
