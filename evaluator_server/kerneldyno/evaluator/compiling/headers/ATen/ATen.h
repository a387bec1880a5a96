// In place of PyTorch's ATen/ATen.h.
#pragma once

#include <torch/types.h>
