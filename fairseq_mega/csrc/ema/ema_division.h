#pragma once
// How the CUDA scan of the EMA is divided among blocks of threads; ema/cuda_plan.cuh tells what a block does.
//
// A unit is 32 channels of one sequence. A block works on a segment of one unit: on all of its tiles where there are
// enough units to fill the GPU, on a part of them elsewhere, which means to read the input twice. All blocks of a launch
// take the same time, and a multiprocessor runs two at once (one in the gradient with truncation): a launch of one block
// more than there is room for takes as long as one of twice as many. So the number of segments is the one that makes the
// whole time shortest.
#include <algorithm>

#include "ema/ema_scan.h"

namespace fm {

constexpr int kLanes = 32;  // channels of a unit
constexpr int kSteps = 16;  // of a warp
constexpr int kMaxWarps = 8, kMinWarps = 2;
constexpr int kBlocksPerMultiprocessor = 2;  // that many of kMaxWarps warps keep it busy: see ema/cuda_scan.cuh
constexpr int kMostWaves = 4;                // more and shorter segments would save next to nothing

struct EmaDivision {
  int warps = 0;  // of a block
  int64_t units = 0, tiles = 0, tiles_per_segment = 0, segments = 0;

  int64_t blocks() const { return units * segments; }
};

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Time of a launch of equal blocks, in thirds of the time of two blocks that share a multiprocessor. A block that has
// one to itself does not take half of that, as it then waits for its own memory accesses.
constexpr int64_t ema_launch_time(int64_t blocks, int64_t multiprocessors, bool alone) {
  if (alone) return ceil_div(blocks, multiprocessors) * 2;
  const int64_t slots = kBlocksPerMultiprocessor * multiprocessors, rest = blocks % slots;
  return blocks / slots * 3 + (rest == 0 ? 0 : rest <= multiprocessors ? 2 : 3);
}

// Work per tile: that of both readings is one and a half that of the only one. Where both directions are wanted, the
// input is read twice in any case, and segments cost a quarter more: all states of both directions go through memory.
constexpr int64_t ema_tile_work(bool bidirectional, bool one_segment) {
  return bidirectional ? (one_segment ? 4 : 5) : (one_segment ? 2 : 3);
}

// alone: whether a multiprocessor has room for one block only.
inline EmaDivision ema_division(const EmaShape& shape, int64_t multiprocessors, bool alone) {
  EmaDivision division;
  division.warps = kMaxWarps;
  while (division.warps > kMinWarps && division.warps / 2 * kSteps >= shape.length) division.warps /= 2;
  const int64_t tiles = ceil_div(shape.length, division.warps * kSteps);
  const int64_t units = shape.batch * ceil_div(shape.width, kLanes);
  division.units = units;
  division.tiles = division.tiles_per_segment = tiles;
  division.segments = 1;
  int64_t shortest = ema_launch_time(units, multiprocessors, alone) * tiles * ema_tile_work(shape.bidirectional, true);
  const auto consider = [&](int64_t wanted) {
    const int64_t tiles_per_segment = ceil_div(tiles, wanted), segments = ceil_div(tiles, tiles_per_segment);
    const int64_t time = ema_launch_time(units * segments, multiprocessors, alone) * tiles_per_segment *
                         ema_tile_work(shape.bidirectional, false);
    if (segments == 1 || time >= shortest) return;
    shortest = time;
    division.tiles_per_segment = tiles_per_segment;
    division.segments = segments;
  };
  if (shape.bidirectional) {
    consider(tiles);  // within a segment a state has one direction
  } else {
    const int64_t slots = (alone ? 1 : kBlocksPerMultiprocessor) * multiprocessors;
    const int64_t most = kMostWaves * slots / std::max<int64_t>(units, 1);
    for (int64_t segments = 2; segments <= std::min(tiles, most); ++segments) consider(segments);
  }
  return division;
}

}  // namespace fm
