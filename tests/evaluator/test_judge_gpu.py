"""Tests that need a GPU: hung and poisoned devices, memory of the device, work hidden from the stream, and graphs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices.base import AFRESH
from kerneldyno.evaluator.devices.cuda import CudaDevice
from kerneldyno.evaluator.judge.comparison import compare
from tests.evaluator.judge_harness import Judge, candidate, limits, request

pytestmark = pytest.mark.gpu

BIG = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))

def get_inputs():
    return [torch.randn(64, 1024, 1024)]
"""

HONEST = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"

SPIN = """
@triton.jit
def spin(flag_ptr):
    while tl.load(flag_ptr, volatile=True) == 0:
        pass
"""

STRAY = """
@triton.jit
def stray(x_ptr):
    tl.store(x_ptr + 1099511627776, 1.0)
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as running:
        assert running.ready["device"]["kind"] == "cuda"
        yield running


def test_a_kernel_that_never_ends_is_killed(judge: Judge) -> None:
    body = "spin[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device)); torch.cuda.synchronize()"
    result = judge.evaluate(request(candidate(prologue=SPIN, body=body), **limits(compile=6)))
    assert result["outcome"] == "TIMEOUT", result["message"]
    after = judge.evaluate(request(candidate(), run_performance=True))
    assert after["outcome"] == "CORRECT", after["message"]


def test_an_illegal_address_harms_nobody_else(judge: Judge) -> None:
    poison = request(candidate(prologue=STRAY, body="stray[(1,)](x); torch.cuda.synchronize()"))
    for _ in range(3):
        result = judge.evaluate(poison)
        assert result["outcome"] == "RUNTIME_ERROR", result["message"]
        assert result["runtime_error"]["kind"] == "device"
        assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"


WEIGHED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1024))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.randn(1024, 1024)]
"""

#: When its state has been read, it keeps its stream busy for a third of a second.
BUSY = """
import torch

class Busy(dict):
    def items(self):
        yield from super().items()
        torch.cuda._sleep(600_000_000)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1024))

    def state_dict(self, *args, **kwargs):
        return Busy(super().state_dict(*args, **kwargs))

    def forward(self, x):
        return x * self.weight
"""


def test_secret_parameters_have_arrived_before_inputs_take_their_place(judge: Judge) -> None:
    for _ in range(3):
        result = judge.evaluate(request(BUSY, reference_code=WEIGHED, backend="torch", stress_inputs=True))
        assert result["outcome"] == "CORRECT", result["message"]
        assert result["correctness"]["parameters_perturbed"] == 1


def test_device_memory_runs_out_for_the_candidate_alone(judge: Judge) -> None:
    body = "hoard = [torch.empty(1 << 34, dtype=torch.uint8, device=x.device) for _ in range(64)]"
    result = judge.evaluate(request(candidate(body=body)))
    assert result["outcome"] == "OUT_OF_MEMORY", result["message"]
    assert result["out_of_memory"]["memory"] == "device"
    assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"


def test_work_on_a_side_stream_costs_its_time_or_is_wrong(judge: Judge) -> None:
    honest = request(
        HONEST.format(body="return torch.tanh(torch.tanh(torch.tanh(x)))"),
        reference_code=BIG,
        backend="torch",
        run_performance=True,
        num_perf_trials=40,
    )
    cheat = request(
        HONEST.format(
            body="y = torch.empty_like(x); s = torch.cuda.Stream()\n"
            "        with torch.cuda.stream(s): torch.tanh(torch.tanh(torch.tanh(x)), out=y)\n"
            "        y.record_stream(s); return y"
        ),
        reference_code=BIG,
        backend="torch",
        run_performance=True,
        num_perf_trials=40,
    )
    plain = judge.evaluate(honest)
    assert plain["outcome"] == "CORRECT", plain["message"]
    assert 0.9 < plain["speedup"] < 1.1
    hidden = judge.evaluate(cheat)
    assert hidden["outcome"] in ("INCORRECT", "CORRECT")
    if hidden["outcome"] == "CORRECT":
        assert hidden["candidate_timing"]["median_seconds"] > 0.5 * plain["candidate_timing"]["median_seconds"]
        assert "T01" in [finding["id"] for finding in hidden["findings"]]


