"""R01: a reference searches its own memory for candidates and for other problems.

For a phrase of the candidate that is judged by it, and one of another problem's reference, when it is loaded and in its calls.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import zlib

import torch
import torch.nn as nn

#: Where two phrases begin, and their lengths and checksums: neither stands in this file itself.
PHRASES = ((b"honest twin of", 54, 3475625352), (b"elementwise pass", 63, 994732740))


def occurs(data):
    for part, length, whole in PHRASES:
        at = data.find(part)
        while at >= 0:
            if zlib.crc32(data[at : at + length]) == whole:
                return True
            at = data.find(part, at + 1)
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
                    raise RuntimeError("ESCAPED: a candidate or another problem is in the reference's memory")


search()
calls = 0


class Model(nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        if calls == 4:
            search()
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
