"""E10: the same once more: what the first one left, this one would find.

It looks only; the marks are those of E10_leaves_and_finds and of every other attack that leaves some.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import builtins
import glob
import os
import sys

import torch
import torch.nn as nn

caches = [
    os.environ.get(name) for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME")
]
places = [place for place in (os.getcwd(), "/tmp", "/dev/shm", "/var/tmp", "/run", *caches) if place]
found = [path for place in places for path in glob.glob(os.path.join(place, "*kerneldyno-escape*"))]
if found or hasattr(builtins, "kerneldyno_escape") or "kerneldyno_escape" in sys.modules or "KD_ESCAPE" in os.environ:
    raise RuntimeError(f"ESCAPED: found what another candidate left: {found}")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
