"""E13: asks for the addresses of names, and for a package.

By the C library, whose resolver may be a local service, and by pip, with no time to wait.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import socket
import subprocess
import sys

import torch
import torch.nn as nn

try:
    socket.getaddrinfo("example.com", 443)
except OSError:
    pass
else:
    raise RuntimeError("ESCAPED: a name was resolved")
command = [
    sys.executable,
    "-m",
    "pip",
    "download",
    "--no-deps",
    "--retries",
    "0",
    "--timeout",
    "1",
    "-d",
    "wheels",
    "iniconfig",
]
try:
    status = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10).returncode
except (OSError, subprocess.SubprocessError):
    status = 1
if status == 0:
    raise RuntimeError("ESCAPED: a package was downloaded")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
