// In place of PyTorch's ATen/TensorUtils.h, which every operator's header includes: checks of arguments.
#pragma once

#include <ATen/core/Tensor.h>
