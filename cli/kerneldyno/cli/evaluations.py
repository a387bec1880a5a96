"""`kerneldyno evaluations` and `cancel`: list evaluations and their outcomes, and cancel those that are unfinished."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from kerneldyno.cli.cards import outcome_text, plain
from kerneldyno.cli.common import (
    Address,
    Json,
    UsageError,
    clock_time,
    print_json,
    reporting,
    stdout,
    to_json,
)
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.report.wording import speedup_words, stage_words
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.scheduler_service_pb2 import Evaluation

_OUTCOMES = [name for name, value in EvalResult.Outcome.items() if value]
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_AGE = re.compile(r"(\d{1,6})([smhd])")
#: Most evaluations of one page, from the contract.
_MAX_PAGE = 1_000


def evaluations(
    client: Annotated[str, typer.Option("--client", metavar="CLIENT_ID", help="Only this client's evaluations.")] = "",
    outcome: Annotated[
        list[str] | None,
        typer.Option("--outcome", metavar="OUTCOME", help="Only those with this outcome; may be given several times."),
    ] = None,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Only those that are waiting or running.")] = False,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Only those with this label; may be given several times."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE|TIME", help="Accepted since: 90s, 30m, 2h, 7d, or ISO 8601.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="AGE|TIME", help="Accepted before.")] = None,
    digest: Annotated[str, typer.Option("--digest", metavar="HEX", help="Only of the work with this digest.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Most evaluations to show.")] = 100,
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """List evaluations, newest first. With --json, print complete results."""
    with reporting():
        filters: dict[str, Any] = {
            "client_id": client,
            "outcomes": [_outcome(name) for name in outcome or ()],
            "unfinished": unfinished,
            "labels": dict(_label(text) for text in label or ()),
            "accepted_after": None if since is None else _time("--since", since),
            "accepted_before": None if until is None else _time("--until", until),
            "digest": digest,
            "full_results": as_json,
        }
        found, more = asyncio.run(_list(address, filters, limit))
        if as_json:
            print_json({"evaluations": [to_json(evaluation) for evaluation in found], "more": more})
            return
        if not found:
            print(_nothing(filters))
            return
        stdout().print(_table(found))
        if more:
            print(f"Only the newest {limit} are shown; --limit shows more.")


def cancel(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of evaluations.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of the client's unfinished evaluations.")] = False,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar="CLIENT_ID", help="Their client; `kerneldyno evaluations` shows it."),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """Cancel evaluations of a client. Finished and unknown ones are ignored."""
    with reporting():
        if bool(ids) == all_:
            raise UsageError("give the ids to cancel, or --all")
        if client is None:
            raise UsageError(
                "give --client CLIENT_ID, the client of the evaluations (`kerneldyno evaluations` shows it)"
            )
        cancelled = asyncio.run(_cancel(address, client, None if all_ else ids))
        if as_json:
            print_json({"cancelled": cancelled})
        elif ids and cancelled < len(set(ids)):
            print(f"{cancelled} of {len(set(ids))} cancelled; the others are finished, or unknown")
        else:
            print(f"{cancelled} cancelled")


async def _list(address: str, filters: dict[str, Any], limit: int) -> tuple[list[Evaluation], bool]:
    """Return the newest evaluations, and whether there are more."""
    found: list[Evaluation] = []
    async with AsyncClient(address) as client:
        async for evaluation in client.list(**filters, page_size=min(limit + 1, _MAX_PAGE)):
            if len(found) == limit:
                return found, True
            found.append(evaluation)
    return found, False


async def _cancel(address: str, client_id: str, ids: Sequence[str] | None) -> int:
    async with AsyncClient(address, client_id=client_id) as client:
        return await (client.cancel_all() if ids is None else client.cancel_many(ids))


def _outcome(name: str) -> str:
    known = name.strip().upper().replace("-", "_")
    if known not in _OUTCOMES:
        raise UsageError(f"--outcome {name!r} is unknown; choose one of {', '.join(_OUTCOMES)}")
    return known


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise UsageError(f"--label {text!r} is not KEY=VALUE")
    return key, value


def _time(option: str, text: str) -> datetime:
    """Read an age, or a time; a time without a zone is in this machine's."""
    if age := _AGE.fullmatch(text.strip()):
        return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{option} {text!r} is neither an age (90s, 30m, 2h, 7d) nor an ISO 8601 time") from error


def _nothing(filters: dict[str, Any]) -> str:
    chosen = any(value for name, value in filters.items() if name != "full_results")
    return "No evaluation matches these options." if chosen else "The scheduler knows no evaluation yet."


def _table(found: Sequence[Evaluation]) -> Table:
    table = Table(show_edge=False)
    for heading in ("id", "client", "state", "speedup", "accepted", "labels"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "speedup" else "left")
    for evaluation in found:
        table.add_row(
            plain(evaluation.id),
            plain(evaluation.client_id),
            _state(evaluation),
            speedup_words(evaluation.result),
            clock_time(evaluation.accept_time),
            plain(", ".join(f"{key}={value}" for key, value in sorted(evaluation.labels.items()))),
        )
    return table


def _state(evaluation: Evaluation) -> Text:
    if evaluation.HasField("result"):
        return outcome_text(evaluation.result.outcome)
    stage = stage_words(evaluation.stage)
    return plain(f"{stage} on {evaluation.node_id}" if evaluation.node_id else stage)
