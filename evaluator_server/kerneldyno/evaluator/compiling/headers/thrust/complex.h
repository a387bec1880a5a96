// In place of Thrust's complex.h. c10::complex includes it in .cu files, and with it 450 files of the CUDA C++ library.
// Sources that use complex numbers, Thrust or CUB get the real one (KERNELDYNO_COMPLEX). For all others c10::complex
// only needs these names; nothing here has a definition that could be called.
#pragma once

#if defined(KERNELDYNO_COMPLEX) || !defined(__CUDACC__)
#include_next <thrust/complex.h>
#else

namespace thrust {

template <typename T>
struct complex {
  __host__ __device__ complex(const T& real = T(), const T& imaginary = T());
  template <typename U>
  __host__ __device__ complex(const complex<U>& other);
  __host__ __device__ T real() const;
  __host__ __device__ T imag() const;
};

template <typename T> __host__ __device__ T abs(const complex<T>&);
template <typename T> __host__ __device__ T arg(const complex<T>&);
template <typename T> __host__ __device__ T norm(const complex<T>&);
template <typename T> __host__ __device__ complex<T> conj(const complex<T>&);
template <typename T> __host__ __device__ complex<T> proj(const complex<T>&);
template <typename T> __host__ __device__ complex<T> polar(const T&, const T& = T());
template <typename T> __host__ __device__ complex<T> exp(const complex<T>&);
template <typename T> __host__ __device__ complex<T> log(const complex<T>&);
template <typename T> __host__ __device__ complex<T> log10(const complex<T>&);
template <typename T> __host__ __device__ complex<T> sqrt(const complex<T>&);
template <typename T, typename U> __host__ __device__ complex<T> pow(const complex<T>&, const complex<U>&);
template <typename T, typename U> __host__ __device__ complex<T> pow(const complex<T>&, const U&);
template <typename T, typename U> __host__ __device__ complex<U> pow(const T&, const complex<U>&);
template <typename T> __host__ __device__ complex<T> sin(const complex<T>&);
template <typename T> __host__ __device__ complex<T> cos(const complex<T>&);
template <typename T> __host__ __device__ complex<T> tan(const complex<T>&);
template <typename T> __host__ __device__ complex<T> asin(const complex<T>&);
template <typename T> __host__ __device__ complex<T> acos(const complex<T>&);
template <typename T> __host__ __device__ complex<T> atan(const complex<T>&);
template <typename T> __host__ __device__ complex<T> sinh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> cosh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> tanh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> asinh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> acosh(const complex<T>&);
template <typename T> __host__ __device__ complex<T> atanh(const complex<T>&);

} // namespace thrust

#endif
