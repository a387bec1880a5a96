"""KernelGYM's tasks as evaluations of the scheduler: the task id is the evaluation id, under the gateway's client id.

An evaluation that ended with an infrastructure failure keeps its id and its result. So a task that is sent again after
that, or with force_refresh, becomes the evaluation "<task id>~1", then "~2", and so on. A task id always means the last of
them. The gateway stores nothing of this; it asks the scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from kerneldyno.client import AsyncClient
from kerneldyno.client.errors import EvaluationNotFoundError, KernelDynoError
from kerneldyno.gateway import kernelgym
from kerneldyno.gateway.metrics import Metrics
from kerneldyno.gateway.refusals import Refusal, bad_request, refusal_of
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2 import Evaluation

#: How often one request repeats an evaluation that ended with an infrastructure failure.
RETRIES = 2
#: Largest number of evaluations of one task id.
MAX_RUNS = 50
MAX_BATCH = 100
#: Longest wait for one evaluation, in seconds. Its own limits normally end it earlier.
WAIT_SECONDS = 7_200.0
#: Timeout of the scheduler's answer for /health, in seconds.
HEALTH_SECONDS = 5.0


class Tasks:
    """Answer KernelGYM's routes."""

    def __init__(self, client: AsyncClient, options: Mapping[str, Any]) -> None:
        self._client = client
        self._options = options

    async def evaluate(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer POST /evaluate once there is a verdict. The same task sent again gets the same verdict.

        Raises:
            Refusal: the request is invalid, or there is no verdict.
        """
        task_id = kernelgym.task_id_of(body)
        try:
            request = kernelgym.request_of(body, self._options)
            result = await self._judge(task_id, request, fresh=bool(body.get("force_refresh")))
        except Refusal:
            raise
        except KernelDynoError as error:
            raise refusal_of(error, task_id=task_id) from error
        return kernelgym.response_of(task_id, result, kernelgym.ignored(body))

    async def evaluate_batch(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer POST /evaluate/batch; its tasks run concurrently.

        Raises:
            Refusal: the request is invalid, or one task or more has no verdict.
        """
        tasks = body.get("tasks")
        if (
            not isinstance(tasks, list)
            or not 1 <= len(tasks) <= MAX_BATCH
            or not all(isinstance(t, dict) for t in tasks)
        ):
            raise bad_request(f"tasks: give a list of 1 to {MAX_BATCH} tasks")
        ids = [kernelgym.task_id_of(task) for task in tasks]
        if len(set(ids)) != len(ids):
            raise bad_request("tasks: two have the same task_id; give each a different one")
        submitted_at = datetime.now(UTC).isoformat()
        results = await asyncio.gather(*map(self.evaluate, tasks), return_exceptions=True)
        refusals = [result for result in results if isinstance(result, BaseException)]
        for refusal in sorted(refusals, key=lambda one: isinstance(one, Refusal) and one.status == 503):
            if isinstance(refusal, Refusal):
                refusal.message = f"{len(refusals)} of {len(ids)} tasks: task {refusal.task_id}: {refusal.message}"
            raise refusal
        failed = sum(result["status"] != "completed" for result in results if isinstance(result, dict))
        return {
            "batch_id": str(body.get("batch_id") or ""),
            "total_tasks": len(ids),
            "completed_tasks": len(ids) - failed,
            "failed_tasks": failed,
            "results": results,
            "batch_status": "completed",
            "submitted_at": submitted_at,
            "completed_at": datetime.now(UTC).isoformat(),
        }

    async def status(self, task_id: str) -> dict[str, Any]:
        """Answer GET /status/{id}."""
        _, evaluation = await self._last_run(task_id)
        return kernelgym.status_of(task_id, _found(task_id, evaluation))

    async def results(self, task_id: str) -> dict[str, Any]:
        """Answer GET /results/{id}; 404 until the task is done, as in KernelGYM."""
        _, evaluation = await self._last_run(task_id)
        known = _found(task_id, evaluation)
        if not known.HasField("result"):
            raise Refusal(
                404, f"task {task_id!r} has no result yet; GET /status/{task_id} returns its stage", task_id=task_id
            )
        return kernelgym.response_of(task_id, known.result)

    async def cancel(self, task_id: str) -> dict[str, Any]:
        """Answer DELETE /tasks/{id}."""
        _, evaluation = await self._last_run(task_id)
        await self._client.cancel(_found(task_id, evaluation).id)
        return {"message": f"task {task_id} is cancelled"}

    async def health(self, turns: int, metrics: Metrics) -> tuple[dict[str, Any], int]:
        """Answer GET /health.

        Args:
            turns: number of unfinished turns.
            metrics: metrics of the gateway.

        Returns:
            The body, and the status: 503 if the scheduler is unreachable or stalled, or no device is ready.
        """
        data: dict[str, Any] = {
            "status": "unhealthy",
            "timestamp": datetime.now(UTC).isoformat(),
            "gpu_status": {},
            "queue_status": {},
            "memory_usage": {},
            "active_tasks": turns,
            "total_processed": metrics.answered,
            "uptime": metrics.uptime,
        }
        try:
            async with asyncio.timeout(HEALTH_SECONDS), aclosing(self._client.watch()) as snapshots:
                cluster = await anext(snapshots)
        except TimeoutError:
            return data | {"error": f"the scheduler gave no answer within {HEALTH_SECONDS:g} s"}, 503
        except KernelDynoError as error:
            return data | {"error": error.message}, 503
        devices = {
            f"{node.node_id}/{device.name}": {
                "model": device.model,
                "memory_bytes": device.memory_bytes,
                "ready": device.ready,
            }
            for node in cluster.nodes
            for device in node.devices
        }
        wrong = "" if any(device["ready"] for device in devices.values()) else "no device is ready"
        if cluster.journal_stalled:
            wrong = f"the scheduler cannot write its journal: {cluster.journal_stalled}"
        data |= {
            "status": "unhealthy" if wrong else "healthy",
            "gpu_status": devices,
            "queue_status": {"queued": cluster.queued, "running": cluster.running, "outcomes": dict(cluster.outcomes)},
            "active_tasks": cluster.queued + cluster.running,
        }
        return (data | {"error": wrong}, 503) if wrong else (data, 200)

    async def _judge(self, task_id: str, request: EvalRequest, *, fresh: bool) -> EvalResult:
        run, known = await self._last_run(task_id)
        if known is not None and known.HasField("result") and (fresh or _is_lost(known.result)):
            run += 1
        for _ in range(RETRIES + 1):
            request.id = _run_id(task_id, run)
            result = await self._client.evaluate_once(request, WAIT_SECONDS)
            if not (_is_lost(result) and result.infrastructure_error.retryable):
                break
            run += 1
        return result

    async def _last_run(self, task_id: str) -> tuple[int, Evaluation | None]:
        """Return number and state of the last evaluation of a task; 0 and None if there is none."""
        known: Evaluation | None = None
        for run in range(MAX_RUNS):
            try:
                evaluation = await self._client.get(_run_id(task_id, run))
            except EvaluationNotFoundError:
                return max(0, run - 1), known
            known = evaluation
        raise Refusal(409, f"task {task_id!r} was run {MAX_RUNS} times; give it another task_id", task_id=task_id)


def _run_id(task_id: str, run: int) -> str:
    return f"{task_id}~{run}" if run else task_id


def _is_lost(result: EvalResult) -> bool:
    return result.outcome == EvalResult.INFRASTRUCTURE_ERROR


def _found(task_id: str, evaluation: Evaluation | None) -> Evaluation:
    if evaluation is None:
        text = f"there is no task {task_id[:60]!r}: it was never sent to this gateway's scheduler, or its result was dropped"
        raise Refusal(404, text, task_id=task_id)
    return evaluation
