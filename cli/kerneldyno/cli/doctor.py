"""`kerneldyno doctor`: check this machine and its services before a run, or (`doctor verl`) a trainer's environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from enum import StrEnum
from itertools import chain
from typing import Annotated

import typer
from rich.text import Text

from kerneldyno.cli.cards import plain
from kerneldyno.cli.common import (
    NO_VERDICT,
    Devices,
    Json,
    Lanes,
    Local,
    Sandbox,
    Service,
    UsageError,
    print_json,
    reporting,
    stdout,
    waiting,
)
from kerneldyno.client.aio import DEFAULT_ADDRESS
from kerneldyno.client.errors import LocalServiceError
from kerneldyno.doctor import CANARY_SECONDS, Check, State, of_machine, of_services


class Trainer(StrEnum):
    """Trainers whose environment can be checked."""

    VERL = "verl"


_STYLES = {State.OK: "green", State.NOTE: "yellow", State.FAILED: "bold red"}
_NAME_WIDTH = 22


def doctor(
    trainer: Annotated[
        Trainer | None,
        typer.Argument(metavar="verl", help="Check the environment of a verl run instead.", show_default=False),
    ] = None,
    canary: Annotated[
        bool, typer.Option("--canary/--no-canary", help="Have the service judge a correct and a wrong candidate.")
    ] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1.0, metavar="SECONDS", help="Longest time for the canary.")
    ] = CANARY_SECONDS,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="sqlite:PATH|postgresql://...|memory",
            help="The scheduler's --store, if not its default.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            envvar="KERNELDYNO_ADDRESS",
            metavar="HOST:PORT[,HOST:PORT]",
            help=f"The scheduler, or several of which one serves. Default: {DEFAULT_ADDRESS}; none for verl.",
        ),
    ] = None,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Check whether this machine and its services are ready to use.

    Checks versions, GPUs, sandbox, disk, clocks, ports, TLS, scheduler and nodes, and has two candidates judged. Each
    problem is shown with its remedy. The exit status is 1 if something must be fixed; notes do not count. If several
    machines work together, run it on each of them.
    """
    with reporting():
        checks: Iterable[Check]
        if trainer is not None:
            if local:
                raise UsageError("--local cannot be used with verl: give the --address of a running scheduler")
            checks = _of_trainer(trainer, address)
        else:
            service = Service(address or DEFAULT_ADDRESS, local, devices, sandbox, lanes)
            if not local and (devices is not None or sandbox is not None or lanes is not None):
                raise UsageError(
                    "--devices, --sandbox and --lanes need --local: a running service has its own settings"
                )
            checks = chain(
                _watched("looking at this machine", of_machine(store)), _of_service(service, canary, timeout)
            )
        found = list(checks) if as_json else _shown(checks)
        if as_json:
            print_json([dataclasses.asdict(check) for check in found])
    if any(check.state is State.FAILED for check in found):
        raise typer.Exit(NO_VERDICT)


def _of_trainer(trainer: Trainer, address: str | None) -> list[Check]:
    from kerneldyno.doctor.verl import diagnose

    with waiting(f"importing {trainer.value}"):
        return diagnose(address)


def _of_service(service: Service, canary: bool, timeout: float) -> Iterator[Check]:
    with ExitStack() as stack:
        try:
            reached = stack.enter_context(service.open())
        except LocalServiceError as error:
            reason, *log = str(error).splitlines()
            text = f"{reason} {log[-1].strip() if log else ''}".strip()
            yield Check(
                "local services", State.FAILED, text, "fix the problems above; `kerneldyno up` shows whole logs"
            )
            return
        what = "asking the services, and judging two candidates" if canary else "asking the services"
        yield from _watched(what, of_services(reached, with_canary=canary, canary_seconds=timeout))


def _watched(what: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Show what is being checked between two results."""
    while True:
        with waiting(what):
            check = next(checks, None)
        if check is None:
            return
        yield check


def _shown(checks: Iterable[Check]) -> list[Check]:
    """Print each result as it arrives, on one line, and its remedy on another: unfolded, so that it can be copied."""
    console = stdout()
    found = []
    for check in checks:
        line = Text.assemble((f"{check.state:<7}", _STYLES[check.state]), f"{check.name:<{_NAME_WIDTH}} ")
        line.append_text(plain(" ".join(check.detail.split())))
        console.print(line, soft_wrap=True)
        if check.remedy:
            console.print(plain(f"{'':<{_NAME_WIDTH + 7}} -> {check.remedy}"), soft_wrap=True)
        found.append(check)
    counts = {state: sum(check.state is state for check in found) for state in State}
    verdict = f"{counts[State.FAILED]} to fix" if counts[State.FAILED] else "nothing to fix"
    console.print(f"{len(found)} checks: {verdict}, {counts[State.NOTE]} to note", soft_wrap=True)
    return found
