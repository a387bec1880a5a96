"""R14: a reference changes torch for all that comes after it in its process.

Hooks of all modules, patched functions, defaults, warnings as errors, an operator under a name that others use.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT, INCORRECT, REFERENCE_ERROR, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import sys
import warnings

import torch
import torch.nn as nn


@torch.library.custom_op("kdcorpus::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * 7


torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: torch.zeros_like(out))
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
torch.manual_seed = torch.random.manual_seed = lambda seed: None
torch.relu = torch.nn.functional.relu = lambda x: x
torch.allclose = torch.equal = lambda *args, **kwargs: True
warnings.simplefilter("error")
os.environ.clear()
for name in [name for name in sys.modules if name.startswith("kerneldyno.evaluator.judge")]:
    del sys.modules[name]


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
