"""The program of a node, `python -m kerneldyno.evaluator`: it creates the parts, serves, and shuts down in order.

Exit status 0 after a signal, 2 for invalid settings, 3 when a device cannot be made ready (its judge refuses, for
example because `--sandbox=require` is not possible). The process imports neither torch nor CUDA.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1._async import HealthServicer

from kerneldyno.rpc import credentials, serving, tokens, tracing
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.rpc.metric_series import LoopLag, new_registry
from kerneldyno.v1 import evaluator_service_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2_grpc as pb_grpc

from . import settings
from .cell import CellFailedError
from .evaluator_service import EvaluatorService
from .fleet import FleetLink
from .metrics import Metrics
from .node import Node
from .settings import Settings, SettingsError
from .tracing import AttemptSpans

_log = logging.getLogger(__name__)

_SERVICE = pb.DESCRIPTOR.services_by_name["EvaluatorService"]
#: Time limit in seconds for each step of a stop: telling the scheduler, sending the last results, ending the streams.
_STOP_STEP_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal, and return the exit status."""
    try:
        chosen = settings.load(sys.argv[1:] if arguments is None else arguments)
        if chosen.exit_with_parent:
            serving.exit_with_parent()
        serving.configure_logging(chosen.log_level)
        _log.info("event=settings %s %s", chosen, serving.limits())
        return asyncio.run(serve(chosen))
    except (SettingsError, CredentialsError, OSError) as error:
        print(f"kerneldyno-evaluator: {error}", file=sys.stderr)
        return 2


async def serve(chosen: Settings) -> int:
    """Serve until a signal, then drain, and return the exit status.

    Raises:
        OSError: A port is taken.
        CredentialsError: A file with credentials is unusable.
    """
    prometheus = new_registry()
    metrics, lag = Metrics(prometheus, chosen.devices), LoopLag(prometheus)
    spans = tracing.start("kerneldyno-evaluator")
    traced = AttemptSpans(spans, chosen.node_id) if spans is not None else None
    node = Node(chosen.cells(), metrics, builders=chosen.builder(), labels=chosen.labels, spans=traced)
    gate = chosen.security.gate(str(chosen.listen))
    tracing.forget_settings()
    for name in (credentials.TOKEN_VARIABLE, tokens.TOKENS_VARIABLE):
        os.environ.pop(name, None)  # judges would inherit them, and references run in judges
    server = serving.make_server(ServerInterceptor(prometheus, [_SERVICE], gate))
    pb_grpc.add_EvaluatorServiceServicer_to_server(EvaluatorService(node), server)
    bound = serving.listen(server, chosen.listen, chosen.security.tls)
    link = None
    if chosen.scheduler is not None:
        address, instance = chosen.address(bound), secrets.token_hex(8)
        link = FleetLink(node, chosen.scheduler, address=address, instance_id=instance, credentials=chosen.credentials)
    status = 0
    page = serving.start_metrics(chosen.metrics, prometheus)
    try:
        with serving.Signals() as signals:
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(node.run()), group.create_task(lag.watch())]
                if await _first(node.until_ready(), signals.stop.wait()):
                    health = await serving.add_health_and_reflection(server, [_SERVICE.full_name])
                    await server.start()
                    if link is not None:
                        background.append(group.create_task(link.run()))
                    serving.print_ready(
                        "kerneldyno-evaluator",
                        grpc=bound,
                        metrics=page.address if page else "off",
                        node=chosen.node_id,
                        devices=",".join(chosen.devices),
                    )
                    await signals.stop.wait()
                    await _drain(chosen, node, link, server, health, signals)
                for task in background:
                    task.cancel()
    except* CellFailedError as failures:
        status = _print_failures(failures, 3)
    except* CredentialsError as failures:  # the credentials for the scheduler
        status = _print_failures(failures, 2)
    finally:
        await server.stop(0)
        metrics.gpus.stop()
        if page is not None:
            page.stop()
        if spans is not None:
            await asyncio.to_thread(spans.close)
    return status


async def _drain(
    chosen: Settings,
    node: Node,
    link: FleetLink | None,
    server: grpc.aio.Server,
    health: HealthServicer,
    signals: serving.Signals,
) -> None:
    """Stop in order: refuse new work, finish attempts, return the rest. Heartbeats and judges continue meanwhile."""
    _log.info("event=draining node=%s attempts=%d", node.node_id, len(node.attempts.tokens()))
    await health.enter_graceful_shutdown()
    node.drain()
    if link is not None and link.connected:
        # An idle node stops within milliseconds. If the scheduler did not know, it would send it work for a whole
        # lease.
        await _within(_STOP_STEP_SECONDS, link.said_draining.wait(), signals)
    await _within(chosen.drain_seconds, _finish(node, link), signals)
    node.abandon("NODE_STOPPED", "the evaluator was stopped before the attempt was finished")
    await _within(_STOP_STEP_SECONDS, node.until_empty(), signals)
    if link is not None:
        await _within(_STOP_STEP_SECONDS, link.close(), signals)
    await server.stop(_STOP_STEP_SECONDS)
    if lost := node.attempts.held():
        hint = "the scheduler runs them again"
        _log.warning("event=results_lost node=%s attempts=%d hint=%r", node.node_id, len(lost), hint)
    _log.info("event=stopped node=%s", node.node_id)


async def _finish(node: Node, link: FleetLink | None) -> None:
    """Wait for attempts to finish, and for the scheduler to acknowledge them; without a lease it does not want them."""
    await node.until_idle()
    if link is not None:
        await node.until_acknowledged(lambda: link.connected)


async def _within(seconds: float, step: Coroutine[Any, Any, object], signals: serving.Signals) -> None:
    """Take one step of a stop, for at most `seconds`, and end it at a second signal."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _first(step, signals.hurry.wait())


async def _first(wanted: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object]) -> bool:
    """Run both until one ends. Return True if `wanted` ended."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wanted), group.create_task(other)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    return not tasks[0].cancelled()


def _print_failures(failures: BaseExceptionGroup[Exception], status: int) -> int:
    for line in _messages(failures):
        print(f"kerneldyno-evaluator: {line}", file=sys.stderr)
    return status


def _messages(failures: BaseExceptionGroup[Exception]) -> list[str]:
    return [
        line
        for failure in failures.exceptions
        for line in (_messages(failure) if isinstance(failure, BaseExceptionGroup) else [str(failure)])
    ]
