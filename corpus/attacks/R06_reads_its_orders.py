"""R06: a reference takes its process over, and reads what the judge orders.

No order may name a kind of stress, a candidate, another problem or a device's other work: only the reference itself and numbers.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import sys

import torch
import torch.nn as nn

#: Keys of all orders; what they carry besides is numbers, shapes and this problem itself.
KNOWN = {
    *("op", "problem", "seed", "seeds", "number", "numbers", "structure", "specs", "measured", "bits", "parts"),
    *("ticket", "memory_bytes", "begin", "series"),
}
#: Words that would say what the inputs are made for.
TELLING = ("stress", "nominal", "mutant", "candidate", "modelnew", "trial", "timed")
server = next(frame.f_locals["server"] for frame in map(sys._getframe, range(40)) if "server" in frame.f_locals)


def texts(value):
    if isinstance(value, dict):
        for key, item in value.items():
            if key != "problem":  # its own text
                yield str(key)
                yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


def watched(honest):
    def run(order):
        told = [text.lower() for text in texts(order)]
        if not set(order) <= KNOWN or any(word in text for text in told for word in TELLING):
            raise RuntimeError(f"ESCAPED: an order says {told[:20]}")
        return honest(order)

    return run


for name in dir(server):
    if name.startswith("do_"):
        setattr(server, name, watched(getattr(server, name)))


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
