// In place of PyTorch's torch/torch.h.
#pragma once

#include <torch/types.h>
