"""The tare: how much longer the judge takes for a kernel than a runner does, taken off the reference's times.

The reference is timed in the judge, the candidate in its runner, and one kernel takes longer in one process than in another:
0.1 to 0.3 us, the same for all kernels of 4 to 70 us; within one process it was seen to change by 0.7 us from one moment to
the next (H200). A kernel that does next to nothing tells: what it takes in runners is found by evaluating it when the judge
starts, what it takes in the judge is measured in every timing.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import torch

from .. import tree
from ..burst import Plan, Station, run_burst
from ..devices.base import Device, Gate
from ..spec import EvalSpec, Limits, ToleranceRule

_log = logging.getLogger("kerneldyno.judge")

_ELEMENTS = 1024
_SOURCE = f"""
import torch

class {{name}}(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn({_ELEMENTS})]
"""
#: Runners that the kernel is timed in, one after the other.
_RUNNERS = 3
#: Calls in a burst of the judge's, and timings over which it is smoothed.
_CALLS = 16
_KEPT = 8
#: A change of more than this, in seconds, is one of the judge's state and no noise.
_JUMP = 0.25e-6
#: More than this, in seconds, is no difference between processes.
_MOST = 1.5e-6


class Tare:
    """Measures and remembers. Until `calibrate` has succeeded, `now` is 0."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._gate: Gate | None = device.own_gate()
        self._in_runners: float | None = None
        self._here: deque[float] = deque(maxlen=_KEPT)
        self._station: Station | None = None
        self._value = 0

    async def calibrate(self, evaluate: Callable[[EvalSpec], Awaitable[dict[str, Any]]]) -> None:
        """Find out what the kernel takes in runners, where calls are queued ahead of the device at all."""
        if self._gate is None:
            return
        results = await asyncio.gather(*(evaluate(_spec()) for _ in range(_RUNNERS)))
        if strange := [result for result in results if "candidate_timing" not in result]:
            _log.warning("without a tare: %s", strange[0].get("message"))
            return
        self._in_runners = statistics.median(result["candidate_timing"]["median_seconds"] for result in results)

    def now(self) -> float:
        """Return the seconds to take off each call of the reference; not while another runs on the device."""
        if self._in_runners is None:
            return 0.0
        level = self._level()
        if self._here and abs(level - statistics.median(self._here)) > _JUMP:
            self._here.clear()
        self._here.append(level)
        tare = statistics.median(self._here) - self._in_runners
        return tare if abs(tare) <= _MOST else 0.0

    def _level(self) -> float:
        """Return the device seconds of one call here, timed as the reference is."""
        assert self._gate is not None
        gate, plan = self._gate, Plan(range(_CALLS), [0] * _CALLS, [0] * _CALLS, cold=True)
        if self._station is None:
            self._station = self._make()
            run_burst(torch.relu, self._station, plan)  # what is loaded or made at first use would wait for the gate
            gate.open(0)
        self._value += 1
        value = self._value
        seconds = run_burst(torch.relu, self._station, plan, gate=gate, value=value, queued=lambda _: gate.open(value))
        return statistics.median(seconds)

    def _make(self) -> Station:
        device = self._device.torch_device
        spec = tree.describe(torch.empty(_ELEMENTS, device=device))
        size = tree.layout([spec])[1]
        arenas = [torch.zeros(count * size, dtype=torch.uint8, device=device) for count in (_CALLS, 1)]
        structure, _ = tree.flatten([torch.empty(0)])
        return Station.over(self._device, structure, [spec], *arenas, sets=_CALLS, slots=1)


def _spec() -> EvalSpec:
    return EvalSpec(
        reference_code=_SOURCE.format(name="Model"),
        kernel_code=_SOURCE.format(name="ModelNew"),
        entry_point="Model",
        backend="torch",
        toolkit="kernelbench",
        correct_trials=1,
        perf_trials=100,
        warmup=3,
        tolerance=ToleranceRule("PRESET_CALIBRATED", None, None),
        allowed_precision="PRECISION_UNSPECIFIED",
        torch_compile=False,
        cuda_graph=False,
        limits=Limits(60, 60, 60, 60),
        run_performance=True,
        enable_profiling=False,
        stress_inputs=False,
        provenance_policy="PROVENANCE_POLICY_LABEL",
        cases_code="",
        cases=(),
    )
