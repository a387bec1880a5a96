"""`kerneldyno store copy`: move a scheduler's accepted work and results from a SQLite file into PostgreSQL, or back."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import typer

from kerneldyno.cli.common import NO_VERDICT, Json, UsageError, fail, print_json, reporting, stdout, waiting

#: The program that copies. The command line has no parts of the scheduler of its own.
_TOOL = ("-m", "kerneldyno.scheduler.store_tool", "copy")

store = typer.Typer(name="store", help="Copy what a scheduler keeps.", no_args_is_help=True, rich_markup_mode=None)


@store.callback()
def _group() -> None:
    """Copy what a scheduler keeps."""


@store.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="sqlite:PATH or postgresql://..., a --store.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The other kind; it must be empty.")],
    as_json: Json = False,
) -> None:
    """Copy a scheduler's store into an empty one of the other kind: a SQLite file into PostgreSQL, or back.

    No scheduler may run on either of them. The original stays as it is. A URL without a password is safer on a command
    line; PGPASSWORD or a password file (~/.pgpass) may have it.
    """
    with reporting():
        for one in (source, target):
            if not one.startswith(("sqlite:", "postgresql://", "postgres://")) or len(one.split()) != 1:
                raise UsageError(f"{one.partition('@')[2] or one}: give sqlite:PATH or postgresql://...")
        with waiting("copying the store"):
            done = subprocess.run(
                [sys.executable, *_TOOL], input=f"{source}\n{target}\n", capture_output=True, text=True, check=False
            )
        if done.returncode != 0:
            fail(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the copy failed", NO_VERDICT)
        counts = done.stdout.strip()
        if as_json:
            pairs = (part.partition(" ") for part in counts.split(", "))
            print_json({name.replace(" ", "_"): int(number) for number, _, name in pairs})
        else:
            stdout().print(f"copied {counts}", soft_wrap=True)
