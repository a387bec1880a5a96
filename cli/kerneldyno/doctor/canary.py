"""Send a correct and a wrong candidate through the service: each must get its verdict. For `kerneldyno doctor`."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Collection, Sequence

from kerneldyno.client.aio import AsyncClient
from kerneldyno.client.errors import KernelDynoError, PermissionDeniedError, QueueFullError
from kerneldyno.doctor.checks import Check, State
from kerneldyno.v1.evaluation_pb2 import PRIORITY_HIGH, DeviceSelector, EvalRequest, EvalResult
from kerneldyno.v1.fleet_service_pb2 import Node

#: Time limit of each stage in seconds; the caller limits the whole.
_STAGE_SECONDS = 60

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0


def get_inputs():
    return [torch.randn(64, 129)]


def get_init_inputs():
    return []
"""
_CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + at, tl.maximum(x, 0.0) * 2.0 + OFFSET, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
#: Candidates, by the outcome that each must have.
CANDIDATES = {
    EvalResult.CORRECT: _CANDIDATE.replace("OFFSET", "1.0"),
    EvalResult.INCORRECT: _CANDIDATE.replace("OFFSET", "1.5"),
}


async def evaluate_both(
    client: AsyncClient, ready: Sequence[Node], backends: Collection[str], seconds: float
) -> list[Check]:
    """Send both to one device of each model, and return a finding for each model."""
    if "triton" not in backends:
        text = f"not sent: it is written in triton, but the nodes have {', '.join(backends) or 'no backend'}"
        return [Check("canary", State.NOTE, text)]
    models = {device.model: device.kind for node in ready for device in node.devices if device.ready}
    return await asyncio.gather(*(_on(client, model, kind, seconds) for model, kind in models.items()))


async def _on(client: AsyncClient, model: str, kind: str, seconds: float) -> Check:
    name = f"canary ({kind})"
    started = time.monotonic()
    requests = {outcome: _request(code, model, kind, seconds) for outcome, code in CANDIDATES.items()}
    try:
        results = await asyncio.gather(
            *(client.evaluate_once(request, timeout=seconds) for request in requests.values()), return_exceptions=True
        )
    finally:
        took = time.monotonic() - started
    for outcome, result in zip(requests, results, strict=True):
        what = "the right candidate" if outcome == EvalResult.CORRECT else "the wrong candidate"
        if isinstance(result, PermissionDeniedError):
            return Check(name, State.NOTE, f"not sent: {result}", "a token with the role submit, or --no-canary")
        if isinstance(result, QueueFullError):
            return Check(name, State.NOTE, f"not sent: {result}", "run doctor again when less is queued")
        if isinstance(result, KernelDynoError):
            text = f"{what} has no verdict: {result}"
            return Check(name, State.FAILED, text, "`kerneldyno evaluations --unfinished`, and the scheduler's log")
        if isinstance(result, BaseException):
            raise result
        if result.outcome != outcome:
            said = f"{EvalResult.Outcome.Name(result.outcome)}: {result.message}"
            remedy = f"`kerneldyno trace {result.id}` and the log of {result.environment.node_id or 'the scheduler'}"
            return Check(name, State.FAILED, f"{what} got {said[:300]}", remedy)
    right = results[0]
    assert isinstance(right, EvalResult)
    where = f"{right.environment.node_id} {right.environment.device}, {model}"
    return Check(name, State.OK, f"the right one is CORRECT, the wrong one INCORRECT; {took:.1f} s, on {where}")


def _request(code: str, model: str, kind: str, seconds: float) -> EvalRequest:
    request = EvalRequest(
        id=f"doctor-{uuid.uuid4().hex[:12]}",
        reference_code=REFERENCE,
        kernel_code=code,
        num_correct_trials=2,
        num_perf_trials=10,
        num_warmup=1,
        priority=PRIORITY_HIGH,
        device=DeviceSelector(kind=kind, model=model),
        skip_cache=True,  # test the service as it is now
        labels={"kerneldyno": "doctor"},
    )
    for limit in ("load_timeout", "compile_timeout", "correctness_timeout", "timing_timeout"):
        getattr(request.timeouts, limit).FromSeconds(_STAGE_SECONDS)
    request.total_timeout.FromSeconds(max(1, int(seconds)))
    return request
