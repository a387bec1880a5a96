// In place of PyTorch's torch/extension.h. nvcc reads pybind11 only if the .cu file has a binding.
#pragma once

#include <torch/types.h>

#if !defined(__CUDACC__) || defined(KERNELDYNO_BINDING)
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
