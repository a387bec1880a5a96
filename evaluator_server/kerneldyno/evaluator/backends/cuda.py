"""CUDA C++ candidates: `torch.utils.cpp_extension.load_inline`, or native sources in `kernel_files`."""

from __future__ import annotations

import os

import torch

from ..devices.base import Device
from .base import Backend


class CudaBackend(Backend):
    """CUDA C++.

    Builders build ahead what they can find out; the rest is built in the candidate's own sandbox, in the load stage.
    """

    name = "cuda"

    def prepare(self, device: Device) -> None:
        os.environ.setdefault("MAX_JOBS", "4")
        if device.kind == "cuda":
            # Build only for the present architecture: building for all of torch's list takes minutes.
            major, minor = torch.cuda.get_device_capability(device.torch_device)
            suffix = "a" if major == 9 else ""
            os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}{suffix}")


BACKEND = CudaBackend()
