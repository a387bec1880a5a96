"""References, built and examined once and kept hot: the problems that candidates are judged against, by identity.

Everything that executes a reference goes through here, so that the server can be told (a reference that kills the
judge is known by its attempt) and so that no reference runs while a candidate is being timed.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ..devices.base import Device
from ..spec import EvalSpec
from ..toolkits import Problem, toolkits
from ..toolkits.torch_settings import TorchSettings, seclude
from .counting import Counted, count
from .examination import Examination, examine
from .lease import Lease
from .trial import Trial

#: Built problems that are kept; each holds its model's parameters on the device.
_KEPT = 32

#: Tells the server that a reference of this attempt begins or ends to execute.
Announce = Callable[[str], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Known:
    """A problem and what has been learnt about it."""

    problem: Problem
    examination: Examination
    #: Those of torch that its reference executes under.
    settings: TorchSettings = field(default_factory=TorchSettings)
    #: What it was built under; secret.
    seed: int = 0
    #: How many calls of its reference can be queued ahead of the device, as far as has been seen; 0: not even one.
    queueable: int = 1 << 30
    #: How long one input set took to draw, in seconds, when it was last done.
    seconds_a_set: float = 0.0
    #: What a call of its reference is made of, once counted.
    counted: Counted | None = None


class Problems:
    """The judge's problems."""

    def __init__(self, device: Device, lease: Lease) -> None:
        self.device = device
        self._lease = lease
        self._built: OrderedDict[str, Known] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._built)

    async def get(self, spec: EvalSpec, announce: Announce) -> Known:
        """Return the problem of `spec`, built and examined now if it is not kept. Raises ReferenceFailure."""
        key = spec.problem_key
        async with self.executing(announce):
            known = self._built.get(key)
            if known is None:
                self.misses += 1
                # The seed is secret and of this judge alone: no candidate can have computed anything ahead for it.
                seed = secrets.randbits(31)
                problem = seclude(lambda: toolkits()[spec.toolkit].build(spec, self.device.torch_device, seed))
                examined = examine(problem, spec, self.device)
                known = self._built[key] = Known(problem, examined, problem.settings, seed)
                while len(self._built) > _KEPT:
                    self._built.popitem(last=False)
            else:
                self.hits += 1
                self._built.move_to_end(key)
            return known

    async def count(self, known: Known, example: Trial, announce: Announce) -> Counted:
        """Return what a call of a reference is made of, counted now if it has not been. Raises OutOfMemoryError."""
        if known.counted is None:
            async with self.executing(announce):
                known.counted = count(known.problem, self.device, example)
        return known.counted

    @contextlib.asynccontextmanager
    async def executing(self, announce: Announce) -> AsyncIterator[None]:
        """Announce that a reference executes in the body, one at a time, and never during somebody's timing."""
        async with self._lease.work():
            await announce("begin")
            try:
                yield
            finally:
                await announce("end")
