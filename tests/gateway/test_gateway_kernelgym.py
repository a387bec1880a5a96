"""Tests of KernelGYM's routes, by the fields that its clients send and read."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from kerneldyno.gateway import kernelgym
from kerneldyno.testing.results import REFERENCE_SECONDS
from kerneldyno.v1.evaluation_pb2 import (
    PROFILE_LEVEL_COUNTERS,
    PROFILE_LEVEL_UNSPECIFIED,
    PROVENANCE_POLICY_LABEL,
    SANITIZE_ALL,
    SANITIZE_WINNERS,
    EvalResult,
)
from tests.gateway.gateway_harness import REFERENCE, Served, gateway

#: The fields that KernelGYM's training client sends with each task, besides the sources.
DEFAULTS = {
    "backend": "triton",
    "toolkit": "kernelbench",
    "backend_adapter": "kernelbench",
    "workflow": "kernelbench",
    "num_correct_trials": 5,
    "num_perf_trials": 100,
    "timeout": 300,
    "priority": "normal",
    "entry_point": "Model",
    "reference_backend": None,
    "uuid": "0f3a",
    "use_reference_cache": False,
    "is_valid": False,
    "verbose_errors": True,
    "enable_profiling": False,
    "detect_decoy_kernel": True,
    "force_refresh": False,
}


def task(task_id: str, script: str = "speedup=2.0", **changes: object) -> dict[str, object]:
    code = f"# {script}\nclass ModelNew: pass\n"
    return {"task_id": task_id, "reference_code": REFERENCE, "kernel_code": code, **DEFAULTS, **changes}


async def evaluate(served: Served, *args: str, **changes: object) -> httpx.Response:
    return await served.post("/evaluate", task(*args, **changes))


async def test_a_right_candidate_in_milliseconds() -> None:
    async with gateway() as served:
        answer = await evaluate(served, "a")
        stored = (await served.http.get("/results/a")).json()
        status = (await served.http.get("/status/a")).json()
    data = answer.json()
    assert (answer.status_code, data["task_id"], data["status"]) == (200, "a", "completed")
    assert (data["compiled"], data["correctness"], data["decoy_kernel"]) == (True, True, False)
    assert data["reference_runtime"] == pytest.approx(REFERENCE_SECONDS * 1e3)
    assert data["kernel_runtime"] == pytest.approx(REFERENCE_SECONDS * 1e3 / 2)
    assert data["speedup"] == 2.0
    assert (data["error_message"], data["error_code"]) == (None, None)
    assert data["submitted_at"] <= data["completed_at"]
    assert data["metadata"]["correctness_trials"] == "(5 / 5)"
    assert "ignored_fields" not in data["metadata"]
    assert stored == data
    assert (status["status"], status["assigned_device"]) == ("completed", "cpu:0")


async def test_speedup_and_times_are_those_that_count() -> None:
    """KernelGYM's own times contain launches; `--request '{"speedup_kind": "end-to-end"}'` gives comparable times."""
    async with gateway({"options": {"speedup_kind": "end-to-end"}}) as served:
        data = (await evaluate(served, "a", "speedup=2 end_to_end=4")).json()
        older = (await evaluate(served, "b", "speedup=2 end_to_end=none")).json()
    assert data["speedup"] == 4.0
    assert data["reference_runtime"] == pytest.approx(2 * REFERENCE_SECONDS * 1e3)
    assert data["kernel_runtime"] == pytest.approx(2 * REFERENCE_SECONDS * 1e3 / 4)
    assert data["metadata"]["kerneldyno"]["speedup"] == 2.0
    assert (older["correctness"], older["speedup"]) == (True, 0.0)
    assert (older["reference_runtime"], older["kernel_runtime"]) == (-1.0, -1.0), "never the other time"


VERDICTS = [
    # script, status, compiled, decoy, error code
    ("outcome=INCORRECT", "completed", True, False, "CORRECTNESS_ERROR"),
    ("outcome=COMPILE_ERROR", "failed", False, False, "COMPILATION_ERROR"),
    ("outcome=RUNTIME_ERROR", "completed", True, False, "RUNTIME_ERROR"),
    ("outcome=TIMEOUT", "timeout", True, False, "TIMEOUT_ERROR"),
    ("outcome=OUT_OF_MEMORY", "completed", True, False, "RESOURCE_ERROR"),
    ("outcome=REJECTED findings=S19", "completed", True, True, "CORRECTNESS_ERROR"),
    ("outcome=REJECTED findings=T04", "completed", True, False, "CORRECTNESS_ERROR"),
    ("outcome=INVALID", "failed", False, False, "VALIDATION_ERROR"),
]


@pytest.mark.parametrize(("script", "status", "compiled", "decoy", "code"), VERDICTS, ids=[v[0] for v in VERDICTS])
async def test_each_outcome(script: str, status: str, compiled: bool, decoy: bool, code: str) -> None:
    async with gateway() as served:
        answer = await evaluate(served, "a", script)
    data = answer.json()
    assert answer.status_code == 200
    assert (data["status"], data["compiled"], data["decoy_kernel"]) == (status, compiled, decoy)
    assert (data["correctness"], data["speedup"]) == (False, 0.0)
    assert (data["reference_runtime"], data["kernel_runtime"]) == (-1.0, -1.0)
    assert data["error_code"] == code
    assert data["error_message"].startswith(script.split()[0].removeprefix("outcome="))


