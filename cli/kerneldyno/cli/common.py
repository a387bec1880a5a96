"""Shared by all commands: the options that choose a service, the consoles, and how errors end a command.

Results go to standard output, everything else (progress, errors) to standard error. An error is one line that says what
to do; no Python traceback is printed here.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console

from kerneldyno.cli.piped import PipedConsole
from kerneldyno.client.aio import DEFAULT_ADDRESS
from kerneldyno.client.errors import (
    DeadlineExceededError,
    KernelDynoError,
    LocalServiceError,
    UnavailableError,
    WrongServiceError,
)
from kerneldyno.client.local import LocalServices
from kerneldyno.rpc import credentials
from kerneldyno.rpc.errors import AddressError, CredentialsError
from kerneldyno.rpc.input_files import read_text

NO_VERDICT, USAGE, UNREACHABLE, NOT_AS_REQUIRED, INTERRUPTED = 1, 2, 3, 4, 130

Address = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="KERNELDYNO_ADDRESS",
        metavar="HOST:PORT[,HOST:PORT]",
        help="The scheduler, or several of which one serves.",
    ),
]
Local = Annotated[
    bool,
    typer.Option(
        "--local", help="Start a scheduler and an evaluator for this command and stop them afterwards; no --address."
    ),
]
Devices = Annotated[
    str | None, typer.Option("--devices", metavar="auto|cpu|cuda|cuda:0,...", help="Devices of the started evaluator.")
]
Sandbox = Annotated[
    str | None, typer.Option("--sandbox", metavar="auto|require|off", help="Sandbox mode of the started evaluator.")
]
Lanes = Annotated[
    int | None, typer.Option("--lanes", min=1, help="Candidates at once on one device of the started evaluator.")
]
#: Options of every command with an --address: name, the variable that the option overrides, help.
_CREDENTIALS = (
    ("tls_ca", credentials.CA_VARIABLE, 'CA of the scheduler\'s certificate, or "public"; turns on TLS.'),
    ("tls_cert", credentials.CERT_VARIABLE, "Your certificate, for a scheduler that requires one."),
    ("tls_key", credentials.KEY_VARIABLE, "Private key of your certificate."),
    ("token_file", credentials.TOKEN_FILE_VARIABLE, f"File with your token; {credentials.TOKEN_VARIABLE} holds one."),
)
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]


class UsageError(Exception):
    """The command was given something that it cannot use."""


def with_credentials(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with the options --tls-ca, --tls-cert, --tls-key and --token-file, if it has an --address.

    They set the variables of the environment, which clients read for values that they are not given.
    """
    signature = inspect.signature(command, eval_str=True)
    if "address" not in signature.parameters:
        return command

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        for name, variable, _ in _CREDENTIALS:
            if (given := arguments.pop(name)) is not None:
                os.environ[variable] = given
                if name == "token_file":
                    os.environ.pop(credentials.TOKEN_VARIABLE, None)
        command(**arguments)

    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option("--" + name.replace("_", "-"), metavar="FILE", help=f"{text} ({variable})"),
            ],
        )
        for name, variable, text in _CREDENTIALS
    ]
    parameters = [*signature.parameters.values(), *added]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def stdout() -> Console:
    """Return the console for results. It has colours only in a terminal, and never with NO_COLOR.

    Tables fit the terminal, or the variable COLUMNS if it is set; in a pipe or a file each row is one line.
    """
    console = Console(highlight=False)
    return console if console.is_terminal or os.environ.get("COLUMNS") else PipedConsole()


def stderr() -> Console:
    """Return the console for progress."""
    return Console(stderr=True, highlight=False)


def print_json(data: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(data, indent=2), flush=True)


def to_json(message: Message) -> dict[str, Any]:
    """Return a message as proto-JSON with the original field names, empty fields included."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def clock_time(stamp: Timestamp) -> str:
    """Return a time for people, in this machine's time zone; "" if it was not set."""
    return f"{stamp.ToDatetime(UTC).astimezone():%Y-%m-%d %H:%M:%S}" if stamp.ToNanoseconds() else ""


def lasting(seconds: float) -> str:
    """Return a duration for people, short or long: "3.2 ms", "45 s", "1 h 20 min"."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120.0:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def read_source(path: Path) -> str:
    """Read a Python source file."""
    try:
        return read_text(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show in a terminal what the block is doing."""
    console = stderr()
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        yield


def report_stalled(why: str) -> None:
    """Tell the user why no verdicts arrive, and when they arrive again: AsyncClient's `on_stalled`."""
    text = f"waiting: the scheduler cannot write its journal, and sends no verdict until it can: {why}"
    print(f"kerneldyno: {text if why else 'the scheduler can write its journal again'}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Service:
    """The service that a command uses. It is also a group of options (see grouped.py)."""

    address: Address = DEFAULT_ADDRESS
    local: Local = False
    devices: Devices = None
    sandbox: Sandbox = None
    lanes: Lanes = None

    @contextmanager
    def open(self) -> Iterator[str]:
        """Yield the scheduler's address; if the service is local, start it for the duration of the block."""
        if not self.local:
            if self.devices is not None or self.sandbox is not None or self.lanes is not None:
                raise UsageError(
                    "--devices, --sandbox and --lanes need --local: a running service has its own settings"
                )
            yield self.address
            return
        for variable in credentials.VARIABLES:  # they are for a service elsewhere
            os.environ.pop(variable, None)
        services = LocalServices(devices=self.devices, sandbox=self.sandbox, lanes=self.lanes)
        with ExitStack() as stack:
            with waiting("starting a scheduler and an evaluator"):
                stack.enter_context(services)
            yield services.address


@contextmanager
def reporting() -> Iterator[None]:
    """End the command with a line on standard error and a status if its block raises an expected error."""
    try:
        yield
    except (UsageError, AddressError, CredentialsError) as error:
        fail(str(error), USAGE)
    except (LocalServiceError, UnavailableError, DeadlineExceededError, WrongServiceError) as error:
        fail(str(error), UNREACHABLE)
    except KernelDynoError as error:
        fail(str(error), NO_VERDICT)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)


def fail(message: str, status: int) -> NoReturn:
    """Print an error and exit."""
    print(f"kerneldyno: {message}", file=sys.stderr, flush=True)
    raise typer.Exit(status)