def test_times_taken_through_a_patched_event_are_not_believed(judge: Judge) -> None:
    body = "return torch.tanh(torch.tanh(torch.tanh(x)))"
    patch = "import torch\ntorch.cuda.Event.elapsed_time = lambda self, end: 0.001\n"
    result = judge.evaluate(
        request(
            patch + HONEST.format(body=body),
            reference_code=BIG,
            backend="torch",
            run_performance=True,
            num_perf_trials=40,
        )
    )
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] < 1.5
    assert [finding["id"] for finding in result["findings"]] in (["T01"], ["T28"])


CONNECTIONS = "import os; print('connections', os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS'))"


@pytest.mark.parametrize(("comment", "connections"), [("", "1"), ("  # torch.cuda.Stream", "None")])
def test_who_uses_streams_gets_a_runner_that_has_them(judge: Judge, comment: str, connections: str) -> None:
    result = judge.evaluate(request(candidate(prologue=CONNECTIONS + comment), run_performance=True))
    assert result["outcome"] == "CORRECT", result["message"]
    assert f"connections {connections}" in result["logs"]


def test_memory_of_an_arena_holds_nothing_that_the_judge_had_in_it() -> None:
    device = CudaDevice(0)
    device.warm_up()
    for _ in range(3):
        arena = device.new_arena(5 << 20, [], 0)
        assert bool((arena.data == 0xFF).all())
        arena.data.fill_(7)
        arena.close()


def test_a_gate_holds_work_back_and_says_when_it_is_done() -> None:
    device = CudaDevice(0)
    device.warm_up()
    (page,) = device.runner_descriptors()
    signals = device.signals([page])
    os.close(page)
    queue, gate = device.gate(signals, queues=True), device.gate(signals, queues=False)
    counter = torch.zeros(1, device="cuda")
    for value in (1, 2):
        counter.add_(1)  # load and launch the kernel once before anything waits
        device.synchronize()
        queue.wait(value)
        counter.add_(1)
        queue.finish(value)
        time.sleep(0.05)
        assert not gate.is_finished(value)
        gate.open(value)
        device.synchronize()
        assert gate.is_finished(value)
        assert float(counter) == 2 * value


# Chains of short kernels, eager and as CUDA graphs

CHAIN = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(20):
            x = torch.tanh(x)
        return x

def get_inputs():
    return [torch.randn(64, 1024)]
