"""What only a GPU can show: hung and poisoned devices, memory of the device, and work hidden from the stream."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch
from judge_harness import Judge, candidate, limits, request
from kerneldyno.evaluator.devices.cuda import CudaDevice

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not os.environ.get("KERNELDYNO_REQUIRE_GPU"), reason="run by make test-gpu"),
]

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
    gate = device.own_gate()
    counter = torch.zeros(1, device="cuda")
    for value in (1, 2):
        counter.add_(1)  # loaded and launched once before anything waits
        device.synchronize()
        gate.wait(value)
        counter.add_(1)
        gate.finish(value)
        time.sleep(0.05)
        assert not gate.is_finished(value)
        gate.open(value)
        device.synchronize()
        assert gate.is_finished(value)
        assert float(counter) == 2 * value


STUCK = """
import torch
from kerneldyno.evaluator.devices.cuda import CudaDevice
device = CudaDevice(0)
device.warm_up()
gate = device.own_gate()
events = [torch.cuda.Event(enable_timing=True) for _ in range(4000)]
events[0].record()
device.synchronize()
gate.open_after(2, 0.3)
gate.wait(2)
for event in events:
    event.record()
gate.finish(2)
print("late", gate.hold(2))
"""


def test_a_gate_opens_though_its_process_waits_behind_it_with_the_interpreters_lock() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "late True\n", done.stderr
