// Operators of the ring convolution: shapes, types and memory; see fft_conv.h for what they compute.
#include <string>

#include "common/bindings.h"
#include "fft_conv/fft_conv.h"

FM_LIBRARY(m) {
  m.def("ring_shared_memory(int columns) -> int");
  m.def("ring_convolution(Tensor x, Tensor ring) -> Tensor");
  m.def("ring_convolution_backward(Tensor grad_y, Tensor x, Tensor ring) -> (Tensor, Tensor)");
}

#if defined(FM_WITH_CUDA)
namespace fm {
namespace {

RingShape shape_of(const Tensor& x, const Tensor& ring, const char* op) {
  RingShape shape;
  check_devices(op, {{"x", x}, {"ring", ring}});
  STD_TORCH_CHECK(x.dim() == 3, op, ": x must be (B, L, D)");
  shape.batch = x.size(0);
  shape.length = x.size(1);
  shape.width = x.size(2);
  shape.dtype = element_type(x, (std::string(op) + ": x").c_str());
  STD_TORCH_CHECK(ring.scalar_type() == ScalarType::Float, op, ": ring must be float32");
  STD_TORCH_CHECK(ring.dim() == 2 && ring.size(0) == shape.width, op, ": ring must be (D, 2S), with the D of x");
  const int64_t smallest = int64_t{1} << kRingSmallest, largest = int64_t{1} << kRingLargest;
  shape.log_size = kRingSmallest;
  while (shape.log_size < kRingLargest && 2 * shape.size() < ring.size(1)) ++shape.log_size;
  STD_TORCH_CHECK(2 * shape.size() == ring.size(1), op, ": ring must be (D, 2S) with S a power of two from ", smallest,
                  " to ", largest, ", found ", ring.size(1), " columns");
  STD_TORCH_CHECK(shape.length <= shape.size(), op, ": x has ", shape.length, " steps, a ring of ", ring.size(1),
                  " columns serves ", shape.size(), " at most");
  return shape;
}

void check_blocks(const RingShape& shape, const char* op) {
  const int64_t tiles = ((shape.length + 31) / 32) * ((shape.width + 31) / 32);
  STD_TORCH_CHECK(shape.batch * std::max(shape.width, tiles) < (int64_t{1} << 30), op,
                  ": too many rows, B times D must be below 2^30");
}

Tensor workspace(const RingShape& shape, bool gradient, const Tensor& ring) {
  const int64_t floats = ring_workspace_cuda(shape, gradient) / static_cast<int64_t>(sizeof(float));
  return torch::stable::new_empty(ring, {floats});
}

void check(int error, const RingShape& shape, const char* op) {
  const char* const hint = shape.log_size == kRingLargest
                               ? " (S = 16384 needs 137 KiB of shared memory per block, which GPUs of compute "
                                 "capability 8.0, 9.0 and 10.0 have)"
                               : "";
  check_cuda(op, error, hint);
}

// A tensor (B, L, D) as the kernels read it: itself, or a copy as (B, D, L) where that is faster.
struct Input {
  Tensor tensor;
  Sequence sequence;