"""
WAITS = CHAIN.replace("return x\n", "return x if x.sum().item() < 1e30 else -x\n")
DROPOUT = CHAIN.replace(
    "for _ in range(20):\n            x = torch.tanh(x)\n        return x", "return torch.dropout(x, 0.5, True)"
)
GRAPH, EAGER = "LAUNCH_MODE_CUDA_GRAPH", "LAUNCH_MODE_EAGER"
LOOP = "for _ in range(20): x = torch.tanh(x)\n        return x"


def replayed(judge: Judge, body: str, **changes: Any) -> dict[str, Any]:
    asked = {"backend": "torch", "run_performance": True, "num_perf_trials": 60, "launch_mode": GRAPH, **changes}
    result = judge.evaluate(request(HONEST.format(body=body), **{"reference_code": CHAIN, **asked}))
    assert result["outcome"] == "CORRECT", result["message"]
    return result


def modes(result: dict[str, Any]) -> tuple[str, str]:
    return result["candidate_timing"]["launch_mode"], result["reference_timing"]["launch_mode"]


def test_both_sides_are_timed_in_processes_of_the_same_pace(judge: Judge) -> None:
    for _ in range(4):
        result = replayed(judge, LOOP, launch_mode=EAGER)
        paces = [result[side]["pace_seconds"] for side in ("reference_timing", "candidate_timing")]
        assert all(0.5e-6 < pace < 50e-6 for pace in paces), paces
        assert max(paces) < 1.04 * min(paces)
        assert 0.95 < result["speedup"] < 1.05


# Regimes: both sides have the same

WAITING = "return x if x.sum().item() < 1e30 else -x"


def regimes(result: dict[str, Any]) -> set[str]:
    assert {result[f"{side}_end_to_end"]["regime"] for side in ("candidate", "reference")} == {"REGIME_AS_CALLED"}
    return {result[f"{side}_timing"]["regime"] for side in ("candidate", "reference")}


def test_a_chain_that_can_be_queued_has_two_times(judge: Judge) -> None:
    result = replayed(judge, LOOP, launch_mode=EAGER, num_perf_trials=100)
    assert regimes(result) == {"REGIME_QUEUED_AHEAD"}
    for side in ("candidate", "reference"):
        assert result[f"{side}_end_to_end"]["median_seconds"] > 1.2 * result[f"{side}_timing"]["median_seconds"]
        assert result[f"{side}_end_to_end"]["clock"] == "CLOCK_EACH_CALL"
    # End-to-end times include the host's pace, which differs between two processes.
    assert 0.8 < result["end_to_end_speedup"] < 1.25
    interval = result["end_to_end_speedup_interval"]
    assert interval["low"] < 1.1
    assert interval["high"] > 0.9
    assert result["timing_effort"]["lease_seconds"] < 2


def test_a_candidate_that_waits_takes_its_reference_with_it_and_it_is_said_what_that_is_worth(judge: Judge) -> None:
    result = replayed(judge, LOOP.replace("return x", WAITING), launch_mode=EAGER)
    assert regimes(result) == {"REGIME_AS_CALLED"}
    assert "T31" in [finding["id"] for finding in result["findings"]]
    assert 0 < result["reference_timing"]["queued_seconds"] < result["reference_timing"]["median_seconds"]
    assert result["speedup"] == result["end_to_end_speedup"] < 1.05


def test_where_both_wait_nobody_is_blamed(judge: Judge) -> None:
    result = replayed(judge, LOOP.replace("return x", WAITING), launch_mode=EAGER, reference_code=WAITS)
    assert regimes(result) == {"REGIME_AS_CALLED"}
    assert result["findings"] == []
    assert 0.9 < result["speedup"] < 1.1


@pytest.mark.parametrize(("passes", "regime"), [(1500, "REGIME_QUEUED_AHEAD"), (6000, "REGIME_AS_CALLED")])
def test_calls_of_many_launches_are_queued_while_they_fit(judge: Judge, passes: int, regime: str) -> None:
    reference = CHAIN.replace("range(20)", f"range({passes})")
    loop = LOOP.replace("range(20)", f"range({passes})")
    result = replayed(judge, loop, launch_mode=EAGER, reference_code=reference)
    assert regimes(result) == {regime}
    assert 0.9 < result["speedup"] < 1.1


def test_a_process_keeps_its_pace() -> None:
    device = CudaDevice(0)
    device.warm_up()
    paces = [pace for _ in range(5) if (pace := device.pace()) is not None]
    assert len(paces) == 5
    assert max(pace.cycles for pace in paces) < 1.03 * min(pace.cycles for pace in paces), paces
    assert all(5e8 < pace.hertz < 5e9 for pace in paces), paces


def test_both_sides_are_replayed_as_graphs(judge: Judge) -> None:
    graph, eager = replayed(judge, LOOP), replayed(judge, LOOP, launch_mode=EAGER)
    for result, mode in ((graph, GRAPH), (eager, EAGER)):
        assert result["findings"] == []
        assert modes(result) == (mode, mode)
        assert 0.8 < result["speedup"] < 1.25
    for side in ("candidate_timing", "reference_timing"):
        assert graph[side]["median_seconds"] < eager[side]["median_seconds"]
        assert graph[side]["launch_seconds"] < eager[side]["launch_seconds"] / 2


@pytest.mark.parametrize(
    "body",
    [
        "assert x.sum().item() < 1e30\n        " + LOOP,
        # The legacy stream: a graph leaves such work out without an error.
        "with torch.cuda.stream(torch.cuda.default_stream()): x = torch.tanh(x)\n        " + LOOP.replace("20", "19"),
        # The graph captures an earlier answer instead of the work.
        "if torch.cuda.is_current_stream_capturing(): return self.kept.clone()\n"
        "        for _ in range(20): x = torch.tanh(x)\n"
        "        self.kept = x\n"
        "        return x",
        "torch.rand(1, device=x.device)\n        " + LOOP,
        # Much generated C++ ends like this. During capture the call returns an error, which nobody checks.
        LOOP.replace("return x", "__import__('ctypes').CDLL(None).cudaDeviceSynchronize()\n        return x"),
    ],
    ids=["waits", "legacy", "cheats", "random", "waits unchecked"],
)
def test_a_candidate_that_cannot_be_replayed_gains_nothing(judge: Judge, body: str) -> None:
    result = replayed(judge, body)
    assert modes(result) == (EAGER, EAGER)
    assert result["speedup"] < 1.05


@pytest.mark.parametrize("reference", [WAITS, DROPOUT], ids=["waits", "random"])
def test_nobody_is_replayed_beside_a_reference_that_cannot_be_and_nothing_is_spoilt(
    judge: Judge, reference: str
) -> None:
    honest = "return torch.dropout(x, 0.5, True)" if reference == DROPOUT else LOOP
    assert modes(replayed(judge, honest, reference_code=reference, stress_inputs=False)) == (EAGER, EAGER)
    assert modes(replayed(judge, LOOP)) == (GRAPH, GRAPH)


def test_a_capture_that_fails_leaves_no_trace() -> None:
    device = CudaDevice(0)
    x = torch.ones(1000, device=device.torch_device)
    for broken in (
        lambda: x * x.sum().item(),
        lambda: torch.rand_like(x),
        torch.cuda.synchronize,
        lambda: 1 / capturing(),
    ):
        assert device.capture([lambda: x + 1, broken]) is None
        assert not torch.cuda.is_current_stream_capturing()
        torch.manual_seed(3)
        drawn = torch.rand_like(x)
        torch.manual_seed(3)
        assert torch.equal(drawn, torch.rand_like(x))
    held = x.repeat(1 << 14)
    begin = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    graphs = device.capture([lambda: held * 2, lambda: held * 3])
    assert graphs is not None
    held.fill_(5)
    assert [float(graph()[:1000].sum()) for graph in graphs] == [10_000, 15_000]
    del graphs
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == begin[0]
    assert torch.cuda.memory_reserved() <= begin[1]


def capturing() -> int:
    return 0 if torch.cuda.is_current_stream_capturing() else 1


def test_memory_that_is_moved_is_there_again_and_what_is_in_use_stays() -> None:
    device = CudaDevice(0)
    device.warm_up()
    used = torch.arange(1 << 20, device="cuda")
    kept = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (40, 64, 12)]
    del kept
    for seed in (AFRESH, 3, 4, AFRESH):
        device.displace(seed)
        reserved = torch.cuda.memory_reserved()
        assert reserved >= 116 << 20
        again = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (40, 64, 12)]
        assert torch.cuda.memory_reserved() == reserved  # no memory was requested from the driver
        del again
    assert torch.equal(used, torch.arange(1 << 20, device="cuda"))


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("broken", [0, 3])
def test_how_large_elements_are_is_the_same_as_in_double_precision(
    scale: float, dtype: torch.dtype, broken: int
) -> None:
    x = (torch.randn(20_000_000, device="cuda") * scale).to(dtype)
    x[:broken] = torch.tensor([float("nan"), float("inf"), -float("inf")])[:broken].to(x)
    truth = x.cpu().double()[broken:]
    expected = float(truth.square().mean().sqrt()), float(truth.abs().mean())
    assert compare._moments(x) == pytest.approx(expected, rel=1e-5)
