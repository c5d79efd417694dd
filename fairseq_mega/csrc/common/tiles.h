#pragma once
// Tiles of a (B, L, D) tensor in float32: a few consecutive time steps of a block of channels, one vector register per
// step and group of channels. Reading and writing them is where element types, masks and the direction of time end.
// What is written here for a Vec takes the vectors of every length, see kVector in elements.h.
#include <cstdint>
#include <cstring>
#include <new>

#include "common/common.h"

namespace fm {

constexpr int kChannels = 32;  // channels of a block: two cache lines of float32
constexpr int kSteps = 32;     // time steps of a tile at most

template <class Vec>
constexpr int kLanes = sizeof(Vec) / sizeof(float);
template <class Vec>
constexpr int kGroups = kChannels / kLanes<Vec>;  // vectors side by side

template <class Vec>
using Tile = Vec[kGroups<Vec>][kSteps];

// An array of Vec in memory aligned for every instruction set. (std::vector would go by the alignment of the baseline,
// which is smaller than what the AVX versions of a function rely on.)
template <class Vec>
class VecArray {
 public:
  VecArray() = default;
  VecArray(const VecArray&) = delete;
  VecArray& operator=(const VecArray&) = delete;
  ~VecArray() { release(); }

  // Sets the size, and all elements to zero.
  void clear(size_t size) {
    if (size != size_) {
      release();
      data_ = size ? static_cast<Vec*>(::operator new(size * sizeof(Vec), std::align_val_t(64))) : nullptr;
      size_ = size;
    }
    clear();
  }
  void clear() {
    if (size_) std::memset(static_cast<void*>(data_), 0, size_ * sizeof(Vec));
  }
  size_t size() const { return size_; }
  Vec& operator[](size_t i) { return data_[i]; }
  const Vec& operator[](size_t i) const { return data_[i]; }

 private:
  void release() { ::operator delete(data_, std::align_val_t(64)); }
  Vec* data_ = nullptr;
  size_t size_ = 0;
};

FM_INLINE float to_float(uint16_t bits, DType dtype) {
  if (dtype == DType::kBFloat16) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7fffu;
  uint32_t wide;
  if (magnitude >= 0x7c00u) {
    wide = 0x7f800000u | (magnitude & 0x3ffu) << 13;  // infinity, NaN
  } else if (magnitude >= 0x400u) {
    wide = (magnitude << 13) + 0x38000000u;
  } else {  // zero, or a number below the normal range: exact as a float32 product
    const float small = static_cast<float>(magnitude) * 0x1p-24f;
    std::memcpy(&wide, &small, sizeof wide);
  }
  wide |= sign;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Rounds to nearest, ties to even; NaN stays NaN.
FM_INLINE uint16_t from_float(float value, DType dtype) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (dtype == DType::kBFloat16) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds past the largest: infinity
  if (magnitude >= 0x38800000u) {
    const uint32_t rebased = magnitude - 0x38000000u;
    return static_cast<uint16_t>(sign | (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
  }
  float small;  // below the normal range: adding 0.5 leaves multiples of 2^-24, rounded by the addition
  std::memcpy(&small, &magnitude, sizeof small);
  small += 0.5f;
  std::memcpy(&bits, &small, sizeof bits);
  return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
}

// Where the channels [first, first + valid) of one sequence lie in memory, and how its time runs.
struct Rows {
  int64_t length, width;  // L, D
  int64_t batch_index, first;
  int valid;  // channels that exist, 1 .. kChannels
  DType dtype;
  bool reversed;
  const bool* skipped;  // (B, L) or null: steps that read as zero and are written as zero

  int64_t time(int64_t step) const { return reversed ? length - 1 - step : step; }
  int64_t row(int64_t step) const { return batch_index * length + time(step); }
};

template <class Vec>
FM_INLINE void read_row(Vec* target /* [kGroups], stride kSteps */, const Rows& rows, const void* data, int64_t step) {
  const int64_t row = rows.row(step);
  alignas(64) float values[kChannels];
  if (rows.skipped && rows.skipped[row]) {
    std::memset(values, 0, sizeof values);
  } else if (rows.dtype == DType::kFloat32) {
    const float* source = static_cast<const float*>(data) + row * rows.width + rows.first;
    if (rows.valid == kChannels) {
      std::memcpy(values, source, sizeof values);
    } else {
      for (int i = 0; i < kChannels; ++i) values[i] = i < rows.valid ? source[i] : 0.f;
    }
  } else {
    const uint16_t* source = static_cast<const uint16_t*>(data) + row * rows.width + rows.first;
    for (int i = 0; i < kChannels; ++i) values[i] = i < rows.valid ? to_float(source[i], rows.dtype) : 0.f;
  }
  for (int group = 0; group < kGroups<Vec>; ++group) {
    std::memcpy(&target[group * kSteps], values + group * kLanes<Vec>, sizeof(Vec));
  }
}

// Steps start .. start + count - 1 of the sequence; those outside [from, to) read as zero.
template <class Vec>
FM_INLINE void read_tile(Tile<Vec>& tile, const Rows& rows, const void* data, int64_t start, int count, int64_t from,
                         int64_t to) {
  for (int i = 0; i < count; ++i) {
    const int64_t step = start + i;
    if (step >= from && step < to) {
      read_row(&tile[0][i], rows, data, step);
    } else {
      for (int group = 0; group < kGroups<Vec>; ++group) tile[group][i] = Vec{};
    }
  }
}

// Asks for the memory of steps [start, start + count) ahead of time.
FM_INLINE void prefetch_tile(const Rows& rows, const void* data, int64_t start, int count) {
  const int64_t size = rows.dtype == DType::kFloat32 ? 4 : 2;
  for (int i = 0; i < count; ++i) {
    const int64_t step = start + i;
    if (step < 0 || step >= rows.length) continue;
    const char* address = static_cast<const char*>(data) + (rows.row(step) * rows.width + rows.first) * size;
    __builtin_prefetch(address);
    if (size == 4) __builtin_prefetch(address + 64);
  }
}

// Writes a tile; with `add` to what is there (float32 only).
template <class Vec>
FM_INLINE void write_tile(const Tile<Vec>& tile, const Rows& rows, void* data, int64_t start, int count, bool add) {
  for (int i = 0; i < count; ++i) {
    const int64_t row = rows.row(start + i);
    alignas(64) float values[kChannels];
    for (int group = 0; group < kGroups<Vec>; ++group) {
      std::memcpy(values + group * kLanes<Vec>, &tile[group][i], sizeof(Vec));
    }
    if (rows.skipped && rows.skipped[row]) std::memset(values, 0, sizeof values);
    if (rows.dtype == DType::kFloat32) {
      float* target = static_cast<float*>(data) + row * rows.width + rows.first;
      if (rows.valid == kChannels) {
        if (add) {
          for (int j = 0; j < kChannels; ++j) values[j] += target[j];
        }
        std::memcpy(target, values, sizeof values);
      } else {
        for (int j = 0; j < rows.valid; ++j) target[j] = add ? target[j] + values[j] : values[j];
      }
    } else {
      uint16_t* target = static_cast<uint16_t*>(data) + row * rows.width + rows.first;
      for (int j = 0; j < rows.valid; ++j) target[j] = from_float(values[j], rows.dtype);
    }
  }
}

}  // namespace fm
