#pragma once
// The EMA's coefficients from its learned parameters, and their gradients: a kernel each, for GPUs.
//
//   log q = log(1 - sigmoid(alpha) sigmoid(delta))      for the complex EMA plus i 2 pi n / N sigmoid(theta), n = 1..N
//   p     = sigmoid(alpha) beta                         for the complex EMA sigmoid(alpha)
//   g     = eta / sqrt(N)                               for the complex EMA gamma / sqrt(N)
//
// Within, all is in double precision; no difference of large numbers is formed.
#include "ema/ema_scan.h"

namespace fm {

struct EmaLearned {     // float32, and their gradients
  const float *alpha, *delta;  // (K, N)
  const float* beta;           // (K, N); theta (K, 1) of the complex EMA
  const float* eta;            // (K, N); gamma (K, N, 2) of the complex EMA
};

struct EmaLearnedGradients {
  float *alpha, *delta, *beta, *eta;
};

struct EmaMadeCoefficients {  // as EmaCoefficients, to be written
  float *log_decay, *expansion, *projection;
};

// Of a shape they read width, which is K here, n and complex.
int ema_coefficients_cuda(const EmaShape&, const EmaLearned&, const EmaMadeCoefficients&, void* stream);
int ema_coefficients_backward_cuda(const EmaShape&, const EmaLearned&, const EmaCoefficients& gradients,
                                   const EmaLearnedGradients&, void* stream);

}  // namespace fm
