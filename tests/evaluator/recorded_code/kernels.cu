// The texts beside this file are what CUDA 13.1's cuobjdump printed about this file, which nvcc 13.0 had built with
// -O2 -shared -Xcompiler -fPIC -cudart shared -gencode arch=compute_80,code=sm_80 -gencode
// arch=compute_90,code=[sm_90,compute_90]
__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void pick(const int* which, float* out, int n) {
    float kept[16];
#pragma unroll 1
    for (int i = 0; i < n; ++i) kept[which[i] & 15] = out[i];
    out[threadIdx.x] = kept[which[threadIdx.x] & 15];
}

template <typename T, int N>
__global__ void shared(const T* in, T* out) {
    __shared__ T tile[N];
    tile[threadIdx.x % N] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[(threadIdx.x + 1) % N];
}

template __global__ void shared<float, 256>(const float*, float*);
