#pragma once
// Complex FFTs of N = 2^n points in shared memory, by one block: decimation in frequency forward, in time backward,
// both in place. The spectrum stays in bit-reversed order, so nothing is ever reordered.
//
// N = Q 16^k with Q = 2, 4, 8 or 16. The first pass (radix Q) happens in registers while the data is loaded and, on
// the way back, while it is stored; k passes of radix 16 work in shared memory. The first pass splits the transform
// into its even and odd frequencies, each an array of M = N/2 points, which then have nothing to do with each other.
//
// Twiddle factors come from sincospif: two calls serve sixteen points, every angle is a multiple of a power of two and
// therefore exact, and no factor is a product of more than four rounded ones.
#include "common/launch.h"

namespace fm {
namespace fft {

__device__ __forceinline__ float2 add(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float2 sub(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ __forceinline__ float2 scale(float2 a, float s) { return make_float2(a.x * s, a.y * s); }
__device__ __forceinline__ float2 conj(float2 a) { return make_float2(a.x, -a.y); }
__device__ __forceinline__ float2 mul(float2 a, float2 b) {
  return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
__device__ __forceinline__ float2 mul_conj(float2 a, float2 b) {  // a conj(b)
  return make_float2(a.x * b.x + a.y * b.y, a.y * b.x - a.x * b.y);
}
template <bool kInverse>
__device__ __forceinline__ float2 twist(float2 a, float2 w) {
  return kInverse ? mul_conj(a, w) : mul(a, w);
}
// exp(-i pi x)
__device__ __forceinline__ float2 unit(float x) {
  float s, c;
  sincospif(x, &s, &c);
  return make_float2(c, -s);
}

// A value about which the compiler knows nothing: what is computed from it cannot be moved out of a loop.
__device__ __forceinline__ int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Positions are spread by one place in sixteen, so that neither 16 neighbours nor 16 steps of 16 meet in a bank.
__host__ __device__ __forceinline__ int spread(int position) { return position + (position >> 4); }

// The lowest `bits` bits of `value` the other way round; number of the highest bit set.
#if defined(FM_CUDA_SIM)
inline int reverse_bits(int value, int bits) {
  int result = 0;
  for (int i = 0; i < bits; ++i) result |= ((value >> i) & 1) << (bits - 1 - i);
  return result;
}
inline int highest_bit(int value) { return 31 - __builtin_clz(value); }
#else
__device__ __forceinline__ int reverse_bits(int value, int bits) {
  return static_cast<int>(__brev(static_cast<unsigned>(value)) >> (32 - bits));
}
__device__ __forceinline__ int highest_bit(int value) { return 31 - __clz(value); }
#endif

// a exp(-2 pi i k/16), or its inverse, 0 <= k < 8; k is known when compiled, and little is left of this.
template <bool kInverse>
__device__ __forceinline__ float2 rotate(float2 a, int k) {
  constexpr float c1 = 0.923879532511286756f, c2 = 0.707106781186547524f, c3 = 0.382683432365089772f;
  switch (k) {
    case 0: return a;
    case 1: return twist<kInverse>(a, make_float2(c1, -c3));
    case 2: return kInverse ? make_float2((a.x - a.y) * c2, (a.x + a.y) * c2)
                            : make_float2((a.x + a.y) * c2, (a.y - a.x) * c2);
    case 3: return twist<kInverse>(a, make_float2(c3, -c1));
    case 4: return kInverse ? make_float2(-a.y, a.x) : make_float2(a.y, -a.x);
    case 5: return twist<kInverse>(a, make_float2(-c3, -c1));
    case 6: return kInverse ? make_float2((-a.x - a.y) * c2, (a.x - a.y) * c2)
                            : make_float2((a.y - a.x) * c2, (-a.x - a.y) * c2);
    default: return twist<kInverse>(a, make_float2(-c1, -c3));
  }
}

// Which output of a radix-R butterfly lies in slot s: the bits of s the other way round.
template <int R>
__host__ __device__ constexpr int output_of(int s) {
  int k = 0;
  for (int bit = 1, other = R >> 1; bit < R; bit <<= 1, other >>= 1) k |= (s & bit) ? other : 0;
  return k;
}

// The layers of a radix-2 butterfly network with distances kWidest, kWidest/2, ..., kNarrowest; and back.
template <int R, int kWidest = R / 2, int kNarrowest = 1>
__device__ __forceinline__ void butterfly_forward(float2 (&v)[R]) {
#pragma unroll
  for (int half = kWidest; half >= kNarrowest && half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (i & half) continue;
      const float2 a = v[i], b = v[i + half];
      v[i] = add(a, b);
      v[i + half] = rotate<false>(sub(a, b), (i & (half - 1)) * (8 / half));
    }
  }
}
template <int R, int kWidest = R / 2, int kNarrowest = 1>
__device__ __forceinline__ void butterfly_inverse(float2 (&v)[R]) {
#pragma unroll
  for (int half = kNarrowest; half <= kWidest; half *= 2) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (i & half) continue;
      const float2 a = v[i], b = rotate<true>(v[i + half], (i & (half - 1)) * (8 / half));
      v[i] = add(a, b);
      v[i + half] = sub(a, b);
    }
  }
}

// Multiplies groups of slots by the powers 0..3 of exp(-i pi angle) (or their conjugates). kShift = 2: by the two lowest
// bits of the output that will end in the slot, settled once the layers 8 and 4 are done; 0: by its two highest bits.
template <int kShift, bool kInverse>
__device__ __forceinline__ void twiddle_quarters(float2 (&v)[16], float angle) {
  const float2 w1 = unit(angle), w2 = mul(w1, w1), w3 = mul(w2, w1);
#pragma unroll
  for (int s = 0; s < 16; ++s) {
    const int power = output_of<4>((s >> kShift) & 3);
    if (power > 0) v[s] = twist<kInverse>(v[s], power == 1 ? w1 : power == 2 ? w2 : w3);
  }
}

// A radix-16 butterfly with its twiddle factors w^k, w = exp(-i pi angle), applied in two steps: fewer live at once.
// `twiddled` is false where all factors are one.
__device__ __forceinline__ void radix16_forward(float2 (&v)[16], float angle, bool twiddled) {
  butterfly_forward<16, 8, 4>(v);
  if (twiddled) twiddle_quarters<2, false>(v, angle);
  butterfly_forward<16, 2, 1>(v);
  if (twiddled) twiddle_quarters<0, false>(v, 4.f * angle);
}
__device__ __forceinline__ void radix16_inverse(float2 (&v)[16], float angle, bool twiddled) {
  if (twiddled) twiddle_quarters<0, true>(v, 4.f * angle);
  butterfly_inverse<16, 2, 1>(v);
  if (twiddled) twiddle_quarters<2, true>(v, angle);
  butterfly_inverse<16, 8, 4>(v);
}

// Multiplies the output k in each slot by w^(kStep k + kFirst) (or its conjugate), w = exp(-i pi angle).
template <int R, int kStep, int kFirst, bool kInverse>
__device__ __forceinline__ void twiddle(float2 (&v)[R], float angle) {
  float2 low[4], high[4];  // powers 0..3 and 0, 4, 8, 12
  low[1] = unit(angle);
  low[2] = mul(low[1], low[1]);
  low[3] = mul(low[2], low[1]);
  high[1] = unit(4.f * angle);
  high[2] = mul(high[1], high[1]);
  high[3] = mul(high[2], high[1]);
#pragma unroll
  for (int s = 0; s < R; ++s) {
    const int power = kStep * output_of<R>(s) + kFirst, a = power & 3, b = power >> 2;
    if (power == 0) continue;
    v[s] = twist<kInverse>(v[s], b == 0 ? low[a] : a == 0 ? high[b] : mul(low[a], high[b]));
  }
}

// First pass forward: v[s] = z[j + s h] of the first half of N = 2 R h points of which the second half is zero (or has
// been folded onto the first: added for the even, subtracted for the odd frequencies). Leaves the values of the even or
// the odd array at positions j + s h.
template <int R, bool kOdd>
__device__ __forceinline__ void first_pass(float2 (&v)[R], int j, float two_over_n) {
  if (kOdd) {
#pragma unroll
    for (int s = 1; s < R; ++s) v[s] = rotate<false>(v[s], s * (8 / R));
  }
  butterfly_forward(v);
  twiddle<R, 2, kOdd, false>(v, static_cast<float>(j) * two_over_n);
}

// The way back: what the even or the odd array contributes to z[j + s h], without the factor 1/N.
template <int R, bool kOdd>
__device__ __forceinline__ void last_pass(float2 (&v)[R], int j, float two_over_n) {
  twiddle<R, 2, kOdd, true>(v, static_cast<float>(j) * two_over_n);
  butterfly_inverse(v);
  if (kOdd) {
#pragma unroll
    for (int s = 1; s < R; ++s) v[s] = rotate<true>(v[s], s * (8 / R));
  }
}

// One pass of radix 16 over blocks of 16 h points. `arrays` arrays of 2^log_points points lie `stride` apart.
template <bool kInverse>
__device__ __forceinline__ void pass16(float2* z, int arrays, int log_points, int stride, int log_h) {
  const int h = 1 << log_h, log_units = log_points - 4, step = spread(h);
  const float two_over_m = 2.f / static_cast<float>(16 * h);
  for (int i = threadIdx.x; i < arrays << log_units; i += blockDim.x) {
    const int unit = i & ((1 << log_units) - 1), j = unit & (h - 1);
    float2* p = z + (i >> log_units) * stride + spread((unit - j) * 16 + j);
    float2 v[16];
#pragma unroll
    for (int s = 0; s < 16; ++s) v[s] = p[s * step];
    if (kInverse) radix16_inverse(v, static_cast<float>(j) * two_over_m, log_h > 0);
    else radix16_forward(v, static_cast<float>(j) * two_over_m, log_h > 0);
#pragma unroll
    for (int s = 0; s < 16; ++s) p[s * step] = v[s];
  }
  __syncthreads();
}

// What is left of the transforms after the first pass and its barrier, resp. before the last; both end with a barrier.
__device__ __forceinline__ void forward(float2* z, int arrays, int log_points, int stride, int passes) {
  for (int log_h = 4 * (passes - 1); log_h >= 0; log_h -= 4) pass16<false>(z, arrays, log_points, stride, log_h);
}
__device__ __forceinline__ void inverse(float2* z, int arrays, int log_points, int stride, int passes) {
  for (int log_h = 0; log_h < 4 * passes; log_h += 4) pass16<true>(z, arrays, log_points, stride, log_h);
}

// Positions of a frequency f and of N - f in bit-reversed order: they mirror each other within [2^i, 2^(i+1)). Pair
// 0 < u < N/2; the positions 0 and 1 (f = 0 and N/2) are their own mirrors.
struct Pair {
  int first, second;
};
__device__ __forceinline__ Pair mirrored(int u) {
  const int top = 1 << highest_bit(u);
  return {u + top, 5 * top - 1 - u};
}

}  // namespace fft
}  // namespace fm
