// In place of PyTorch's torch/all.h.
#pragma once

#include <torch/types.h>
