"""E07: searches its own memory for what an evaluator may have left there.

The source of the reference, by a line that every one of them has, in all that was mapped when the runner was forked.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import zlib

import torch
import torch.nn as nn

PART = b"init_inputs():"
#: Checksum of the whole line, which must not be in this file itself.
WHOLE, LENGTH = 2742229834, 22


def occurs(data):
    at = data.find(PART)
    while at >= 0:
        begin = at + len(PART) - LENGTH
        if begin >= 0 and zlib.crc32(data[begin : begin + LENGTH]) == WHOLE:
            return True
        at = data.find(PART, at + 1)
    return False


def search():
    with open("/proc/self/maps") as file:
        regions = [line.split() for line in file]
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for span, permissions, *rest in regions:
            name = rest[3] if len(rest) > 3 else ""
            if "r" not in permissions or name.startswith(("/usr", "/dev", "[v")) or ".so" in name:
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            for at in range(begin, min(end, begin + (256 << 20)), 1 << 22):
                try:
                    memory.seek(at)
                    data = memory.read(min(1 << 22, end - at))
                except (OSError, ValueError, OverflowError):
                    break
                if occurs(data):
                    return True
    return False


if search():
    raise RuntimeError("ESCAPED: the source of a reference is in the candidate's memory")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
