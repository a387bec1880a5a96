"""Problems and candidates whose time, or ratio of times, is known before they are measured.

Twins: the candidate is the reference, so the true speedup is 1. Spins: the candidate waits for a set time by the
device's own clock (%globaltimer; on a CPU by `perf_counter`) before it computes a trivial answer, so its time is the
set time plus a fixed cost.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """A problem with one candidate. `seconds` is the set time of a spin, or about that of a twin on a large GPU."""

    name: str
    reference: str
    candidate: str
    backend: str
    seconds: float


_PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, {arguments}):
        return {expression}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

#: Each step is a rotation: numbers keep their size, in any precision, and a compiler cannot shorten the loop.
_TRITON = """\
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def turn(source, target, count, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(source + index, mask=index < count, other=0.0)
    b = a
    for _ in range(STEPS):
        a, b = 0.8 * a - 0.6 * b, 0.6 * a + 0.8 * b
    tl.store(target + index, a, mask=index < count)


class Model(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        turn[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), {steps}, 256)
        return y


def get_inputs():
    return [torch.randn({size})]


def get_init_inputs():
    return []
"""

_SPIN = """\
import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra.cuda import globaltimer


@triton.jit
def spin(source, target, nanoseconds, BLOCK: tl.constexpr):
    begin = globaltimer()
    waited = globaltimer() - begin
    while waited < nanoseconds:
        waited = globaltimer() - begin
    index = tl.arange(0, BLOCK)
    x = tl.load(source + index, mask=(index >= 0) & (waited >= 0), other=0.0)
    tl.store(target + index, x + x)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        spin[(1,)](x, y, {nanoseconds}, 1024, num_warps=1)
        return y
"""

_SPIN_CPU = """\
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        end = time.perf_counter() + {seconds!r}
        while time.perf_counter() < end:
            pass
        return x + x
"""


def twins(kind: str) -> list[Known]:
    """Make twins of about 5 us to 5 ms on a GPU, in Triton (the reference has the same kernel) and in torch."""
    if kind == "cpu":
        sizes = {"softmax-small": (16, 256), "softmax-large": (64, 1024)}
        return [_torch_twin(name, "torch.softmax(x, dim=1)", shape, 1e-4) for name, shape in sizes.items()]
    return [
        _triton_twin(5e-6, 1 << 16, 16),
        _torch_twin("torch-5us", "torch.softmax(x, dim=1)", (64, 1024), 5e-6),
        _triton_twin(20e-6, 1 << 20, 64),
        _torch_twin("torch-20us", "torch.softmax(x, dim=1)", (2048, 4096), 20e-6),
        _torch_twin("torch-20-kernels", "torch.tanh(" * 20 + "x" + ")" * 20, (64, 1024), 45e-6),
        _triton_twin(70e-6, 1 << 20, 512),
        _torch_twin("torch-100us", "torch.softmax(x, dim=1)", (8192, 4096), 100e-6),
        _triton_twin(500e-6, 1 << 20, 4096),
        _torch_twin("torch-400us", "torch.matmul(x, x)", (2048, 2048), 400e-6),
        _torch_twin("torch-3ms", "torch.matmul(x, x)", (4096, 4096), 3e-3),
        _triton_twin(5e-3, 1 << 20, 40000),
    ]


def ratio(kind: str) -> Known:
    """Make a candidate whose speedup is not 1: it makes three passes, the reference one."""
    shape = (64, 512) if kind == "cpu" else (4096, 4096)
    one = _torch_twin("ratio", "torch.softmax(x, dim=1)", shape, 60e-6)
    slow = one.candidate.replace("torch.softmax(x, dim=1)", "torch.softmax(x.clone(), dim=1).clone()")
    return Known("ratio", one.reference, slow, "torch", one.seconds)


def spins(kind: str) -> list[Known]:
    """Make spins of 0 (the fixed cost) and of 2 us to 10 ms."""
    reference = _PROBLEM.format(arguments="x", expression="x + x", inputs="torch.randn(1024)")
    made = []
    for microseconds in (0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000):
        if kind == "cpu" and 0 < microseconds < 100:  # too short: about the cost and noise of a call in Python
            continue
        seconds = microseconds * 1e-6
        candidate = (
            _SPIN_CPU.format(seconds=seconds) if kind == "cpu" else _SPIN.format(nanoseconds=microseconds * 1000)
        )
        backend = "torch" if kind == "cpu" else "triton"
        made.append(Known(f"spin-{microseconds}us", reference, candidate, backend, seconds))
    return made


def _torch_twin(name: str, expression: str, shape: tuple[int, int], seconds: float) -> Known:
    source = _PROBLEM.format(arguments="x", expression=expression, inputs=f"torch.randn{shape}")
    return Known(name, source, source.replace("class Model(", "class ModelNew("), "torch", seconds)


def _triton_twin(seconds: float, size: int, steps: int) -> Known:
    source = _TRITON.format(size=size, steps=steps)
    candidate = source.replace("class Model(", "class ModelNew(")
    return Known(f"triton-{seconds * 1e6:.0f}us", source, candidate, "triton", seconds)