def test_no_outcome_is_forgotten() -> None:
    known = {EvalResult.Outcome.Value(script.split()[0].removeprefix("outcome=")) for script, *_ in VERDICTS}
    without = {
        EvalResult.OUTCOME_UNSPECIFIED,
        EvalResult.CORRECT,
        EvalResult.REFERENCE_ERROR,
        EvalResult.PROBLEM_TOO_LARGE,
        EvalResult.INFRASTRUCTURE_ERROR,
    }
    assert known | without == set(EvalResult.Outcome.values())
    assert set(kernelgym._ERROR_CODES) == known


async def test_what_is_not_the_candidates_fault_is_no_result() -> None:
    async with gateway() as served:
        lost = await evaluate(served, "lost", "outcome=INFRASTRUCTURE_ERROR retryable=no")
        after = [await served.http.get(f"/{what}/lost") for what in ("status", "results")]
        reference = await evaluate(served, "ref", "outcome=REFERENCE_ERROR")
        large = await evaluate(served, "large", "outcome=PROBLEM_TOO_LARGE")
        field = await evaluate(served, "bad", "outcome=INVALID field=entry_point")
    assert [answer.status_code for answer in (lost, *after)] == [503] * 3
    assert lost.headers["Retry-After"] == "5"
    assert (lost.headers["X-Error-Code"], lost.json()["error_code"], lost.json()["task_id"]) == (
        *["SYSTEM_ERROR"] * 2,
        "lost",
    )
    assert (reference.status_code, large.status_code, field.status_code) == (422, 422, 400)
    assert "too large for every device" in large.text


async def test_a_task_that_was_lost_runs_anew_when_it_is_sent_again() -> None:
    async with gateway() as served:
        script = "outcome=INFRASTRUCTURE_ERROR retryable=no node=n1"
        assert (await evaluate(served, "a", script)).status_code == 503
        served.node.node_id = "n2"  # the script fails on n1 only
        answer = await evaluate(served, "a", script)
        assert (answer.status_code, answer.json()["correctness"]) == (200, True)
        assert (await served.http.get("/results/a")).json() == answer.json()
        assert (await served.http.get("/status/a")).json()["status"] == "completed"


async def test_a_task_cannot_take_the_place_of_another_ones_second_run() -> None:
    """Otherwise clients would get its verdict as that of the other task."""
    async with gateway() as served:
        own = (await evaluate(served, "a", "speedup=2.0")).json()
        other = await evaluate(served, "a~1", "speedup=9.0")
        assert (other.status_code, "repeated run" in other.json()["message"]) == (400, True)
        assert (await served.http.get("/results/a")).json()["speedup"] == own["speedup"] == 2.0
        assert (await evaluate(served, "a~b", "speedup=3.0")).status_code == 200


async def test_the_same_task_again() -> None:
    async with gateway() as served:
        first = await evaluate(served, "a")
        assert (await evaluate(served, "a")).json() == first.json()
        assert len(served.node.started) == 1
        other = await evaluate(served, "a", "speedup=3.0")
        assert (other.status_code, "used for a different request" in other.json()["message"]) == (409, True)
        refreshed = await evaluate(served, "a", "speedup=3.0", force_refresh=True)
        assert refreshed.json()["speedup"] == 3.0
        assert (await served.http.get("/results/a")).json()["speedup"] == 3.0


async def test_status_while_it_runs_and_cancelling() -> None:
    async with gateway() as served:
        running = asyncio.create_task(evaluate(served, "a", "sleep=60"))
        while (status := await served.http.get("/status/a")).status_code == 404:  # noqa: ASYNC110 - it is polled, as clients do
            await asyncio.sleep(0.05)
        assert status.json()["status"] in ("pending", "processing")
        assert (await served.http.get("/results/a")).status_code == 404
        assert (await served.http.delete("/tasks/a")).status_code == 200
        assert (await running).status_code == 409
        assert (await served.http.get("/results/a")).status_code == 409
        again = asyncio.create_task(evaluate(served, "a", "sleep=60"))
        while len(served.node.started) < 2:  # noqa: ASYNC110 - the node has no event for it
            await asyncio.sleep(0.05)
        assert (await served.http.delete("/tasks/a")).status_code == 200
        assert (await again).status_code == 409
        assert (await served.http.delete("/tasks/a")).status_code == 409, "it has ended"


async def test_what_is_not_there() -> None:
    async with gateway() as served:
        answers = [
            await served.http.get("/status/none"),
            await served.http.get("/results/none"),
            await served.http.delete("/tasks/none"),
        ]
    assert [answer.status_code for answer in answers] == [404] * 3


