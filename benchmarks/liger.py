"""Write requests whose candidates are the kernels of Liger-Kernel, from a checkout of it: material that others wrote.

    python -m benchmarks.liger CHECKOUT >requests.jsonl

Each candidate is a module that calls one of Liger-Kernel's autograd functions, with the files that it needs beside it; the
reference is the same in PyTorch. For `python -m benchmarks.inspection --requests requests.jsonl`. Source of the kernels:
https://github.com/linkedin/Liger-Kernel (BSD 2-Clause); nothing of it is in this repository.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

_IMPORTS = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
_MODULE = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
{parameters}

    def forward(self, {arguments}):
        return {value}
"""
_WEIGHT = "        self.weight = nn.Parameter(torch.ones({0}))"
_BOTH = _WEIGHT + "\n        self.bias = nn.Parameter(torch.zeros({0}))"
_DYT = (
    "        self.alpha = nn.Parameter(torch.full((1,), 0.5))\n"
    "        self.gamma = nn.Parameter(torch.ones(4096))\n        self.beta = nn.Parameter(torch.zeros(4096))"
)
#: Files that all kernels import, below `src`; the package's own `__init__` files import everything, so empty ones serve.
_SHARED = ("liger_kernel/utils.py", "liger_kernel/ops/utils.py")
_EMPTY = ("liger_kernel/__init__.py", "liger_kernel/ops/__init__.py")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: its file in `liger_kernel/ops`, its function, how both sides are called, and the inputs."""

    file: str
    function: str
    arguments: str
    reference: str
    call: str
    inputs: str
    parameters: str = "        pass"

    def request(self, source: Path) -> dict[str, object]:
        """Return the request, with files from the folder `source` of a checkout."""
        files = [*_SHARED, f"liger_kernel/ops/{self.file}.py"]
        parts = {"parameters": self.parameters, "arguments": self.arguments}
        reference = _IMPORTS + _MODULE.format(name="Model", value=self.reference, **parts)
        # Some of its files use torch.distributed.tensor without importing it.
        candidate = (
            f"{_IMPORTS}import torch.distributed.tensor\nfrom liger_kernel.ops.{self.file} import {self.function}\n"
            + _MODULE.format(name="ModelNew", value=f"{self.function}.apply({self.call})", **parts)
        )
        return {
            "id": f"liger_{self.file}",
            "reference_code": f"{reference}\n\ndef get_inputs():\n    return [{self.inputs}]\n",
            "kernel_code": candidate,
            "kernel_files": [
                *({"path": path, "content": "\n"} for path in _EMPTY),
                *({"path": path, "content": (source / path).read_text()} for path in files),
            ],
            "num_perf_trials": 50,
        }


KERNELS = (
    Kernel(
        *("rms_norm", "LigerRMSNormFunction", "x", "F.rms_norm(x, (4096,), self.weight, 1e-6)"),
        *("x, self.weight, 1e-6, 0.0, 'llama', False, None", "torch.randn(2048, 4096)", _WEIGHT.format(4096)),
    ),
    Kernel(
        *("layer_norm", "LigerLayerNormFunction", "x", "F.layer_norm(x, (4096,), self.weight, self.bias, 1e-6)"),
        *("x, self.weight, self.bias, 1e-6", "torch.randn(2048, 4096)", _BOTH.format(4096)),
    ),
    Kernel("softmax", "LigerSoftmaxFunction", "x", "torch.softmax(x, -1)", "x", "torch.randn(4096, 5000)"),
    Kernel(
        *("geglu", "LigerGELUMulFunction", "a, b", "F.gelu(a, approximate='tanh') * b"),
        *("a, b", "torch.randn(2048, 8192), torch.randn(2048, 8192)"),
    ),
    Kernel(
        *("swiglu", "LigerSiLUMulFunction", "a, b", "F.silu(a) * b"),
        *("a, b", "torch.randn(2048, 8192), torch.randn(2048, 8192)"),
    ),
    Kernel("relu_squared", "LigerReLUSquaredFunction", "x", "F.relu(x) ** 2", "x", "torch.randn(4096, 8192)"),
    Kernel(
        *("dyt", "LigerDyTFunction", "x", "self.gamma * torch.tanh(self.alpha * x) + self.beta"),
        *("x, self.alpha, self.gamma, self.beta", "torch.randn(2048, 4096)", _DYT),
    ),
    Kernel(
        *("group_norm", "LigerGroupNormFunction", "x", "F.group_norm(x, 8, self.weight, self.bias, 1e-6)"),
        *("x, self.weight, self.bias, 64, 8, 1e-6", "torch.randn(64, 64, 1024)", _BOTH.format(64)),
    ),
    Kernel(
        *("kl_div", "LigerKLDivLossFunction", "p, q"),
        "F.kl_div(torch.log_softmax(p, -1), torch.softmax(q, -1), reduction='batchmean')",
        "torch.log_softmax(p, -1), torch.softmax(q, -1), 'batchmean', False, 1e-10",
        "torch.randn(1024, 8000), torch.randn(1024, 8000)",
    ),
    Kernel(
        *("rope", "LigerRopeFunction", "q, k, cos, sin"),
        "tuple(each * cos + torch.cat([-each[..., 64:], each[..., :64]], -1) * sin for each in (q, k))",
        "q.clone(), k.clone(), cos, sin",
        "torch.randn(4, 32, 1024, 128), torch.randn(4, 8, 1024, 128),"
        " *(torch.randn(1, 1024, 64).repeat(1, 1, 2) for _ in range(2))",
    ),
)


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="Write requests whose candidates are kernels of Liger-Kernel.")
    parser.add_argument("checkout", type=Path, help="a checkout of github.com/linkedin/Liger-Kernel")
    source = parser.parse_args().checkout / "src"
    if not (source / _SHARED[0]).is_file():
        print(f"{source / _SHARED[0]} is missing: name a checkout of Liger-Kernel", file=sys.stderr)
        return 2
    for kernel in KERNELS:
        print(json.dumps(kernel.request(source)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
