#include "ema/cuda_launch.cuh"
#include "ema/cuda_scan.cuh"

namespace fm {

EMA_SCAN_LAUNCH(Complex, true)

}  // namespace fm