async def test_a_batch_runs_at_once_and_keeps_its_order() -> None:
    tasks = [task(f"t{index}", f"speedup={index + 1} sleep=0.3") for index in range(15)]
    tasks.append(task("t15", "outcome=COMPILE_ERROR"))
    async with gateway(node={"lanes": 16}) as served:
        answer = await served.post("/evaluate/batch", {"batch_id": "b", "tasks": tasks})
        assert served.node.most_at_once >= 8
    data = answer.json()
    assert (data["batch_id"], data["total_tasks"], data["batch_status"]) == ("b", 16, "completed")
    assert (data["completed_tasks"], data["failed_tasks"]) == (15, 1)
    assert [result["task_id"] for result in data["results"]] == [f"t{index}" for index in range(16)]
    assert [result["speedup"] for result in data["results"][:15]] == [index + 1.0 for index in range(15)]


async def test_a_batch_with_a_lost_task_is_503_and_the_rest_is_kept() -> None:
    async with gateway() as served:
        tasks = [task("good"), task("lost", "outcome=INFRASTRUCTURE_ERROR retryable=no")]
        answer = await served.post("/evaluate/batch", {"batch_id": "b", "tasks": tasks})
        assert (answer.status_code, answer.json()["task_id"]) == (503, "lost")
        assert (await served.http.get("/results/good")).json()["correctness"] is True


BAD = [
    ({"task_id": ""}, "task_id"),
    ({"task_id": "x" * 101}, "task_id"),
    ({"task_id": None}, "task_id"),
    ({"kernel_code": ""}, "kernel_code"),
    ({"reference_code": None}, "reference_code"),
    ({"num_correct_trials": 0}, "num_correct_trials"),
    ({"num_perf_trials": 100_000}, "num_perf_trials"),
    ({"timeout": 999_999}, "timeouts.load_timeout"),
    ({"timeout": "soon"}, "timeout"),
    ({"backend": "fortran"}, "backend"),
    ({"toolkit": "other"}, "toolkit"),
    ({"workflow": "other"}, "workflow"),
    ({"priority": "urgent"}, "priority"),
    ({"run_correctness": False}, "run_correctness"),
    ({"reference_backend": "jax"}, "reference_backend"),
    ({"reference_backend": ["pytorch"]}, "reference_backend"),
    ({"device_preference": "tpu:0"}, "device_preference"),
    ({"resources": {"gpus": 2}}, "resources"),
    ({"kernel_code": 5}, "kernel_code"),
    ({"enable_profiling": True}, "enable_profiling"),
]


@pytest.mark.parametrize(("change", "complaint"), BAD, ids=range(len(BAD)))
async def test_bad_tasks_are_400_with_the_field(change: dict[str, object], complaint: str) -> None:
    async with gateway() as served:
        answer = await served.post("/evaluate", {**task("a"), **change})
        assert (answer.status_code, served.node.started) == (400, []), answer.text
    assert complaint in answer.json()["message"]
    assert answer.headers["X-Error-Code"] == answer.json()["error_code"]


@pytest.mark.parametrize("tasks", [None, [], {}, ["x"], [task("a"), task("a")], [task(str(i)) for i in range(101)]])
async def test_bad_batches_are_400(tasks: object) -> None:
    async with gateway() as served:
        answer = await served.post("/evaluate/batch", {"batch_id": "b", "tasks": tasks})
        assert (answer.status_code, served.node.started) == (400, [])


def test_translation_of_the_switches() -> None:
    body = task("a", run_performance=False, enable_triton_detection=False, reference_backend="torch_compile")
    request = kernelgym.request_of(
        {**body, "device_preference": "cuda:3", "force_refresh": True}, {"tolerance": "loose"}
    )
    assert (request.run_performance, request.skip_cache, request.device.kind) == (False, True, "cuda")
    assert request.provenance_policy == PROVENANCE_POLICY_LABEL
    assert request.timeouts.load_timeout.seconds == request.timeouts.timing_timeout.seconds == 300
    assert (request.reference_backend, request.tolerance.preset) == (2, 3)
    assert kernelgym.ignored({**body, "colour": "red"}) == ["colour"]


def test_a_task_that_decides_about_its_profile_overrides_the_settings() -> None:
    settings = {"profile_level": "counters", "sanitize": "all"}
    request = kernelgym.request_of(task("a", enable_profiling=False, sanitize="winners"), settings)
    assert (request.profile_level, request.HasField("enable_profiling")) == (PROFILE_LEVEL_UNSPECIFIED, True)
    assert (request.enable_profiling, request.sanitize) == (False, SANITIZE_WINNERS)
    open_task = {name: value for name, value in task("a").items() if name != "enable_profiling"}
    request = kernelgym.request_of(open_task, settings)
    assert (request.profile_level, request.sanitize) == (PROFILE_LEVEL_COUNTERS, SANITIZE_ALL)


async def test_health_and_about() -> None:
    async with gateway() as served:
        await evaluate(served, "a")
        health = await served.http.get("/health")
        about = (await served.http.get("/")).json()
    data = health.json()
    assert (health.status_code, data["status"], about["name"]) == (200, "healthy", "KernelDyno gateway")
    assert data["gpu_status"]["n1/cpu:0"]["ready"] is True
    assert data["queue_status"]["outcomes"]["CORRECT"] == 1
    assert data["uptime"] > 0
    json.dumps(data)
