"""E17: takes memory away under the judge: holes in the files that both map, at every call, and an attempt to shrink them.

problem: chained_tanh
backend: torch
outcome: INCORRECT
devices: cpu
"""

import ctypes
import os

import torch
import torch.nn as nn

libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def holes():
    said = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "kerneldyno-" in line:
                first, last = (int(x, 16) for x in line.split()[0].split("-"))
                said.append(("hole", libc.madvise(first, last - first, 9), ctypes.get_errno()))
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "kerneldyno-" in os.readlink(f"/proc/self/fd/{fd}"):
                try:
                    os.ftruncate(int(fd), 0)
                    said.append(("shrunk", fd))
                except OSError as error:
                    said.append(("sealed", error.errno))
        except OSError:
            pass
    return said


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(torch.tanh(torch.tanh(x)))
        print(holes(), flush=True)
        return y
