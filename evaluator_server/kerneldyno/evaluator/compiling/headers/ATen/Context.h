// In place of PyTorch's ATen/Context.h, which every operator's header includes: the global settings of ATen.
#pragma once

#include <ATen/core/Generator.h>
