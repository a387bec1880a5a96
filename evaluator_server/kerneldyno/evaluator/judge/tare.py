"""The tare: how much longer one kernel takes in the judge than in runners, taken off the reference's times.

The reference is timed in the judge, the candidate in its runner, and the same kernel takes longer in one process than in
another: 0.1 to 0.3 us, as much for kernels of 4 us as for those of 70 (H200). Before the judge serves anybody it evaluates a
kernel that does next to nothing against itself, and remembers the difference.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections.abc import Awaitable, Callable
from typing import Any

from ..spec import EvalSpec, Limits, ToleranceRule

_log = logging.getLogger("kerneldyno.judge")

_SOURCE = """
import torch

class {name}(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(1024)]
"""
#: Runners that the kernel is timed in.
_RUNNERS = 3
#: More than this, in seconds, is no difference between processes.
_MOST = 0.5e-6


async def find(evaluate: Callable[[EvalSpec], Awaitable[dict[str, Any]]]) -> float:
    """Return the tare in seconds; 0 where it cannot be found. `evaluate` returns results of a judge that has none yet."""
    results = await asyncio.gather(*(evaluate(_spec()) for _ in range(_RUNNERS)))
    if strange := [result for result in results if "speedup" not in result]:
        _log.warning("without a tare: %s", strange[0].get("message"))
        return 0.0
    medians = [
        [result[f"{side}_timing"]["median_seconds"] for side in ("reference", "candidate")] for result in results
    ]
    tare: float = statistics.median(reference - candidate for reference, candidate in medians)
    if abs(tare) > _MOST:
        _log.warning("a tare of %.2f us is not believed", tare * 1e6)
        return 0.0
    return tare


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
