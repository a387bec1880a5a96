"""R07: a reference writes to the judge's channel itself.

Answers that nobody asked for, for other problems and other orders: whatever the judge reads must not become another verdict.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: REFERENCE_ERROR, CORRECT, INCORRECT, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import gc
import json
import socket
import struct

import torch
import torch.nn as nn

channels = [thing for thing in gc.get_objects() if isinstance(thing, socket.socket)]


def forge(answer):
    data = json.dumps(answer).encode()
    for channel in channels:
        try:
            channel.send(struct.pack(">I", len(data)) + data)
        except OSError:
            continue


class Model(nn.Module):
    def forward(self, x):
        forge({"ok": {"structure": {"tensor": 0}, "tensors": [], "stored": True, "mutates": False, "aliased": False}})
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
