// Reductions over all threads of a block; every thread gets the result.
#pragma once

struct Largest {
    static constexpr float empty = -INFINITY;
    __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

struct Sum {
    static constexpr float empty = 0.f;
    __device__ static float join(float a, float b) { return a + b; }
};

template <typename Operation>
__device__ float reduce(float value) {
    __shared__ float partial[32];
    for (int offset = 16; offset > 0; offset /= 2)
        value = Operation::join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : Operation::empty;
    for (int offset = 16; offset > 0; offset /= 2)
        value = Operation::join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();  // the next reduction writes to the same memory
    return value;
}
