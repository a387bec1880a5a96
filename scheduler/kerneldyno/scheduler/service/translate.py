"""Translation between protobuf messages and the values of the state machine; the only module that knows both."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from google.protobuf import timestamp_pb2

from kerneldyno.rpc import identity, trace_context
from kerneldyno.rpc.native import may_need_build
from kerneldyno.rpc.profiles import asks_for_profile
from kerneldyno.rpc.validation import (
    DEFAULT_BACKEND,
    DEFAULT_TOOLKIT,
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_VIOLATIONS,
    STAGE_TIMEOUT_FIELDS,
    Violation,
    device_kind,
    effective,
)
from kerneldyno.scheduler.core.model import (
    ClientKind,
    Device,
    Evaluation,
    Failure,
    Key,
    MemoryShortage,
    Node,
    NodeState,
    Priority,
    Report,
    Requirement,
    SandboxLayer,
    Spec,
    SpeedupKind,
    SubmitRequest,
    Verdict,
)
from kerneldyno.v1 import evaluation_pb2, fleet_service_pb2, scheduler_service_pb2

_PRIORITIES = {
    evaluation_pb2.PRIORITY_HIGH: Priority.HIGH,
    evaluation_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    evaluation_pb2.PRIORITY_LOW: Priority.LOW,
}
_SPEEDUP_KINDS = {
    evaluation_pb2.SPEEDUP_KIND_DEVICE: SpeedupKind.DEVICE,
    evaluation_pb2.SPEEDUP_KIND_END_TO_END: SpeedupKind.END_TO_END,
}
_SPEEDUP_NUMBERS = {kind: number for number, kind in _SPEEDUP_KINDS.items()}
_BRIEF_FIELDS = {"id", "outcome", "compiled", "correct", "speedup", "message", "cached", "merged", "attempts"} | {
    "end_to_end_speedup",
    "speedup_kind",
    "labels",
    "accept_time",
    "finish_time",
    "digest",
}
_STATES = {
    NodeState.SERVING: fleet_service_pb2.NODE_STATE_SERVING,
    NodeState.DRAINING: fleet_service_pb2.NODE_STATE_DRAINING,
    NodeState.QUARANTINED: fleet_service_pb2.NODE_STATE_QUARANTINED,
    NodeState.LOST: fleet_service_pb2.NODE_STATE_LOST,
}


def submit_request_of(request: evaluation_pb2.EvalRequest, client_id: str, kind: ClientKind) -> SubmitRequest:
    """Translate a valid request of the client that is stored as `client_id`, with defaults filled in."""
    full = effective(request)
    digest = identity.digest(full)
    timeout = full.total_timeout.ToNanoseconds() / 1e9 if full.HasField("total_timeout") else None
    grace = full.client_grace.ToNanoseconds() / 1e9 if full.HasField("client_grace") else None
    priority, fresh, speedup_kind = full.priority, full.skip_cache, _SPEEDUP_KINDS[full.speedup_kind]
    own = f"{priority} {fresh} {timeout}"
    # Left out for the default, so that fingerprints in older stores still match.
    if speedup_kind is not SpeedupKind.DEVICE:
        own += f" {speedup_kind.name}"
    return SubmitRequest(
        key=Key(client_id, request.id),
        kind=kind,
        spec=_spec(full),
        digest=digest,
        fingerprint=hashlib.sha256(digest + own.encode()).digest(),
        priority=_PRIORITIES[priority],
        labels=dict(request.labels),
        timeout_seconds=timeout,
        grace_seconds=grace,
        fresh=fresh,
        speedup_kind=speedup_kind,
        trace=trace_context.of_message(request.trace_context) if request.HasField("trace_context") else "",
    )


def spec_of(payload: bytes) -> Spec:
    """Return the work that was serialised into `Spec.payload`."""
    return _spec(evaluation_pb2.EvalRequest.FromString(payload))


def _spec(full: evaluation_pb2.EvalRequest) -> Spec:
    """Return the work of a request with defaults. Removes all other fields from `full`."""
    for name in identity.NOT_THE_WORK:
        full.ClearField(name)  # type: ignore[arg-type]
    limits = [getattr(full.timeouts, name) for name in STAGE_TIMEOUT_FIELDS]
    reference = hashlib.sha256((full.reference_code or full.cases_code).encode()).digest()
    limit_seconds = sum(limit.seconds + limit.nanos / 1e9 for limit in limits)
    return Spec(requirement_of(full), reference, full.SerializeToString(), limit_seconds)


def requirement_of(request: evaluation_pb2.EvalRequest) -> Requirement:
    """Return what a node must offer to run a valid request. It must say already whether there is a profile."""
    return Requirement(
        backend=request.backend or DEFAULT_BACKEND,
        toolkit=request.toolkit or DEFAULT_TOOLKIT,
        device_kind=device_kind(request),
        device_model=request.device.model,
        min_memory_bytes=request.device.min_memory_bytes,
        profiling=asks_for_profile(request),
        node_labels=frozenset(request.device.node_labels.items()),
        min_devices=request.device.min_devices,
        may_build=may_need_build(request),
    )


@lru_cache(maxsize=1024)
def fingerprint_of(environment: bytes, device_model: str) -> bytes:
    """Return the digest of an environment: a node's serialised Environment and the model of one of its devices."""
    return identity.environment_fingerprint(evaluation_pb2.Environment.FromString(environment), device_model)


