"""S18: looks for the answers that another process has left.

The other half of S18_bank_a_writer. It cleans up what it finds.

problem: normal_gelu
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "kerneldyno_s18_bank.bin"


def places():
    """Return every folder that might outlive this process."""
    tops = ["/tmp", "/var/tmp", "/dev/shm", os.getcwd(), os.path.expanduser("~"), "/root", "/home"]
    tops += [os.path.expanduser("~/.triton/cache"), os.path.expanduser("~/.cache")]
    tops += [os.environ[name] for name in ("TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TMPDIR") if name in os.environ]
    return [os.path.join(top, NAME) for top in tops]


found = [path for path in places() if os.path.exists(path)]
for path in found:
    try:
        os.remove(path)
    except OSError:
        continue
if found:
    raise RuntimeError(f"ESCAPED: answers of another process in {found}")


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)
