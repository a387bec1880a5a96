"""`kerneldyno trace`: show one evaluation's path through the system, from the scheduler's records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kerneldyno.cli.cards import outcome_text, plain
from kerneldyno.cli.common import (
    NO_VERDICT,
    Address,
    Json,
    UsageError,
    clock_time,
    fail,
    lasting,
    print_json,
    reporting,
    stdout,
    to_json,
    waiting,
)
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.client.errors import EvaluationNotFoundError
from kerneldyno.report.wording import speedup_words, stage_words
from kerneldyno.rpc.turns import AGAIN
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.scheduler_service_pb2 import Evaluation

_PAGE = 1_000
_MOST_ALIKE, _MOST_SUGGESTED = 10, 3
_BAR_WIDTH = 32
#: Shortest gap between stages that gets a line, in seconds.
_WORTH_A_LINE = 1e-3


@dataclass(frozen=True, slots=True)
class _Step:
    """A stage, or a gap between stages; times in seconds, `start` since the first step."""

    name: str
    start: float
    seconds: float
    is_gap: bool = False


@dataclass(slots=True)
class _Found:
    """What the scheduler has for an id."""

    evaluations: list[Evaluation] = field(default_factory=list)  # the evaluation, and its second measurement
    alike: list[Evaluation] = field(default_factory=list)  # others that asked for the same work
    more_alike: bool = False


def trace(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the evaluation; `kerneldyno evaluations` lists them.")],
    client_id: Annotated[
        str | None,
        typer.Option("--client-id", metavar="CLIENT_ID", help="Its client. Default: search those of all clients."),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """Show one evaluation's path through the system.

    Shows when it was accepted, how long it waited, where it ran, each stage, the outcome, and who else asked for it.
    For a turn that was measured twice both are shown.
    """
    with reporting():
        with waiting("looking for it"):
            found = asyncio.run(_find(address, id, client_id))
        if as_json:
            evaluations = [to_json(one) | {"timeline": _timeline_json(one)} for one in found.evaluations]
            print_json({"evaluations": evaluations, "same_work": [to_json(one) for one in found.alike]})
            return
        console = stdout()
        for number, evaluation in enumerate(found.evaluations):
            if number:
                console.print()
            console.print(_card(evaluation))
        if found.alike:
            console.print()
            console.print(_alike_table(found))


async def _find(address: str, id: str, client_id: str | None) -> _Found:
    wanted = id.removesuffix(AGAIN)
    async with AsyncClient(address) as client:
        owner = await _owner(client, id) if client_id is None else client_id
    found = _Found()
    async with AsyncClient(address, client_id=owner) as client:
        for one in (wanted, wanted + AGAIN):
            try:
                found.evaluations.append(await client.get(one))
            except EvaluationNotFoundError:
                if one == id:
                    whose = f"client {owner!r} has" if owner else "without a client id there is"
                    hint = f"`kerneldyno evaluations{f' --client {owner}' if owner else ''}` lists what is kept"
                    fail(f"{whose} no evaluation {id!r}; {hint}", NO_VERDICT)
        digest = found.evaluations[0].digest
        async for other in (
            client.list(digest=digest, full_results=True, page_size=_MOST_ALIKE + 2) if digest else _none()
        ):
            if (other.client_id, other.id) == (owner, found.evaluations[0].id):
                continue
            if len(found.alike) == _MOST_ALIKE:
                found.more_alike = True
                break
            found.alike.append(other)
    return found


async def _none() -> Any:
    return
    yield


async def _owner(client: AsyncClient, id: str) -> str:
    """Return the client whose evaluation has this id."""
    owners: set[str] = set()
    similar: list[str] = []
    async for one in client.list(page_size=_PAGE):
        if one.id == id:
            owners.add(one.client_id)
        elif one.id.startswith(id) and len(similar) < _MOST_SUGGESTED:
            similar.append(one.id)
    if len(owners) > 1:
        listed = ", ".join(repr(owner) for owner in sorted(owners))
        raise UsageError(f"{len(owners)} clients have an evaluation {id!r}; choose one with --client-id: {listed}")
    if not owners:
        hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
        fail(f"no evaluation has the id {id!r}, or its result is no longer kept{hint}", NO_VERDICT)
    return owners.pop()


# How it looks


def _card(evaluation: Evaluation) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(evaluation):
        facts.add_row(name, value if isinstance(value, Text) else plain(value))
    parts: list[RenderableType] = [facts]
    steps = _steps(evaluation.result) if evaluation.HasField("result") else []
    if steps:
        parts += [Text(""), _timeline(steps)]
    return Group(*parts)


def _facts(evaluation: Evaluation) -> list[tuple[str, str | Text]]:
    result = evaluation.result
    facts: list[tuple[str, str | Text]] = [("evaluation", evaluation.id)]
    if evaluation.id.endswith(AGAIN):
        facts.append(("", "the second measurement of the turn"))
    facts.append(("client", evaluation.client_id or "none (EvaluateOnce)"))
    facts.append(("accepted", clock_time(evaluation.accept_time)))
    if not evaluation.HasField("result"):
        waited = time.time() - evaluation.accept_time.ToNanoseconds() / 1e9
        stage = stage_words(evaluation.stage) + (f" on {evaluation.node_id}" if evaluation.node_id else "")
        facts.append(("now", f"{stage}, {lasting(max(0.0, waited))} after it was accepted"))
    else:
        total = _at(result.finish_time) - _at(result.accept_time)
        facts.append(
            ("finished", f"{clock_time(result.finish_time)}, {lasting(max(0.0, total))} after it was accepted")
        )
        outcome = outcome_text(result.outcome)
        if result.outcome == EvalResult.CORRECT and (speedup := speedup_words(result)):
            outcome.append(f"  {speedup}")
        facts.append(("outcome", outcome))
        if result.outcome == EvalResult.INFRASTRUCTURE_ERROR:
            facts.append(("cause", result.infrastructure_error.cause))
        if result.message:
            facts.append(("because", result.message))
        facts.append(("answered by", _answered_by(result)))
        if (on := result.environment).node_id:
            facts.append(("ran on", ", ".join(part for part in (on.node_id, on.device, on.device_model) if part)))
        for finding in result.findings:
            facts.append(("finding", f"{finding.id}: {finding.evidence}"))
    facts.append(("attempts", str(evaluation.attempts)))
    if evaluation.labels:
        facts.append(("labels", ", ".join(f"{key}={value}" for key, value in sorted(evaluation.labels.items()))))
    facts.append(("digest", evaluation.digest or "none"))
    if evaluation.trace_id:
        facts.append(("trace id", evaluation.trace_id))
    return facts


def _answered_by(result: EvalResult) -> str:
    if result.cached:
        return "the stored result of an earlier run of the same work; the stages are that run's"
    if result.merged:
        return "a run that another request for the same work had started"
    return "a run of its own" if result.environment.node_id else "the scheduler; nothing was run"


def _timeline(steps: Sequence[_Step]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("stage", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    whole = max(step.start + step.seconds for step in steps) or 1.0
    for step in steps:
        style = "dim" if step.is_gap else "cyan"
        first = min(_BAR_WIDTH - 1, int(_BAR_WIDTH * step.start / whole))
        length = max(1, min(_BAR_WIDTH - first, round(_BAR_WIDTH * step.seconds / whole)))
        bar = Text(" " * first).append(("·" if step.is_gap else "█") * length, style)
        after = lasting(step.start) if step.start > 0 else "0"
        table.add_row(Text(step.name, "dim" if step.is_gap else ""), after, lasting(step.seconds), bar)
    return table


def _timeline_json(evaluation: Evaluation) -> list[dict[str, Any]]:
    steps = _steps(evaluation.result) if evaluation.HasField("result") else []
    return [
        {
            "step": step.name,
            "start_seconds": round(step.start, 6),
            "seconds": round(step.seconds, 6),
            "gap": step.is_gap,
        }
        for step in steps
    ]


def _steps(result: EvalResult) -> list[_Step]:
    """Return the stages in order of time, and the gaps between them: transport, lost attempts."""
    spans = sorted(
        ((_at(span.start_time), _length(span.duration), stage_words(span.stage)) for span in result.stages),
        key=lambda span: span[0],
    )
    if not spans:
        return []
    origin = spans[0][0]
    steps: list[_Step] = []
    ended = 0.0
    for start, length, name in spans:
        if start - origin - ended > _WORTH_A_LINE:
            is_first = all(step.name == "queued" for step in steps)
            gap = ("lost attempts" if result.attempts > 1 else "at the node") if is_first else "between stages"
            steps.append(_Step(gap, ended, start - origin - ended, is_gap=True))
        steps.append(_Step(name, start - origin, length))
        ended = max(ended, start - origin + length)
    rest = _at(result.finish_time) - origin - ended
    if rest > _WORTH_A_LINE and not result.cached:  # a stored result was used long after its stages
        steps.append(_Step("the result's way" if len(spans) > 1 else "not told", ended, rest, is_gap=True))
    return steps


def _alike_table(found: _Found) -> RenderableType:
    title = "the same work was also asked for by" + (f" (newest {_MOST_ALIKE})" if found.more_alike else "")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("id", "client", "accepted", "answered by"):
        table.add_column(heading, overflow="fold")
    for one in found.alike:
        how = (
            ("cached" if one.result.cached else "merged" if one.result.merged else "run")
            if one.HasField("result")
            else ""
        )
        table.add_row(plain(one.id), plain(one.client_id), clock_time(one.accept_time), how or stage_words(one.stage))
    return Group(Text(title), table)  # a table would fold its own title


def _at(stamp: Timestamp) -> float:
    return stamp.ToNanoseconds() / 1e9


def _length(duration: Duration) -> float:
    return duration.ToNanoseconds() / 1e9