def verdict_of(result: evaluation_pb2.EvalResult) -> Verdict:
    """Translate a node's result."""
    if result.outcome not in evaluation_pb2.EvalResult.Outcome.values() or not result.outcome:
        return Verdict.failed(
            "NODE_PROTOCOL", f"the node sent a result with the unknown outcome {result.outcome}", retryable=True
        )
    failure = None
    if result.outcome == evaluation_pb2.EvalResult.INFRASTRUCTURE_ERROR:
        evidence = result.infrastructure_error
        failure = Failure(evidence.cause, evidence.detail, evidence.retryable)
    shortage = None
    if result.outcome == evaluation_pb2.EvalResult.PROBLEM_TOO_LARGE:
        short, device = result.problem_too_large, result.environment.device
        # On the CPU device, the host's memory is the device's memory.
        of_device = short.memory == "device" or device.startswith("cpu")
        shortage = MemoryShortage(device, of_device, short.needed_bytes, short.device_bytes)
    outcome = evaluation_pb2.EvalResult.Outcome.Name(result.outcome)
    environment = b""
    if result.environment.torch_version:
        environment = fingerprint_of(result.environment.SerializeToString(), result.environment.device_model)
    return Verdict(outcome, result.SerializeToString(), failure, environment, shortage=shortage)


def invalid_result(request_id: str, violations: Sequence[Violation]) -> evaluation_pb2.EvalResult:
    """Return the result of a malformed request."""
    result = evaluation_pb2.EvalResult(id=request_id, outcome=evaluation_pb2.EvalResult.INVALID)
    for violation in violations[:MAX_VIOLATIONS]:
        result.invalid.violations.add(field=violation.field, description=violation.description)
    result.message = "; ".join(f"{v.field}: {v.description}" for v in violations[:3])
    result.finish_time.GetCurrentTime()
    return _complete(result)


def infrastructure_result(request_id: str, cause: str, detail: str) -> evaluation_pb2.EvalResult:
    """Return the result of an evaluation that was cancelled before it was submitted."""
    result = evaluation_pb2.EvalResult(
        id=request_id, outcome=evaluation_pb2.EvalResult.INFRASTRUCTURE_ERROR, message=detail
    )
    result.infrastructure_error.cause, result.infrastructure_error.detail = cause, detail
    result.finish_time.GetCurrentTime()
    return _complete(result)


def result_of(evaluation: Evaluation) -> evaluation_pb2.EvalResult:
    """Return the result of a finished evaluation for its client."""
    verdict = evaluation.verdict
    assert verdict is not None, "only finished evaluations have a result"
    result = evaluation_pb2.EvalResult()
    if verdict.payload:
        result.ParseFromString(verdict.payload)
    else:
        result.outcome = evaluation_pb2.EvalResult.Outcome.Value(verdict.outcome)
        if (failure := verdict.failure) is not None:
            result.message = failure.detail
            evidence = result.infrastructure_error
            evidence.cause, evidence.detail, evidence.retryable = failure.cause, failure.detail, failure.retryable
    result.id = evaluation.key.id
    result.digest = evaluation.digest.hex()
    result.attempts = evaluation.attempts
    result.cached, result.merged = verdict.cached, evaluation.merged
    result.ClearField("speedup_kind")  # it belongs to the request: a stored result may answer requests of both kinds
    if result.HasField("candidate_timing"):
        result.speedup_kind = _SPEEDUP_NUMBERS[evaluation.speedup_kind]
    result.ClearField("labels")
    result.labels.update(evaluation.labels)
    result.accept_time.CopyFrom(_timestamp(evaluation.accepted_wall))
    result.finish_time.CopyFrom(_timestamp(evaluation.finished_wall))
    if evaluation.placed_wall:
        queued = evaluation_pb2.StageSpan(stage=evaluation_pb2.STAGE_QUEUED, start_time=result.accept_time)
        queued.duration.FromNanoseconds(int(max(0.0, evaluation.placed_wall - evaluation.accepted_wall) * 1e9))
        result.stages.insert(0, queued)
    return _complete(result)


