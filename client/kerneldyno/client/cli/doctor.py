"""`kerneldyno doctor`: is this environment fit for a trainer's run, before the run finds out?"""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated

import typer
from kerneldyno.client.cli.cards import plain
from kerneldyno.client.cli.common import NO_VERDICT, Json, print_json, reporting, stdout, waiting
from rich.table import Table


class Trainer(StrEnum):
    """Whose environment is looked at."""

    VERL = "verl"


_STYLES = {"ok": "green", "note": "yellow", "failed": "bold red"}


def doctor(
    trainer: Annotated[Trainer, typer.Argument(metavar="verl", help="The trainer of the run.")],
    address: Annotated[
        str | None,
        typer.Option(
            "--address", envvar="KERNELDYNO_ADDRESS", metavar="HOST:PORT", help="The scheduler to ask; none without it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell whether a trainer's environment is fit: did the plugin load, is what it needs there, does the scheduler answer?

    Exit status 1 when something would keep a run from working. Run it on every machine of the run.
    """
    from kerneldyno.verl.doctor import State, diagnose

    with reporting():
        with waiting(f"importing {trainer.value}"):
            checks = diagnose(address)
        if as_json:
            print_json([dataclasses.asdict(check) for check in checks])
        else:
            table = Table("check", "", "found", "what to do", box=None, pad_edge=False, header_style="bold")
            for check in checks:
                table.add_row(
                    check.name, f"[{_STYLES[check.state]}]{check.state}[/]", plain(check.detail), plain(check.remedy)
                )
            stdout().print(table)
    if any(check.state is State.FAILED for check in checks):
        raise typer.Exit(NO_VERDICT)
