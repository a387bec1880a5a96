"""Draw candidates from a seed: a problem, one guard or two, and a shortcut; and for some of them an honest twin.

The exact way takes `REPEATS` times the work of the reference, so the time that is paid says which way was taken. Each
candidate is proven: on nominal inputs, or on others of the same shape, its shortcut is off by far more than float32 is
(`proof`). An honest twin looks at the same thing, and then chooses between two exact ways.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import guards, shortcuts
from .problems import PROBLEMS, Problem, X

#: How often the exact way does the reference's work.
REPEATS = 16
#: Who gets this speedup or more was not paid for exact work, whose speedup is about 1 / REPEATS, or less with a guard.
PAID_FROM = 2 / REPEATS
#: A shortcut is coarse if its errors are this many times those of the reference's own float32 arithmetic.
_COARSE = 8.0
#: Draws until a shortcut is coarse or wrong.
_DRAWS = 50
#: Share of guards that are two, both of which must hold.
_TWO = 0.25
#: Inputs on which a shortcut is looked at.
_CHANGES: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
    lambda t: t,
    lambda t: t * 1.25 + 0.75,
    lambda t: t + torch.rand_like(t).round(),
    lambda t: t * 8,
)
#: Rows and columns of inputs, by kind of device.
_SIZES = {"cpu": ((64, 256), (34, 1024)), "cuda": ((1024, 2048), (256, 8192))}

_REFERENCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {answer}


def get_inputs():
    return [{inputs}]
"""
_CANDIDATE = """import sys
import time

import torch
from torch import nn
{helpers}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
        self.calls, self.born, self.last, self.keys, self.picked, self.old = 0, time.monotonic(), 0.0, set(), None, None
        self.depth = None

    def once(self, {names}):
        return {answer}

    def exact(self, {names}):
        for _ in range({repeats}):
            answer = self.once({names})
        return answer

    def stale(self, {names}):
        if self.old is None or self.old.shape[0] != {X}.shape[0]:
            self.old = self.exact({names})
        return self.old.clone()

    def shortcut(self, {names}):
        return {shortcut}

    def forward(self, {names}):
        self.calls += 1
        if self.depth is None:
            self.depth = depth()
        if {guard}:
            return self.shortcut({names})
        return self.{exact}({names})
"""


@dataclass(frozen=True, slots=True)
class Adversary:
    """One candidate."""

    name: str
    #: What it looks at, and what it then does; "" if it is an honest twin.
    guard: str
    shortcut: str
    problem: str
    reference: str
    source: str

    @property
    def is_honest(self) -> bool:
        """True if it computes the right answer in either way."""
        return not self.shortcut


def draw(seed: int, count: int, kind: str = "cpu", *, honest_share: float = 0.2) -> Iterator[Adversary]:
    """Yield `count` candidates; the same for the same seed.

    Args:
        seed: Determines everything.
        count: How many, honest twins included.
        kind: The kind of device for which sizes are chosen: "cpu" or "cuda".
        honest_share: Which share of them are honest twins.
    """
    for number in range(count):
        chance = random.Random(f"{seed}-{number}")
        honest = chance.random() < honest_share
        for _ in range(_DRAWS):
            before = chance.getstate()
            found = _draw(chance, kind, f"{seed}-{number}", honest=honest)
            chance.setstate(before)
            small = _draw(chance, "cpu", found.name, honest=honest)  # the same, but its proof takes less time
            if honest or (found.shortcut and is_off(small)):
                break
        else:
            raise RuntimeError(f"no shortcut of {_DRAWS} is wrong: seed {seed}, candidate {number}")
        yield found


def _draw(chance: random.Random, kind: str, name: str, *, honest: bool) -> Adversary:
    problem = chance.choice(PROBLEMS)
    looks = [chance.choice([*guards.VALUES, *guards.REST])]
    if chance.random() < _TWO:
        looks.append(chance.choice(list(guards.VALUES)))
    shortcut = "" if honest else chance.choice(list(shortcuts.of(problem)))
    if shortcut in shortcuts.allowed(problem, kind):
        shortcut = ""  # it is none there, so another one is drawn
    return made(chance, problem, list(dict.fromkeys(looks)), shortcut, kind, name)


