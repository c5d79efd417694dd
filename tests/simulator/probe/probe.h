#pragma once
// x and y: 64 floats on the heap.
void run_probe(const float* x, float* y, int which);
