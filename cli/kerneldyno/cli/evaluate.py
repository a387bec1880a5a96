"""`kerneldyno evaluate`: evaluate one candidate and show the verdict."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from kerneldyno.cli.asked import Asked
from kerneldyno.cli.candidate_options import NO_BUILD_OPTIONS, BuildOptions
from kerneldyno.cli.cards import verdict_card
from kerneldyno.cli.chosen import NOTHING_CHOSEN, Chosen
from kerneldyno.cli.common import (
    NO_VERDICT,
    NOT_AS_REQUIRED,
    Json,
    Service,
    UsageError,
    fail,
    print_json,
    report_stalled,
    reporting,
    stdout,
    waiting,
)
from kerneldyno.client.aio import AsyncClient
from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult


def evaluate(
    *,
    asked: Asked,
    build: BuildOptions = NO_BUILD_OPTIONS,
    chosen: Chosen = NOTHING_CHOSEN,
    require: Annotated[
        str | None, typer.Option("--require", metavar="OUTCOME", help="Exit with status 4 unless this is the outcome.")
    ] = None,
    require_speedup: Annotated[
        float | None,
        typer.Option(
            "--require-speedup",
            metavar="P",
            help="Exit with status 4 unless it is CORRECT and the whole interval of its speedup is above P.",
        ),
    ] = None,
    service: Service,
    as_json: Json = False,
) -> None:
    """Judge CANDIDATE against REFERENCE.py (or against --cases) and show the verdict."""
    with reporting():
        wanted = _outcome(require, require_speedup)
        result = judged(service, asked.request(chosen, build))
        if as_json:
            print_json(result_to_json(result))
        else:
            stdout().print(verdict_card(result))
        if result.outcome == EvalResult.INFRASTRUCTURE_ERROR:
            raise typer.Exit(NO_VERDICT)
        if wanted is not None and (missing := _shortfall(result, wanted, require_speedup)):
            fail(missing, NOT_AS_REQUIRED)


def judged(service: Service, request: EvalRequest) -> EvalResult:
    """Return the verdict on one request, from the service that the options name."""
    with service.open() as target:
        return asyncio.run(_judge(target, request))


def _outcome(name: str | None, speedup: float | None) -> EvalResult.Outcome.ValueType | None:
    """Return the outcome that --require or --require-speedup asks for; None if any will do."""
    wanted = name.strip().upper() if name is not None else "CORRECT" if speedup is not None else None
    if wanted is None:
        return None
    known = [each for each, number in EvalResult.Outcome.items() if number]
    if wanted not in known:
        raise UsageError(f"--require {name!r} is unknown; choose one of {', '.join(known)}")
    if speedup is not None and wanted != "CORRECT":
        raise UsageError(f"--require-speedup needs a CORRECT candidate, but --require asks for {wanted}")
    return EvalResult.Outcome.Value(wanted)


def _shortfall(result: EvalResult, wanted: EvalResult.Outcome.ValueType, speedup: float | None) -> str:
    """Return how the result misses what is required; "" if it meets it."""
    if result.outcome != wanted:
        names = EvalResult.Outcome.Name
        return f"the outcome is {names(result.outcome)}, but {names(wanted)} is required"
    if speedup is None:
        return ""
    counted = counted_speedup(result)
    if counted.interval is None:
        return f"no interval of a speedup was measured, but one above {speedup:g} is required"
    low, high = counted.interval.low, counted.interval.high
    return "" if low > speedup else f"the speedup is in [{low:.4g}, {high:.4g}], but all above {speedup:g} is required"


async def _judge(address: str, request: EvalRequest) -> EvalResult:
    async with AsyncClient(address, on_stalled=report_stalled) as client:
        await client.capabilities()  # fails at once, where evaluate() would wait for the scheduler
        with waiting("judging"):
            return await anext(client.evaluate([request]))
