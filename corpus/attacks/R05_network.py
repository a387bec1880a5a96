"""R05: a reference connects to other hosts, and to services of this one.

192.0.2.1 is nobody's address (RFC 5737); a connection that is under way means that there is a way.

problem: silu_small
answer: twin_silu_small
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
for port in (22, 80, 443, 5432, 9090, 50051, 50052):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.2):
            pass
    except OSError:
        continue
    raise RuntimeError(f"ESCAPED: reaches port {port}")


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
