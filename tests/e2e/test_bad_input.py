"""Every kind of bad input, by a single call and in the stream: a typed error names the field, in time; work goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.rpc.channel import client_options
from kerneldyno.v1.evaluation_pb2 import Case, DeviceSelector, Tolerance
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest, EvaluateRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.e2e.e2e_harness import REFERENCE, metric, outcome, page, request
from tests.waiting import eventually

#: Time limits in seconds of an answer to bad input. PATIENT is for large messages and for work that must run first.
PROMPT = 10.0
PATIENT = 60.0


def broken(**changes: Any) -> EvalRequest:
    """Return a good request with some fields changed, also to values that a JSON parser would refuse."""
    made = request("bad")
    for name, value in changes.items():
        if isinstance(value, (str, int, float)):
            setattr(made, name, value)
        else:
            getattr(made, name).MergeFrom(value)
    return made


def limited(field: str, seconds: int, nanos: int = 0) -> EvalRequest:
    made = request("bad")
    getattr(made.timeouts, field).CopyFrom(Duration(seconds=seconds, nanos=nanos))
    return made


def labelled(count: int, length: int) -> EvalRequest:
    made = request("bad")
    made.labels.update({f"{number:03d}": "x" * length for number in range(count)})
    return made


FIVE_MEGABYTES = "#" * 5_000_000

#: Requests by what is wrong with them, each with the field that the answer must name.
BAD: dict[str, tuple[EvalRequest, str]] = {
    "no candidate": (broken(kernel_code=""), "kernel_code"),
    "a blank candidate": (broken(kernel_code=" \n\t"), "kernel_code"),
    "no reference": (broken(reference_code=""), "reference_code"),
    "a candidate of 5 MB": (broken(kernel_code=FIVE_MEGABYTES), "kernel_code"),
    "a reference of 5 MB": (broken(reference_code=FIVE_MEGABYTES), "reference_code"),
    "a NUL byte": (broken(kernel_code="x = 1\0"), "kernel_code"),
    "an unknown backend": (broken(backend="abacus"), "backend"),
    "a backend that is no name": (broken(backend="../../etc/passwd"), "backend"),
    "an unknown toolkit": (broken(toolkit="hammer"), "toolkit"),
    "an entry point that is no name": (broken(entry_point="Model; import os"), "entry_point"),
    "negative correctness trials": (broken(num_correct_trials=-1), "num_correct_trials"),
    "no correctness trials": (broken(num_correct_trials=0), "num_correct_trials"),
    "too many correctness trials": (broken(num_correct_trials=2**31 - 1), "num_correct_trials"),
    "negative timed calls": (broken(num_perf_trials=-5), "num_perf_trials"),
    "too many timed calls": (broken(num_perf_trials=1001), "num_perf_trials"),
    "negative warm-up": (broken(num_warmup=-1), "num_warmup"),
    "a negative limit": (limited("load_timeout", -1), "timeouts.load_timeout"),
    "a limit of zero": (limited("compile_timeout", 0), "timeouts.compile_timeout"),
    "a huge limit": (limited("correctness_timeout", 315_576_000_000), "timeouts.correctness_timeout"),
    "a limit that is no duration": (limited("timing_timeout", 1, 2_000_000_000), "timeouts.timing_timeout"),
    "a NaN tolerance": (broken(tolerance=Tolerance(atol=float("nan"))), "tolerance.atol"),
    "an infinite tolerance": (broken(tolerance=Tolerance(rtol=float("inf"))), "tolerance.rtol"),
    "a negative tolerance": (broken(tolerance=Tolerance(rtol=-1e-3)), "tolerance.rtol"),
    "a tolerance beside a preset": (
        broken(tolerance=Tolerance(preset=Tolerance.PRESET_LOOSE, atol=1.0)),
        "tolerance.atol",
    ),
    "a preset that is none": (broken(tolerance=Tolerance(preset=77)), "tolerance.preset"),  # type: ignore[arg-type]
    "a priority that is none": (broken(priority=99), "priority"),
    "a precision that is none": (broken(allowed_precision=-3), "allowed_precision"),
    "a reference backend that is none": (broken(reference_backend=1000), "reference_backend"),
    "a kind of device that is none": (broken(device=DeviceSelector(kind="toaster")), "device.kind"),
    "negative memory": (broken(device=DeviceSelector(min_memory_bytes=-1)), "device.min_memory_bytes"),
    "cases for kernelbench": (broken(cases=[Case(inputs_json="[1]", expected_json="1")]), "cases"),
    "no cases for kernel_simple": (broken(toolkit="kernel_simple", reference_code=""), "cases"),
    "a case that is no JSON": (
        broken(toolkit="kernel_simple", reference_code="", cases=[Case(inputs_json="[1", expected_json="1")]),
        "cases[0].inputs_json",
    ),
    "too many labels": (labelled(17, 1), "labels"),
    "a label that is too long": (labelled(1, 151), "labels['000']"),
    "an id that is too long": (broken(id="i" * 201), "id"),
    "an id that cannot be printed": (broken(id="two\nlines"), "id"),
}


@asynccontextmanager
async def stub(services: LocalServices) -> AsyncIterator[Any]:
    """A stub of the scheduler, without the checks that our client makes."""
    options = [
        *(option for option in client_options() if option[0] != "grpc.max_send_message_length"),
        ("grpc.max_send_message_length", -1),
    ]
    async with grpc.aio.insecure_channel(services.address, options=options) as channel:
        yield SchedulerServiceStub(channel)


async def refusal(calls: Any, body: EvalRequest, timeout: float = PROMPT) -> grpc.aio.AioRpcError:
    """Return the error with which EvaluateOnce refuses `body` before the deadline."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await calls.EvaluateOnce(EvaluateOnceRequest(request=body), timeout=timeout)
    assert refused.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED, "no answer"
    return refused.value


