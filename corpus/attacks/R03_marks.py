"""R03: a reference leaves marks for other problems, and looks for theirs.

In its scratch, caches, shared memory, environment and modules. Another problem of this kind comes after it.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import builtins
import os
import sys

import torch
import torch.nn as nn

caches = [
    os.environ.get(name) for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME")
]
places = [place for place in (os.getcwd(), "/tmp", "/dev/shm", "/var/tmp", "/run", *caches) if place]
left = [os.path.join(place, "kerneldyno-escape-R03") for place in places]
found = [path for path in left if os.path.exists(path)]
if found or hasattr(builtins, "kerneldyno_reference") or "KD_REFERENCE" in os.environ:
    raise RuntimeError(f"ESCAPED: found what another problem left: {found}")
for path in left:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").close()
    except OSError:
        continue
builtins.kerneldyno_reference = sys.modules["kerneldyno_reference"] = True
os.environ["KD_REFERENCE"] = "1"


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# Above is R03_leaves_and_finds. Variants, with what differs:
#
# R03_leaves_and_finds_again: the same as a second problem, which would find what the first has left.
#   -     return [torch.randn(64, 256)]
#   +     return [torch.randn(64, 255)]