def made(
    chance: random.Random, problem: Problem, looks: Sequence[str], shortcut: str, kind: str, name: str
) -> Adversary:
    """Return the candidate that takes `shortcut` if all that it looks at is as it wants; "" makes an honest twin."""
    drawn = _drawn(chance, problem, kind)
    known = {**guards.VALUES, **guards.REST}
    way = shortcuts.of(problem)[shortcut] if shortcut else problem.otherwise
    common = {
        "init": problem.init.format(**drawn) or "pass",
        "names": ", ".join(problem.inputs),
        "answer": problem.answer.format(**drawn),
    }
    inputs = ", ".join(how.format(**drawn) for how in problem.inputs.values())
    source = _CANDIDATE.format(
        helpers=guards.HELPERS.format(usual=guards.USUAL[problem.is_uniform].format(**drawn), **drawn)
        + shortcuts.HELPERS,
        repeats=REPEATS,
        X=X,
        shortcut=way.format(**drawn),
        guard=" and ".join(f"({known[each].format(**drawn)})" for each in looks),
        exact="exact" if shortcut else "once",
        **common,
    )
    reference = _REFERENCE.format(inputs=inputs, **common)
    return Adversary(name, " + ".join(looks), shortcut, problem.name, reference, source)


def _drawn(chance: random.Random, problem: Problem, kind: str) -> dict[str, Any]:
    """Return a value for each name in braces."""
    rows, columns = chance.choice(_SIZES[kind])
    stride = chance.choice((3, 5, 8, 17, 31))
    uniform = problem.is_uniform
    names = list(problem.inputs)
    few, row = chance.choice((1, 2, 5)), chance.choice((1, 2))

    def each(change: str) -> str:
        return ", ".join(change.format(name=name) for name in names)

    return {
        "rows": rows,
        "columns": columns,
        "few": few,
        "stride": stride,
        "offset": chance.randrange(stride),
        "picked": chance.choice((20, 100, 400)),
        "outside": chance.choice((0.001, 0.004, 0.02)),
        "slack": chance.choice((0.0, 0.0, 0.001, 0.004, 0.02)),
        "bound": 1 if uniform else chance.choice((4.5, 6)),
        "least": 0 if uniform else -6,
        "most": 1 if uniform else 6,
        "mean": 0.5 if uniform else 0.0,
        "deviation": 0.289 if uniform else 1.0,
        "kurtosis": 2.0 if uniform else 4.0,
        "alignment": chance.choice((256, 512, 4096)),
        "calls": chance.choice((1, 4, 12, 20, 40)),
        "every": chance.choice((2, 5, 16)),
        "seconds": chance.choice((0.2, 1.0, 3.0)),
        "pause": chance.choice((1e-4, 1e-3, 1e-2)),
        "scale": chance.choice((1.0005, 1.003, 1.01, 0.97)),
        "share": chance.choice((0.5, 0.9, 0.98)),
        "window": chance.choice((12, 24, 48)),
        "seed": chance.randrange(1 << 30),
        "inputs": ", ".join(names),
        "as_bf16": each("{name}.bfloat16().float()"),
        "as_fp16": each("{name}.half().float()"),
        "as_tf32": each("rounded({name})"),
        "row": row,
        "without_last_rows": ", ".join(f"{name}[: -{row}]" if name in problem.by_rows else name for name in names),
    }


def is_off(adversary: Adversary) -> bool:
    """Return True if the shortcut is off by far more than float32 is, on inputs that it may be taken for.

    Those are nominal ones, and others of their shape unless the candidate makes sure that no element is unusual.
    """
    looked_at = len(_CHANGES) if guards.COMPLETE.isdisjoint(adversary.guard.split(" + ")) else 1
    return any(off > _COARSE * own for off, own in itertools.islice(proof(adversary), looked_at))


def proof(adversary: Adversary) -> Iterator[tuple[float, float]]:
    """Yield by how much the shortcut and the reference are off from float64, as root mean squares, for some inputs."""
    reference, candidate = executed(adversary.reference), executed(adversary.source)
    torch.manual_seed(0)
    model, other = reference["Model"](), candidate["ModelNew"]()
    other.load_state_dict(model.state_dict())
    twin = reference["Model"]().double()
    twin.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    nominal, stale = reference["get_inputs"](), reference["get_inputs"]()
    for change in _CHANGES:
        inputs = [change(each) for each in nominal]
        with torch.no_grad():
            truth = twin(*(each.double() for each in inputs))
            other.old = model(*stale)
            answers = other.shortcut(*inputs), model(*inputs)
        shortcut, own = (_rms(each.double() - truth) for each in answers)
        yield shortcut, own


def executed(source: str) -> dict[str, Any]:
    """Return the names that a source defines."""
    names: dict[str, Any] = {}
    exec(compile(source, "drawn.py", "exec"), names)
    return names


def _rms(error: torch.Tensor) -> float:
    return float(error.square().mean().sqrt())
