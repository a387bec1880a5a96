"""E10: leaves marks for those who come after it, and looks for those of others.

In its scratch, the caches of Triton and torch, shared memory, environment and modules: whatever an earlier candidate left is
    found by a later one, and every candidate of this kind leaves it.

problem: silu_small
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
left = [os.path.join(place, "kerneldyno-escape-E10") for place in places]
found = [path for path in left if os.path.exists(path)]
if found or hasattr(builtins, "kerneldyno_escape") or "kerneldyno_escape" in sys.modules or "KD_ESCAPE" in os.environ:
    raise RuntimeError(f"ESCAPED: found what another candidate left: {found}")
for path in left:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").close()
    except OSError:
        continue
builtins.kerneldyno_escape = sys.modules["kerneldyno_escape"] = True
os.environ["KD_ESCAPE"] = "1"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
