// The EMA's coefficients and their gradients on the GPU; see coefficients.h.
#include "common/launch.h"
#include "ema/coefficients.h"

namespace fm {
namespace {

constexpr int kThreads = 128;
constexpr double kPi = 3.141592653589793;

__device__ __forceinline__ double sigmoid(double x) { return 1. / (1. + exp(-x)); }

struct Decay {
  double log, to_alpha, to_delta;  // log q without its angle, and its derivatives
};

// With u = e^-alpha + e^-delta + e^-(alpha + delta): 1 - sigmoid(alpha) sigmoid(delta) = u / (1 + u).
__device__ __forceinline__ Decay decay_of(double alpha, double delta) {
  const double least = fmin(alpha, delta);
  if (least > 40.) {  // u could vanish, and its last term is less than its last digit
    const double apart = alpha - delta;
    return {log1p(exp(-fabs(apart))) - least, -sigmoid(-apart), -sigmoid(apart)};
  }
  const double u = exp(-alpha) + exp(-delta) + exp(-alpha - delta);
  return {-log1p(1. / u), -sigmoid(-alpha) / u, -sigmoid(-delta) / u};
}

// Angle of component n in a step, divided by sigmoid(theta).
__device__ __forceinline__ double turn(const EmaShape& shape, int n) { return 2. * kPi * (n + 1) / shape.n; }

__device__ __forceinline__ double scale(const EmaShape& shape) { return 1. / sqrt(static_cast<double>(shape.n)); }

__global__ void __launch_bounds__(kThreads)
    coefficients_kernel(EmaShape shape, EmaLearned learned, EmaMadeCoefficients made) {
  const int64_t place = int64_t{blockIdx.x} * kThreads + threadIdx.x;  // in (K, N)
  if (place >= shape.width * shape.n) return;
  const double opened = sigmoid(learned.alpha[place]);
  const double log_decay = decay_of(learned.alpha[place], learned.delta[place]).log;
  if (shape.complex) {
    const double angle = turn(shape, static_cast<int>(place % shape.n)) * sigmoid(learned.beta[place / shape.n]);
    made.log_decay[2 * place] = static_cast<float>(log_decay);
    made.log_decay[2 * place + 1] = static_cast<float>(angle);
    made.expansion[place] = static_cast<float>(opened);
    for (int part = 0; part < 2; ++part) {
      made.projection[2 * place + part] = static_cast<float>(scale(shape) * learned.eta[2 * place + part]);
    }
  } else {
    made.log_decay[place] = static_cast<float>(log_decay);
    made.expansion[place] = static_cast<float>(opened * learned.beta[place]);
    made.projection[place] = static_cast<float>(scale(shape) * learned.eta[place]);
  }
}

// `share` lanes, a power of two up to 32, work on one row.
__global__ void __launch_bounds__(kThreads)
    coefficients_backward_kernel(EmaShape shape, EmaLearned learned, EmaCoefficients gradients, EmaLearnedGradients made,
                                 int share) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = thread / share;
  const bool exists = row < shape.width;
  const int lane = static_cast<int>(thread % share), parts = shape.complex ? 2 : 1;
  double turned = 0.;  // the gradient of sigmoid(theta)
  for (int n = lane; exists && n < shape.n; n += share) {
    const int64_t place = row * shape.n + n;
    const double alpha = learned.alpha[place], opened = sigmoid(alpha), by_expansion = gradients.expansion[place];
    const double by_decay = gradients.log_decay[parts * place];
    const Decay decay = decay_of(alpha, learned.delta[place]);
    const double expanded = shape.complex ? 1. : learned.beta[place];
    const double slope = opened * sigmoid(-alpha);
    made.alpha[place] = static_cast<float>(by_decay * decay.to_alpha + by_expansion * expanded * slope);
    made.delta[place] = static_cast<float>(by_decay * decay.to_delta);
    if (shape.complex) {
      turned += gradients.log_decay[2 * place + 1] * turn(shape, n);
    } else {
      made.beta[place] = static_cast<float>(by_expansion * opened);
    }
    for (int part = 0; part < parts; ++part) {
      made.eta[parts * place + part] = static_cast<float>(scale(shape) * gradients.projection[parts * place + part]);
    }
  }
  for (int distance = share / 2; distance > 0; distance /= 2) {
    turned += __shfl_xor_sync(0xffffffffu, turned, distance);
  }
  if (shape.complex && exists && lane == 0) {
    const double theta = learned.beta[row];
    made.beta[row] = static_cast<float>(turned * sigmoid(theta) * sigmoid(-theta));
  }
}

unsigned blocks_of(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

}  // namespace

int ema_coefficients_cuda(const EmaShape& shape, const EmaLearned& learned, const EmaMadeCoefficients& made,
                          void* stream) {
  FM_LAUNCH(blocks_of(shape.width * shape.n), kThreads, 0, stream, coefficients_kernel)(shape, learned, made);
  return FM_LAST_ERROR();
}

int ema_coefficients_backward_cuda(const EmaShape& shape, const EmaLearned& learned, const EmaCoefficients& gradients,
                                   const EmaLearnedGradients& made, void* stream) {
  int share = 1;
  while (share < 32 && share < shape.n) share *= 2;
  FM_LAUNCH(blocks_of(shape.width * share), kThreads, 0, stream, coefficients_backward_kernel)
  (shape, learned, gradients, made, share);
  return FM_LAST_ERROR();
}

}  // namespace fm
