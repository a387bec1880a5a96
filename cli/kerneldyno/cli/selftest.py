"""`kerneldyno selftest`: run every known attack against the user's own installation, and show which are stopped.

The corpus comes with the package. An attack is stopped if it ends as its file says: detected, or CORRECT with the time
of honest work, which is measured here as well. The exit status is 1 if one got through or has no verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from kerneldyno.cli import corpus
from kerneldyno.cli.cards import plain
from kerneldyno.cli.common import (
    NO_VERDICT,
    Address,
    Devices,
    Json,
    Lanes,
    Local,
    Sandbox,
    Service,
    UsageError,
    print_json,
    reporting,
    stderr,
    stdout,
)
from kerneldyno.cli.corpus import Entry
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.fleet_service_pb2 import NODE_STATE_LOST, Device

#: Attacks in progress at once. More would only wait in the service's queue.
_WINDOW = 32


@dataclass(frozen=True, slots=True)
class Report:
    """One attack and its outcome."""

    entry: Entry
    result: EvalResult
    #: Reason why it is not stopped; None if it is.
    why: str | None

    @property
    def judged(self) -> bool:
        """Return whether there is a verdict: the service's own failures say nothing about its sandbox."""
        return self.result.outcome != EvalResult.INFRASTRUCTURE_ERROR

    @property
    def state(self) -> str:
        """Return `yes`, `NO` or `no verdict`: whether it was stopped."""
        return "yes" if self.why is None else "NO" if self.judged else "no verdict"

    def to_json(self) -> dict[str, Any]:
        """Return one object of the report."""
        return {
            "id": self.entry.id,
            "name": self.entry.name,
            "tries": self.entry.title,
            "outcome": EvalResult.Outcome.Name(self.result.outcome),
            "findings": [finding.id for finding in self.result.findings],
            "speedup": self.result.speedup,
            "median_seconds": self.result.candidate_timing.median_seconds or None,
            "judged": self.judged,
            "stopped": self.why is None,
            "why": self.why,
            "message": self.result.message,
        }


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which attacks to run, and where."""

    attacks: Sequence[Entry]
    #: Attacks of the corpus that this device or service cannot run.
    left_out: Sequence[Entry]
    device: Device


def selftest(
    only: Annotated[
        str, typer.Option("--only", metavar="E01,T12_...", help="Ids or names of attacks. Default: all of them.")
    ] = "",
    device: Annotated[
        str | None, typer.Option("--device", metavar="cuda|cpu", help="Kind of device. Default: cuda if there is one.")
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Run the attack corpus against a service and show which attacks it stops."""
    with reporting():
        try:
            attacks = _choose(corpus.find(), only)
        except corpus.CorpusError as error:
            raise UsageError(str(error)) from error
        with Service(address, local, devices, sandbox, lanes).open() as target:
            plan, reports = asyncio.run(_run(target, attacks, device))
    if as_json:
        print_json(_summary(plan, reports) | {"attacks": [report.to_json() for report in reports]})
    else:
        _print(plan, reports)
    if any(report.why is not None for report in reports):
        raise typer.Exit(NO_VERDICT)


def _choose(root: Path, only: str) -> list[Entry]:
    """Return the attacks that `only` names, or all of them."""
    attacks = list(corpus.entries(root / "attacks"))
    wanted = {name.strip() for name in only.split(",") if name.strip()}
    unknown = wanted - {entry.id for entry in attacks} - {entry.name for entry in attacks}
    if unknown:
        raise UsageError(f"--only: no attack is called {', '.join(sorted(unknown))}")
    return [entry for entry in attacks if not wanted or {entry.id, entry.name} & wanted]


async def _run(address: str, attacks: Sequence[Entry], kind: str | None) -> tuple[_Plan, list[Report]]:
    async with AsyncClient(address, window=_WINDOW) as client:
        backends = (await client.capabilities()).backends
        alive = [node for node in await client.nodes() if node.state != NODE_STATE_LOST]
        plan = _plan(attacks, [device for node in alive for device in node.devices], backends, kind)
        honest = {entry.honest: corpus.read(entry.honest) for entry in plan.attacks if entry.honest is not None}
        requests = [_request(entry, plan.device) for entry in (*honest.values(), *plan.attacks)]
        results: dict[str, EvalResult] = {}
        columns = (TextColumn("attacking"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = stderr()
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("attacking", total=len(requests))
            async for result in client.evaluate(requests):
                results[result.id] = result
                progress.advance(task)
    reports = []
    for entry in plan.attacks:
        result = results[_id(entry)]
        true = results[_id(honest[entry.honest])] if entry.honest is not None else None
        reports.append(Report(entry, result, corpus.shortfall(entry, result, true)))
    return plan, reports


def _plan(attacks: Sequence[Entry], devices: Sequence[Device], backends: Collection[str], kind: str | None) -> _Plan:
    """Choose one model of device, because times are compared, and the attacks that it can run."""
    usable = [device for device in devices if kind in (None, device.kind)]
    if not usable:
        raise UsageError(f"the service has no {kind or ''} device".replace("  ", " "))
    device = min(usable, key=lambda device: device.kind != "cuda")
    chosen = [entry for entry in attacks if entry.runs_on(device.kind, backends)]
    return _Plan(chosen, [entry for entry in attacks if entry not in chosen], device)


def _id(entry: Entry) -> str:
    return f"{entry.path.parent.name}/{entry.name}"


def _request(entry: Entry, device: Device) -> EvalRequest:
    chosen = {"kind": device.kind, "model": device.model}
    labels = {"kerneldyno": "selftest"}
    # Test the sandbox as it is now, not as it was when the same attacks ran last.
    return corpus.request(entry, device.kind, id=_id(entry), device=chosen, labels=labels, skip_cache=True)


def _summary(plan: _Plan, reports: Sequence[Report]) -> dict[str, Any]:
    return {
        "device": plan.device.model,
        "kind": plan.device.kind,
        "stopped": sum(report.why is None for report in reports),
        "got_through": sum(report.why is not None and report.judged for report in reports),
        "no_verdict": sum(not report.judged for report in reports),
        "left_out": len(plan.left_out),
        "left_out_attacks": [entry.name for entry in plan.left_out],
    }


def _print(plan: _Plan, reports: Sequence[Report]) -> None:
    console = stdout()
    table = Table(show_edge=False)
    for heading in ("id", "what it does", "outcome", "stopped"):
        table.add_column(heading, no_wrap=heading != "what it does")
    for report in reports:
        outcome = EvalResult.Outcome.Name(report.result.outcome)
        colour = "green" if report.why is None else "red" if report.judged else "yellow"
        table.add_row(report.entry.id, plain(report.entry.title), outcome, Text(report.state, style=colour))
    if reports:
        console.print(table)
    for report in reports:
        if report.why is not None:
            console.print(plain(f"{report.entry.name}: {report.why}"), soft_wrap=True)
    count = _summary(plan, reports)
    parts = [f"{count['stopped']} of {len(reports)} attacks stopped on {plan.device.model}"]
    if count["got_through"]:
        parts.append(f"{count['got_through']} GOT THROUGH")
    if count["no_verdict"]:
        parts.append(f"{count['no_verdict']} without a verdict")
    if plan.left_out:
        names = ", ".join(entry.name for entry in plan.left_out)
        parts.append(f"{len(plan.left_out)} not for this device or its backends: {names}")
    console.print(plain("; ".join(parts)), soft_wrap=True)