def evaluation_of(evaluation: Evaluation, *, full_result: bool = True) -> scheduler_service_pb2.Evaluation:
    """Return the state of an evaluation; with `full_result` False, its result has only the fields that a list shows."""
    attempt = evaluation.job.attempt if evaluation.job is not None else None
    message = scheduler_service_pb2.Evaluation(
        id=evaluation.key.id,
        client_id=evaluation.key.client_id,
        accept_time=_timestamp(evaluation.accepted_wall),
        attempts=evaluation.job.attempts if evaluation.job is not None else evaluation.attempts,
        labels=evaluation.labels,
        digest=evaluation.digest.hex(),
        trace_id=trace_context.trace_id_of(evaluation.trace),
    )
    if evaluation.verdict is not None:
        message.stage = evaluation_pb2.STAGE_DONE
        result = result_of(evaluation)
        message.result.CopyFrom(result if full_result else _brief(result))
    elif attempt is not None:
        message.stage = evaluation_pb2.Stage.ValueType(attempt.stage or evaluation_pb2.STAGE_PREPARING)
        message.node_id = attempt.node.id
    else:
        message.stage = evaluation_pb2.STAGE_QUEUED
    return message


def _brief(result: evaluation_pb2.EvalResult) -> evaluation_pb2.EvalResult:
    """Return the fields of a result that a list shows."""
    kept = evaluation_pb2.EvalResult()
    for descriptor, value in result.ListFields():
        if descriptor.name in _BRIEF_FIELDS:
            if descriptor.name == "labels":
                kept.labels.update(value)
            elif descriptor.message_type is not None:
                getattr(kept, descriptor.name).CopyFrom(value)
            else:
                setattr(kept, descriptor.name, value)
    return kept


def report_of(request: fleet_service_pb2.SynchronizeRequest) -> tuple[Report, list[Violation]]:
    """Translate the report of a node, and return what is invalid in it."""
    violations = []
    if not 1 <= len(request.node_id) <= 100:
        violations.append(Violation("node_id", "must have 1 to 100 characters"))
    if not request.instance_id:
        violations.append(Violation("instance_id", "missing; give a random name for this process"))
    host, _, port = request.address.rpartition(":")
    if request.address and not (host and port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        violations.append(Violation("address", f"{request.address[:100]!r} is not host:port"))
    if not request.devices:
        violations.append(Violation("devices", "missing; a node has at least one device"))
    if len(request.labels) > MAX_LABELS or any(
        max(map(len, pair)) > MAX_LABEL_CHARS for pair in request.labels.items()
    ):
        text = f"at most {MAX_LABELS} labels, with keys and values of at most {MAX_LABEL_CHARS} characters, are allowed"
        violations.append(Violation("labels", text))
    report = Report(
        node_id=request.node_id,
        instance_id=request.instance_id,
        address=request.address,
        draining=request.state == fleet_service_pb2.NODE_STATE_DRAINING,
        devices=tuple(Device(d.name, d.kind, d.model, d.memory_bytes, d.lanes, d.ready) for d in request.devices),
        backends=frozenset(request.backends),
        toolkits=frozenset(request.toolkits),
        profiling=request.profiling,
        labels=frozenset(request.labels.items()),
        attempt_tokens=tuple(request.attempt_tokens),
        builders=max(0, request.builders),
        environment=request.environment.SerializeToString(),
        sandbox=tuple(SandboxLayer(layer.name, layer.active, layer.detail) for layer in request.sandbox_layers),
    )
    return report, violations


def node_of(node: Node, *, with_sandbox: bool = True) -> fleet_service_pb2.Node:
    """Return a node for operators. Snapshots of large fleets leave out the sandbox, which does not change."""
    report = node.report
    message = fleet_service_pb2.Node(
        node_id=node.id,
        address=report.address,
        state=_STATES[node.state],
        backends=sorted(report.backends),
        toolkits=sorted(report.toolkits),
        running=len(node.attempts),
        last_synchronize_time=_timestamp(node.heard_wall),
        labels=dict(report.labels),
        drained=node.drained,
        connected=node.connected,
        failures=node.failures,
        builders=report.builders,
        building=node.building,
    )
    for d in report.devices:
        message.devices.add(
            name=d.name, kind=d.kind, model=d.model, memory_bytes=d.memory_bytes, lanes=d.lanes, ready=d.ready
        )
    message.environment.ParseFromString(report.environment)
    for layer in report.sandbox if with_sandbox else ():
        message.sandbox_layers.add(name=layer.name, active=layer.active, detail=layer.detail)
    return message


def _complete(result: evaluation_pb2.EvalResult) -> evaluation_pb2.EvalResult:
    """Set the fields that a finished result always has, even when their value is the default."""
    result.compiled = result.compiled
    result.correct = result.correct
    result.speedup = result.speedup
    return result


def _timestamp(wall: float) -> timestamp_pb2.Timestamp:
    seconds = int(wall)
    return timestamp_pb2.Timestamp(seconds=seconds, nanos=int((wall - seconds) * 1e9))
