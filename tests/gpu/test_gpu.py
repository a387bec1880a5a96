"""Tests that need a GPU, with real services: compiled candidates, broken devices, full memory, and the clock."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import TimingStats
from tests.e2e.e2e_harness import PROBLEMS, outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
]

#: A chain of kernels over a tensor. With large sizes a call takes milliseconds, far more than a launch.
REFERENCE = """
import torch

def chain(x):
    for _ in range(PASSES):
        x = torch.tanh(x)
    return x

class Model(torch.nn.Module):
    def forward(self, x):
        return chain(x)

def get_inputs():
    return [torch.randn(ELEMENTS)]

def get_init_inputs():
    return []
"""

CANDIDATE = """
import torch

def chain(x):
    for _ in range(PASSES):
        x = torch.tanh(x)
    return x

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x):
        BODY
"""

HONEST = "return chain(x)"
#: Works on new streams that the caller's stream never waits for, so events on the caller's stream miss the work.
NEVER_JOINED = """
        out = torch.empty_like(x)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            out.copy_(chain(x))
        return out
"""
#: The same, on one stream that is kept, so that work of one call is still queued when the next call begins.
NEVER_JOINED_QUEUE = """
        self.side = self.side or torch.cuda.Stream()
        out = torch.empty_like(x)
        with torch.cuda.stream(self.side):
            out.copy_(chain(x))
        return out
"""
#: Like NEVER_JOINED, but the work begins tens of milliseconds late.
NEVER_JOINED_LATE = """
        out = torch.empty_like(x)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            out.copy_(chain(x))
        return out
"""
#: The caller's stream waits in the first calls, which are checked, but not in later ones, which are timed.
JOINED_AT_FIRST = """
        self.calls = getattr(self, "calls", 0) + 1
        out = torch.empty_like(x)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            out.copy_(chain(x))
        if self.calls <= 6:
            torch.cuda.current_stream().wait_stream(side)
        return out
"""


def example(name: str, **changes: Any) -> EvalRequest:
    """Return a request with a candidate of examples/problems."""
    return request_from_json(
        {
            "id": name,
            "reference_code": (PROBLEMS / name.partition("/")[0] / "reference.py").read_text(),
            "kernel_code": (PROBLEMS / f"{name}.py").read_text(),
            "num_perf_trials": 20,
            **changes,
        }
    )


def chained(body: str, elements: int, passes: int, **changes: Any) -> EvalRequest:
    """Return a request whose candidate has this body, for a chain of `passes` kernels over `elements` elements."""
    sizes = {"ELEMENTS": str(elements), "PASSES": str(passes)}
    sources = {"reference_code": REFERENCE, "kernel_code": CANDIDATE.replace("BODY", body.strip())}
    for name, value in sizes.items():
        sources = {field: text.replace(name, value) for field, text in sources.items()}
    return request_from_json({"backend": "torch", "num_correct_trials": 3, "num_perf_trials": 60, **sources, **changes})


async def judged(services: LocalServices, request: EvalRequest) -> EvalResult:
    """Return the verdict on one request, sent under a new id."""
    request.id = ""
    async with AsyncClient(services.address) as client:
        return await client.evaluate_once(request, timeout=500)


def smi(field: str) -> str:
    """Return a value of nvidia-smi for the first GPU that this process may see."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", f"--id={first}"]
    return subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


async def test_the_device_is_described(gpu_services: LocalServices) -> None:
    async with AsyncClient(gpu_services.address) as client:
        (node,) = await client.nodes()
    (device,) = node.devices
    assert (device.name, device.kind, device.ready) == ("cuda:0", "cuda", True)
    assert device.model == smi("name")
    assert device.memory_bytes == pytest.approx(int(smi("memory.total")) * 2**20, rel=0.05)
    assert device.lanes >= 1
    result = await judged(gpu_services, example("relu/triton_blocks"))
    assert outcome(result) == "CORRECT", result.message
    environment = result.environment
    assert (environment.device, environment.device_model) == ("cuda:0", device.model)
    assert environment.driver_version == smi("driver_version")
    assert environment.cuda_version
    assert not environment.triton_interpreter


