// In place of PyTorch's torch/python.h.
#pragma once

#include <torch/extension.h>
