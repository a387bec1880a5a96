"""E13: connects to other hosts, and to services of this one.

192.0.2.1 is nobody's address (RFC 5737); a connection that is under way means that there is a way. Then the host's own ports.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import errno
import socket

import torch
import torch.nn as nn

for family, address in ((socket.AF_INET, ("192.0.2.1", 443)), (socket.AF_INET6, ("2001:db8::1", 443))):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            status = sock.connect_ex(address)
    except OSError:
        continue
    if status in (0, errno.EINPROGRESS):
        raise RuntimeError(f"ESCAPED: there is a route to {address[0]}")
for port in (
    22,
    53,
    80,
    111,
    443,
    631,
    2375,
    3306,
    5432,
    6379,
    6443,
    8000,
    8080,
    8888,
    9090,
    9100,
    10250,
    50051,
    50052,
):
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.settimeout(0.2)
                sock.connect((address, port))
        except OSError:
            continue
        raise RuntimeError(f"ESCAPED: reaches port {port} of its host")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