def fields_of(error: grpc.aio.AioRpcError) -> list[str]:
    """Return the fields that a status names in its BadRequest details."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    assert status is not None, "no details"
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    bad = error_details_pb2.BadRequest()
    assert any(detail.Unpack(bad) for detail in status.details)
    assert all(violation.description for violation in bad.field_violations)
    return [violation.field for violation in bad.field_violations]


async def judged(services: LocalServices, body: EvalRequest) -> EvalResult:
    async with stub(services) as calls:
        answer: EvalResult = (await calls.EvaluateOnce(EvaluateOnceRequest(request=body), timeout=PATIENT)).result
        return answer


@pytest.mark.parametrize("what", BAD)
async def test_a_single_call_is_refused_with_the_field_named(services: LocalServices, what: str) -> None:
    body, field = BAD[what]
    async with stub(services) as calls:
        error = await refusal(calls, body)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error.details()
    assert fields_of(error) == [field]
    assert field in (error.details() or "")


async def test_the_stream_names_the_field_and_goes_on(services: LocalServices) -> None:
    """One stream has bad requests and some good ones. The last good one is sent after all others have their answers."""
    async with stub(services) as calls:
        stream = calls.Evaluate(timeout=PATIENT)
        expected: dict[str, tuple[str, str]] = {}
        for number, (what, (body, field)) in enumerate([*BAD.items(), ("no id", (broken(id=""), "id"))]):
            copy = EvalRequest()
            copy.CopyFrom(body)
            if field != "id":
                copy.id = f"bad-{number}"
            expected[copy.id] = (what, field)
            good = request(f"good-{number}") if number % 10 == 0 else None
            if good is not None:
                expected[good.id] = ("good", "")
            await stream.write(EvaluateRequest(client_id="bad-input", requests=[r for r in (copy, good) if r]))
        results: dict[str, EvalResult] = {}
        while results.keys() != expected.keys():
            response = await stream.read()
            assert response is not grpc.aio.EOF, f"ended without {expected.keys() - results.keys()}"
            if response.HasField("result"):
                assert response.result.id not in results
                results[response.result.id] = response.result
        await stream.write(EvaluateRequest(requests=[request("last")]))
        await stream.done_writing()
        while (response := await stream.read()) is not grpc.aio.EOF:
            if response.HasField("result"):
                assert results.setdefault(response.result.id, response.result) is response.result
        assert outcome(results.pop("last")) == "CORRECT"
        assert await stream.code() is grpc.StatusCode.OK
    for id, (what, field) in expected.items():
        result = results[id]
        assert outcome(result) == ("INVALID" if field else "CORRECT"), f"{what}: {result.message}"
        assert [violation.field for violation in result.invalid.violations] == ([field] if field else []), what
        assert all(map(result.HasField, ("correct", "compiled", "speedup")))


async def test_every_violation_is_named_at_once(services: LocalServices) -> None:
    body = broken(kernel_code="", num_correct_trials=-1, backend="abacus", tolerance=Tolerance(atol=float("nan")))
    async with stub(services) as calls:
        fields = fields_of(await refusal(calls, body))
    assert set(fields) == {"kernel_code", "num_correct_trials", "backend", "tolerance.atol"}


@pytest.mark.parametrize("size", [17_000_000, 64_000_000])
async def test_a_message_over_16_mib_is_refused_and_the_server_lives(services: LocalServices, size: int) -> None:
    async with stub(services) as calls:
        error = await refusal(calls, broken(kernel_code="#" * size), PATIENT)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stream = calls.Evaluate(timeout=PATIENT)
        with suppress(
            grpc.aio.AioRpcError, asyncio.InvalidStateError
        ):  # the server may have closed the stream before the write ends
            await stream.write(EvaluateRequest(client_id="big", requests=[broken(kernel_code="#" * size)]))
        assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert outcome(await judged(services, request(""))) == "CORRECT"


async def test_a_batch_over_the_contracts_limits_ends_its_own_stream(services: LocalServices) -> None:
    async with stub(services) as calls:
        stream = calls.Evaluate(timeout=PROMPT)
        many = [EvalRequest(id=f"m{number}") for number in range(1001)]
        await stream.write(EvaluateRequest(client_id="many", requests=many))
        assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        nameless = calls.Evaluate(timeout=PROMPT)
        await nameless.write(EvaluateRequest(requests=[request("r")]))
        assert await nameless.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "client_id" in await nameless.details()


async def test_a_device_that_nobody_has_is_said_at_once(services: LocalServices) -> None:
    async with stub(services) as calls:
        error = await refusal(calls, broken(device=DeviceSelector(model="abacus 3000")))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_an_id_used_twice(services: LocalServices) -> None:
    """The same body is the same work; another body is refused. Both hold for EvaluateOnce and for the stream."""
    first, other = request("twice"), request("twice", "x = x + 0")
    async with stub(services) as calls:
        once = [
            (await calls.EvaluateOnce(EvaluateOnceRequest(request=first, client_id="d"), timeout=PATIENT)).result
            for _ in range(2)
        ]
        assert once[0] == once[1], "the second answer is the first one, times and all"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await calls.EvaluateOnce(EvaluateOnceRequest(request=other, client_id="d"), timeout=PROMPT)
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS

        stream = calls.Evaluate(timeout=PATIENT)
        await stream.write(EvaluateRequest(client_id="d", requests=[other, first, first]))
        await stream.done_writing()
        results = [response.result async for response in stream if response.HasField("result")]
    assert sorted(outcome(result) for result in results)[0] == "CORRECT"
    (invalid,) = [result for result in results if outcome(result) == "INVALID"]
    assert [violation.field for violation in invalid.invalid.violations] == ["id"]


async def test_a_candidate_without_the_entry_point(services: LocalServices) -> None:
    body = request("")
    body.kernel_code = body.kernel_code.replace("ModelNew", "SomethingElse")
    result = await judged(services, body)
    assert outcome(result) == "INVALID"
    assert [violation.field for violation in result.invalid.violations] == ["kernel_code"]
    assert "ModelNew" in result.message


REFERENCES: dict[str, tuple[str, str]] = {
    "without the entry point": (REFERENCE.replace("class Model", "class Other"), "Model"),
    "without inputs": (REFERENCE.replace("def get_inputs", "def get_nothing"), "get_inputs"),
    "that does not parse": ("class Model(:\n", "SyntaxError"),
    "that raises when it is imported": ("raise RuntimeError('import boom')\n" + REFERENCE, "import boom"),
    "that raises when it is called": (
        REFERENCE.replace("return x * 2 + 1", "raise ValueError('call boom')"),
        "call boom",
    ),
    "that exits": (REFERENCE.replace("return x * 2 + 1", "raise SystemExit('bye')"), "SystemExit"),
}


@pytest.mark.parametrize("what", REFERENCES)
async def test_a_reference_is_at_fault(services: LocalServices, what: str) -> None:
    code, words = REFERENCES[what]
    result = await judged(services, request("", reference_code=code))
    assert outcome(result) == "REFERENCE_ERROR", result.message
    assert words in result.message + result.reference_error.traceback
    assert not result.correct


async def test_a_reference_that_kills_its_process_is_at_fault_alone(services: LocalServices) -> None:
    """The judge goes on; other candidates of the same device, and their clients, do not notice."""
    before = page(services.evaluator["metrics"])
    deadly = REFERENCE.replace("return x * 2 + 1", "import ctypes; ctypes.string_at(0)")
    bodies = [request(f"neighbour-{number}", "time.sleep(0.2)") for number in range(8)]
    bodies.insert(2, request("deadly", reference_code=deadly))
    begin = time.monotonic()
    async with AsyncClient(services.address) as client:
        results = {result.id: result async for result in client.evaluate(bodies, timeout=PATIENT)}
    assert time.monotonic() - begin < PATIENT
    assert outcome(results.pop("deadly")) == "REFERENCE_ERROR"
    assert {id: outcome(result) for id, result in results.items()} == {
        body.id: "CORRECT" for body in bodies if body.id != "deadly"
    }
    restarts, ends = "kerneldyno_judge_restarts_total", "kerneldyno_problem_ends_total"

    def has_died() -> bool:
        return metric(page(services.evaluator["metrics"]), ends, how="died") > metric(before, ends, how="died")

    await eventually(has_died, what="the end of a problem's process in the metrics")
    assert metric(page(services.evaluator["metrics"]), restarts) == metric(before, restarts)
    services.check()


async def test_bad_input_from_many_at_once(services: LocalServices) -> None:
    """Refusals are cheap: a flood of them does not keep a good request from its verdict."""
    async with stub(services) as calls, asyncio.timeout(PATIENT):
        flood = [asyncio.create_task(refusal(calls, body, PATIENT)) for body, _ in list(BAD.values()) * 3]
        await asyncio.sleep(0)
        good = await calls.EvaluateOnce(EvaluateOnceRequest(request=request("")), timeout=PATIENT)
        assert outcome(good.result) == "CORRECT"
        errors = await asyncio.gather(*flood)
    assert {error.code() for error in errors} == {grpc.StatusCode.INVALID_ARGUMENT}
