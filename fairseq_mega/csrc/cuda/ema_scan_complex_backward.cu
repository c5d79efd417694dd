#include "cuda/ema_launch.cuh"
#include "cuda/ema_scan.cuh"

namespace fm {

EMA_SCAN_LAUNCH(Complex, true)

}  // namespace fm