async def test_a_cuda_candidate_is_built_and_judged(gpu_services: LocalServices) -> None:
    result = await judged(gpu_services, example("relu/cuda_inline", backend="cuda"))
    assert outcome(result) == "CORRECT", result.message + result.logs
    assert result.speedup > 0
    assert not [finding for finding in result.findings if finding.id != "T01"]


async def test_an_illegal_address_harms_nobody_else(gpu_services: LocalServices) -> None:
    """First alone, then among good candidates: the device is broken only for the runner of the bad one."""
    first = await judged(gpu_services, example("max_reduction/illegal_address"))
    assert outcome(first) == "RUNTIME_ERROR", first.message
    good = [example("max_reduction/triton_tiles", id=f"good-{number}") for number in range(20)]
    for number, request in enumerate(good):
        request.kernel_code += f"\n# {number}\n"
    bad = [example("max_reduction/illegal_address", id=f"bad-{number}") for number in range(3)]
    for number, request in enumerate(bad):
        request.kernel_code += f"\n# {number}\n"
    async with AsyncClient(gpu_services.address) as client:
        requests = [*good[:5], bad[0], *good[5:10], bad[1], *good[10:15], bad[2], *good[15:]]
        results = {result.id: result async for result in client.evaluate(requests, timeout=500)}
    for request in good:
        assert outcome(results[request.id]) == "CORRECT", results[request.id].message
        assert results[request.id].attempts == 1, "no attempt was lost to a broken device"
    assert {outcome(results[request.id]) for request in bad} == {"RUNTIME_ERROR"}


async def test_a_full_device_is_out_of_memory(gpu_services: LocalServices) -> None:
    hoarder = await judged(gpu_services, example("matmul/device_memory_bomb", backend="torch"))
    assert outcome(hoarder) == "OUT_OF_MEMORY", hoarder.message
    assert hoarder.out_of_memory.memory == "device"
    after = await judged(gpu_services, example("matmul/triton_tiles"))
    assert outcome(after) == "CORRECT", after.message


@pytest.mark.parametrize("cheat", [NEVER_JOINED, NEVER_JOINED_QUEUE, NEVER_JOINED_LATE, JOINED_AT_FIRST])
async def test_work_hidden_on_a_side_stream_gains_nothing(gpu_services: LocalServices, cheat: str) -> None:
    elements, passes = 64 << 20, 8
    honest = await judged(gpu_services, chained(HONEST, elements, passes))
    assert outcome(honest) == "CORRECT", honest.message
    result = await judged(gpu_services, chained(cheat, elements, passes))
    if outcome(result) in ("INCORRECT", "REJECTED"):
        assert result.speedup == 0
        return
    assert outcome(result) == "CORRECT", result.message
    cost = honest.candidate_timing.median_seconds
    assert result.candidate_timing.judge_seconds >= 0.5 * cost
    assert result.candidate_timing.median_seconds >= 0.5 * cost, "the number that is reported"
    assert result.speedup <= 1.5 * honest.speedup


@pytest.mark.parametrize(("elements", "passes"), [(64 << 20, 2), (4 << 20, 10), (1 << 16, 20)])
async def test_a_candidate_that_is_the_reference_has_no_speedup(
    gpu_services: LocalServices, elements: int, passes: int
) -> None:
    result = await judged(gpu_services, chained(HONEST, elements, passes, num_perf_trials=200))
    assert outcome(result) == "CORRECT", result.message
    assert 0.8 <= result.speedup <= 1.25, f"{result.candidate_timing} {result.reference_timing}"
    interval = result.speedup_interval
    assert interval.low <= result.speedup <= interval.high
    assert result.candidate_timing.clock == TimingStats.CLOCK_DEVICE_EVENTS, "honest device times are believed"
    assert not result.findings


async def test_twice_the_work_takes_twice_the_time(gpu_services: LocalServices) -> None:
    """The speedup is meaningful: a candidate that does everything twice has half the speed."""
    body = "chain(x)\n        return chain(x)"
    result = await judged(gpu_services, chained(body, 64 << 20, 4))
    assert outcome(result) == "CORRECT", result.message
    assert 0.4 <= result.speedup <= 0.62
