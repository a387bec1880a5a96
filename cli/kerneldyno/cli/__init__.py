"""The `kerneldyno` command: one module per command; common.py has what they share.

Exit status of every command: 0 success; 1 no verdict (infrastructure failed; for `selftest` also an attack that got
through, for `vet` a weak problem, for `doctor` and `check` a problem to fix); 2 wrong usage; 3 the service cannot be
reached; 4 `evaluate --require`: another verdict; 128 plus the number of the signal that interrupted it (130 after Ctrl-C).
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

from kerneldyno.cli.baseline import baseline
from kerneldyno.cli.batch import batch
from kerneldyno.cli.check import check
from kerneldyno.cli.chosen import with_chosen
from kerneldyno.cli.common import USAGE, with_credentials
from kerneldyno.cli.completion import completion
from kerneldyno.cli.describe import describe
from kerneldyno.cli.doctor import doctor
from kerneldyno.cli.evaluate import evaluate
from kerneldyno.cli.evaluations import cancel, evaluations
from kerneldyno.cli.gateway import gateway
from kerneldyno.cli.grouped import with_groups
from kerneldyno.cli.nodes import drain, nodes, undrain
from kerneldyno.cli.profile import profile
from kerneldyno.cli.quarantines import quarantines, release
from kerneldyno.cli.report import report
from kerneldyno.cli.rollout import rollout
from kerneldyno.cli.selftest import selftest
from kerneldyno.cli.signals import interrupting
from kerneldyno.cli.store import store
from kerneldyno.cli.suite import suite
from kerneldyno.cli.top import top
from kerneldyno.cli.trace import trace
from kerneldyno.cli.trajectories import trajectories
from kerneldyno.cli.up import up
from kerneldyno.cli.vet import vet
from kerneldyno.rpc.version import VERSION

#: Errors of writing to a standard output that is full, broken or too long.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE}

app = typer.Typer(
    name="kerneldyno",
    help="A dynamometer for GPU kernels: is a candidate right, and how fast is it against its reference?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kerneldyno {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


for _command in (
    *(up, evaluate, profile, check, batch, suite, describe, selftest, vet, doctor),
    *(rollout, trajectories, report, gateway),
    *(top, trace, evaluations, cancel, nodes, drain, undrain, quarantines, release),
    completion,
):
    app.command()(with_credentials(with_groups(with_chosen(_command))))
app.add_typer(baseline)
app.add_typer(store)


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        try:
            with interrupting():
                app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard what is still buffered
        print(f"kerneldyno: standard output: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(USAGE)
