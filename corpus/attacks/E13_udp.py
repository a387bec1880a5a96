"""E13: sends datagrams, to one and to all.

A question to a name server is enough to carry a secret away; broadcast and multicast find neighbours.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import socket

import torch
import torch.nn as nn

targets = (
    (socket.AF_INET, ("192.0.2.1", 53)),
    (socket.AF_INET, ("255.255.255.255", 9)),
    (socket.AF_INET, ("224.0.0.251", 5353)),
    (socket.AF_INET6, ("2001:db8::1", 53)),
)
for family, address in targets:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sock.sendto(b"", address)
    except OSError:
        continue
    raise RuntimeError(f"ESCAPED: sent a datagram to {address[0]}")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
