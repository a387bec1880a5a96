// In place of PyTorch's ATen/DeviceGuard.h, which every operator's header includes and few sources need.
#pragma once

#include <c10/core/DeviceGuard.h>