  Input(const Tensor& x, const RingShape& shape, void* stream, const char* op)
      : tensor(x), sequence{nullptr, x.stride(0), x.stride(1), x.stride(2)} {
    if (ring_prefers_time_last_cuda(shape) && sequence.time != 1) {
      tensor = torch::stable::new_empty(x, {shape.batch, shape.width, shape.length});
      check(transpose_cuda(x.const_data_ptr(), shape.batch, shape.length, shape.width, sequence.batch, sequence.time,
                           sequence.channel, static_cast<int>(x.element_size()), tensor.mutable_data_ptr(), stream),
            shape, op);
      sequence = {nullptr, shape.width * shape.length, 1, shape.length};
    }
    sequence.data = tensor.const_data_ptr();
  }
};

// y (B, L, D), contiguous.
Tensor convolve(const RingShape& shape, const Sequence& x, const Tensor& like, const Tensor& ring, bool reversed,
                void* work, void* stream, const char* op) {
  const int64_t length = shape.length, width = shape.width;
  Tensor y = torch::stable::new_empty(like, {shape.batch, length, width});
  const float* const kernel = ring.const_data_ptr<float>();
  if (!ring_prefers_time_last_cuda(shape)) {
    const SequenceOut out{y.mutable_data_ptr(), length * width, width, 1};
    check(ring_convolution_cuda(shape, x, kernel, reversed, out, work, stream), shape, op);
    return y;
  }
  Tensor rows = torch::stable::new_empty(like, {shape.batch, width, length});
  const SequenceOut out{rows.mutable_data_ptr(), length * width, 1, length};
  check(ring_convolution_cuda(shape, x, kernel, reversed, out, work, stream), shape, op);
  check(transpose_cuda(rows.const_data_ptr(), shape.batch, width, length, length * width, length, 1,
                       static_cast<int>(like.element_size()), y.mutable_data_ptr(), stream),
        shape, op);
  return y;
}

int64_t ring_shared_memory(int64_t columns) {
  int log_size = kRingSmallest;
  while (log_size < kRingLargest && (int64_t{2} << log_size) < columns) ++log_size;
  return ring_shared_bytes_cuda(log_size);
}

Tensor ring_convolution(Tensor x, Tensor ring) {
  constexpr const char* op = "ring_convolution";
  const RingShape shape = shape_of(x, ring, op);
  if (x.numel() == 0) return torch::stable::new_empty(x, {shape.batch, shape.length, shape.width});
  check_blocks(shape, op);
  const DeviceOf device(x);
  void* const stream = current_stream(x);
  ring = packed(ring);
  Tensor work = workspace(shape, false, ring);
  const Input input(x, shape, stream, op);
  return convolve(shape, input.sequence, x, ring, false, work.mutable_data_ptr(), stream, op);
}

std::tuple<Tensor, Tensor> ring_convolution_backward(Tensor grad_y, Tensor x, Tensor ring) {
  constexpr const char* op = "ring_convolution_backward";
  const RingShape shape = shape_of(x, ring, op);
  STD_TORCH_CHECK(grad_y.dim() == 3 && grad_y.size(0) == shape.batch && grad_y.size(1) == shape.length &&
                      grad_y.size(2) == shape.width && grad_y.scalar_type() == x.scalar_type(),
                  op, ": grad_y must have the shape and the dtype of x");
  check_devices(op, {{"x", x}, {"grad_y", grad_y}});
  Tensor grad_ring = torch::stable::new_empty(ring, {shape.width, 2 * shape.size()});
  if (x.numel() == 0) {
    torch::stable::zero_(grad_ring);
    return {torch::stable::new_empty(x, {shape.batch, shape.length, shape.width}), grad_ring};
  }
  check_blocks(shape, op);
  const DeviceOf device(x);
  void* const stream = current_stream(x);
  ring = packed(ring);
  Tensor work = workspace(shape, true, ring);  // first the ring's spectrum, then the sums
  const Input gradient(grad_y, shape, stream, op), input(x, shape, stream, op);
  Tensor grad_x = convolve(shape, gradient.sequence, x, ring, true, work.mutable_data_ptr(), stream, op);
  check(ring_gradient_cuda(shape, gradient.sequence, input.sequence, grad_ring.mutable_data_ptr<float>(),
                           work.mutable_data_ptr(), stream),
        shape, op);
  return {grad_x, grad_ring};
}

}  // namespace
}  // namespace fm

FM_LIBRARY_IMPL_(FM_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("ring_shared_memory", TORCH_BOX(&fm::ring_shared_memory));
}

FM_LIBRARY_CUDA(m) {
  m.impl("ring_convolution", TORCH_BOX(&fm::ring_convolution));
  m.impl("ring_convolution_backward", TORCH_BOX(&fm::ring_convolution_backward));
}
#endif
