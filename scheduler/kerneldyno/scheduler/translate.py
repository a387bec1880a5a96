"""Between the contract's messages and the state machine's values; the only place that knows both."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from google.protobuf import timestamp_pb2
from kerneldyno.rpc.validation import MAX_VIOLATIONS, STAGE_TIMEOUT_FIELDS, Violation, effective
from kerneldyno.scheduler.model import (
    Device,
    Evaluation,
    Failure,
    Node,
    NodeState,
    Priority,
    Report,
    Requirement,
    Spec,
    Verdict,
)
from kerneldyno.v1 import evaluation_pb2, fleet_service_pb2, scheduler_service_pb2

_PRIORITIES = {
    evaluation_pb2.PRIORITY_HIGH: Priority.HIGH,
    evaluation_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    evaluation_pb2.PRIORITY_LOW: Priority.LOW,
}
_STATES = {
    NodeState.SERVING: fleet_service_pb2.NODE_STATE_SERVING,
    NodeState.DRAINING: fleet_service_pb2.NODE_STATE_DRAINING,
    NodeState.LOST: fleet_service_pb2.NODE_STATE_LOST,
}


def spec_of(request: evaluation_pb2.EvalRequest) -> tuple[Spec, bytes]:
    """Return a valid request as a spec, and the fingerprint that tells whether two submits have the same body.

    The fingerprint covers everything but the labels, with defaults filled in: leaving a field out and writing its
    default are the same request.
    """
    full = effective(request)
    full.ClearField("labels")
    payload = full.SerializeToString(deterministic=True)
    requirement = Requirement(
        backend=full.backend,
        toolkit=full.toolkit,
        device_kind=full.device.kind,
        device_model=full.device.model,
        min_memory_bytes=full.device.min_memory_bytes,
        profiling=full.enable_profiling,
    )
    limits = [getattr(full.timeouts, name) for name in STAGE_TIMEOUT_FIELDS]
    reference = hashlib.sha256((full.reference_code or full.cases_code).encode()).digest()
    limit_seconds = sum(limit.seconds + limit.nanos / 1e9 for limit in limits)
    spec = Spec(requirement, _PRIORITIES[full.priority], reference, payload, limit_seconds)
    return spec, hashlib.sha256(payload).digest()


def verdict_of(result: evaluation_pb2.EvalResult) -> Verdict:
    """Return a node's result as a verdict."""
    if result.outcome not in evaluation_pb2.EvalResult.Outcome.values() or not result.outcome:
        return Verdict.failed("NODE_PROTOCOL", f"the node sent a result with outcome {result.outcome}", retryable=True)
    failure = None
    if result.outcome == evaluation_pb2.EvalResult.INFRASTRUCTURE_ERROR:
        evidence = result.infrastructure_error
        failure = Failure(evidence.cause, evidence.detail, evidence.retryable)
    outcome = evaluation_pb2.EvalResult.Outcome.Name(result.outcome)
    return Verdict(outcome, result.SerializeToString(), failure)


def invalid_result(request_id: str, violations: Sequence[Violation]) -> evaluation_pb2.EvalResult:
    """Return the result of a malformed request."""
    result = evaluation_pb2.EvalResult(id=request_id, outcome=evaluation_pb2.EvalResult.INVALID)
    for violation in violations[:MAX_VIOLATIONS]:
        result.invalid.violations.add(field=violation.field, description=violation.description)
    result.message = "; ".join(f"{v.field}: {v.description}" for v in violations[:3])
    result.finish_time.GetCurrentTime()
    return _complete(result)


def result_of(evaluation: Evaluation) -> evaluation_pb2.EvalResult:
    """Return the result of a finished evaluation as its client sees it."""
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
    result.attempts = evaluation.attempts
    result.cached = False
    result.ClearField("labels")
    result.labels.update(evaluation.labels)
    result.accept_time.CopyFrom(_timestamp(evaluation.accepted_wall))
    result.finish_time.CopyFrom(_timestamp(evaluation.finished_wall))
    if evaluation.placed_at is not None:
        queued = evaluation_pb2.StageSpan(stage=evaluation_pb2.STAGE_QUEUED, start_time=result.accept_time)
        queued.duration.FromNanoseconds(int(max(0.0, evaluation.placed_wall - evaluation.accepted_wall) * 1e9))
        result.stages.insert(0, queued)
    return _complete(result)


def evaluation_of(evaluation: Evaluation) -> scheduler_service_pb2.Evaluation:
    """Return where an evaluation stands."""
    attempt = evaluation.attempt
    message = scheduler_service_pb2.Evaluation(
        id=evaluation.key.id,
        client_id=evaluation.key.client_id,
        accept_time=_timestamp(evaluation.accepted_wall),
        attempts=evaluation.attempts,
    )
    if evaluation.verdict is not None:
        message.stage = evaluation_pb2.STAGE_DONE
        message.result.CopyFrom(result_of(evaluation))
    elif attempt is not None:
        message.stage = evaluation_pb2.Stage.ValueType(attempt.stage or evaluation_pb2.STAGE_PREPARING)
        message.node_id = attempt.node.id
    else:
        message.stage = evaluation_pb2.STAGE_QUEUED
    return message


def report_of(request: fleet_service_pb2.SynchronizeRequest) -> tuple[Report, list[Violation]]:
    """Return what a node says of itself, and what is wrong with it."""
    violations = []
    if not 1 <= len(request.node_id) <= 100:
        violations.append(Violation("node_id", "must have 1 to 100 characters"))
    if not request.instance_id:
        violations.append(Violation("instance_id", "missing; give a random name for this process"))
    host, _, port = request.address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        violations.append(Violation("address", f"{request.address!r} is not host:port"))
    if not request.devices:
        violations.append(Violation("devices", "missing; a node has at least one device"))
    report = Report(
        node_id=request.node_id,
        instance_id=request.instance_id,
        address=request.address,
        draining=request.state == fleet_service_pb2.NODE_STATE_DRAINING,
        devices=tuple(Device(d.name, d.kind, d.model, d.memory_bytes, d.lanes, d.ready) for d in request.devices),
        backends=frozenset(request.backends),
        toolkits=frozenset(request.toolkits),
        profiling=request.profiling,
        attempt_tokens=tuple(request.attempt_tokens),
        environment=request.environment.SerializeToString(),
    )
    return report, violations


def node_of(node: Node) -> fleet_service_pb2.Node:
    """Return a node as operators see it."""
    report = node.report
    message = fleet_service_pb2.Node(
        node_id=node.id,
        address=report.address,
        state=_STATES[node.state],
        backends=sorted(report.backends),
        toolkits=sorted(report.toolkits),
        running=len(node.attempts),
        last_synchronize_time=_timestamp(node.heard_wall),
    )
    for d in report.devices:
        message.devices.add(
            name=d.name, kind=d.kind, model=d.model, memory_bytes=d.memory_bytes, lanes=d.lanes, ready=d.ready
        )
    message.environment.ParseFromString(report.environment)
    return message


def _complete(result: evaluation_pb2.EvalResult) -> evaluation_pb2.EvalResult:
    """Fill in the fields that a finished result always has."""
    result.compiled = result.compiled
    result.correct = result.correct
    result.speedup = result.speedup
    return result


def _timestamp(wall: float) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromNanoseconds(int(wall * 1e9))
    return stamp
