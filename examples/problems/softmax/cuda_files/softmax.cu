// Softmax of each row of a matrix. It needs no header of PyTorch, so it is built in seconds.
#include <cstdint>

#include "reduce.cuh"

constexpr int THREADS = 256;

__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t columns) {
    const float* row = x + blockIdx.x * columns;
    float* out = y + blockIdx.x * columns;
    float largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < columns; i += THREADS) largest = fmaxf(largest, row[i]);
    largest = reduce<Largest>(largest);
    float total = 0.f;
    for (int64_t i = threadIdx.x; i < columns; i += THREADS) total += expf(row[i] - largest);
    total = reduce<Sum>(total);
    for (int64_t i = threadIdx.x; i < columns; i += THREADS) out[i] = expf(row[i] - largest) / total;
}

extern "C" void softmax_rows(const float* x, float* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    softmax_kernel<<<rows, THREADS, 0, stream>>>(x, y, columns);
}
