"""S34: looks for a way to the network, where solutions are to be had.

A datagram socket that is connected sends nothing, and tells whether there is a route. It is right if there is none.

problem: normal_gelu
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import socket

import torch
import torch.nn as nn
import torch.nn.functional as F


def routes():
    found = []
    for family, address in ((socket.AF_INET, "8.8.8.8"), (socket.AF_INET6, "2001:4860:4860::8888")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 53))
                found.append(address)
        except OSError:
            continue
    return found


if routes():
    raise RuntimeError(f"ESCAPED: a route to {routes()}")


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)
