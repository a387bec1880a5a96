"""`kerneldyno check`: is a request valid, and do its sources parse and define what they must? Nothing is judged.

With --compile a builder also compiles the native code. Without it, nothing of the request is run.
"""

from __future__ import annotations

import ast
import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kerneldyno.cli.asked import gathered
from kerneldyno.cli.candidate_options import NO_BUILD_OPTIONS, BuildOptions, default_backend
from kerneldyno.cli.cards import plain
from kerneldyno.cli.chosen import NOTHING_CHOSEN, Chosen
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
    lasting,
    print_json,
    reporting,
    stdout,
    to_json,
    waiting,
)
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.client.errors import UnavailableError
from kerneldyno.report.wording import build_words
from kerneldyno.rewards.extraction import defines
from kerneldyno.rpc.jsonio import request_from_json, with_defaults
from kerneldyno.rpc.source import without_mark
from kerneldyno.rpc.validation import DEFAULT_ENTRY_POINT, DEFAULT_TOOLKIT, validate
from kerneldyno.v1.evaluation_pb2 import Compilation, EvalRequest
from kerneldyno.v1.scheduler_service_pb2 import ValidateRequestResponse

#: Time limit in seconds for the scheduler's answer; without one, its part is left out.
_PATIENCE = 5.0
#: States of a Compilation in words for people. Those that are problems have the exit status of one.
_STATES = {
    Compilation.STATE_COMPILED: "compiled",
    Compilation.STATE_FAILED: "does not compile",
    Compilation.STATE_TIMED_OUT: "does not compile in time",
    Compilation.STATE_NOTHING_TO_COMPILE: "nothing to compile",
}
_FINE = (Compilation.STATE_COMPILED, Compilation.STATE_NOTHING_TO_COMPILE)
_NOT_COMPILED = "not compiled, because"


def check(
    reference: Annotated[Path | None, typer.Argument(metavar="REFERENCE.py", help="As for evaluate.")] = None,
    candidate: Annotated[Path | None, typer.Argument(metavar="CANDIDATE", help="As for evaluate.")] = None,
    cases: Annotated[Path | None, typer.Option("--cases", help="As for evaluate.")] = None,
    workloads: Annotated[Path | None, typer.Option("--workloads", metavar="FILE", help="As for evaluate.")] = None,
    request_file: Annotated[Path | None, typer.Option("--request", metavar="FILE", help="As for evaluate.")] = None,
    backend: Annotated[str | None, typer.Option("--backend", help="As for evaluate.")] = None,
    toolkit: Annotated[str | None, typer.Option("--toolkit", help="As for evaluate.")] = None,
    entry_point: Annotated[str | None, typer.Option("--entry-point", help="As for evaluate.")] = None,
    build: BuildOptions = NO_BUILD_OPTIONS,
    chosen: Chosen = NOTHING_CHOSEN,
    compiles: Annotated[
        bool,
        typer.Option("--compile", help="Have a builder compile the native code too, as before an evaluation; no GPU."),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Say whether a request is valid and its sources parse, without a GPU; ask the scheduler if there is one."""
    with reporting():
        _, fields = gathered(reference, candidate, cases, workloads, request_file, toolkit, entry_point)
        given: dict[str, object] = {"backend": backend, "toolkit": toolkit, "entry_point": entry_point}
        given["build_flags"] = build.field(fields.get("build_flags", {}))
        fields |= {name: value for name, value in given.items() if value is not None}
        fields = with_defaults(chosen.fields(), fields)
        try:
            request = request_from_json(fields)
            build.check(request)
        except ValueError as error:
            raise UsageError(str(error)) from error
        request.backend = request.backend or default_backend(request)
        found = [*_fields(request), *_sources(request)]
        with Service(address, local, devices, sandbox, lanes).open() as target:
            told = asyncio.run(_asked(target, request, compiles))
        if told is not None:
            known = {field for field, _ in found}
            found += [(each.field, each.description) for each in told.violations if each.field not in known]
        found += _of_compilation(told, compiles)
        if as_json:
            problems = [{"field": field, "description": text} for field, text in found]
            answer = {"problems": problems, "asked_scheduler": told is not None}
            if told is not None and told.digest:
                answer |= {"digest": told.digest, "runnable": told.runnable}
            if told is not None and told.HasField("compilation"):
                answer["compilation"] = to_json(told.compilation)
            print_json(answer)
        else:
            for line in _lines(found, told):
                stdout().print(plain(line), soft_wrap=True)
        if found:
            raise typer.Exit(NO_VERDICT)


def _fields(request: EvalRequest) -> Iterator[tuple[str, str]]:
    for violation in validate(request, profiling=True, id_required=False):
        yield violation.field, violation.description


def _sources(request: EvalRequest) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the Python sources: syntax, and names that are missing."""
    entry, simple = request.entry_point or DEFAULT_ENTRY_POINT, request.toolkit == "kernel_simple"
    wanted = {
        "reference_code": [entry, "get_inputs"],
        "kernel_code": [entry if simple else f"{entry}New"],
        "cases_code": ["get_cases"],
    }
    for field, names in wanted.items():
        text = without_mark(getattr(request, field))
        if not text.strip():
            continue
        if wrong := _syntax(text, field):
            yield field, wrong
        elif request.toolkit in ("", DEFAULT_TOOLKIT, "kernel_simple") and field != "kernel_code":
            for name in names:
                if not defines(text, [name]):
                    yield field, f"defines no {name}"
        elif field == "kernel_code" and names[0] not in text:  # it may be imported from one of the files
            yield field, f"defines no {names[0]}"
    for index, file in enumerate(request.kernel_files):
        if file.path.endswith(".py") and (wrong := _syntax(file.content, file.path)):
            yield f"kernel_files[{index}].content", wrong


def _syntax(text: str, name: str) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(text, name)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"cannot be parsed: {type(error).__name__}: {error}"
    return ""


async def _asked(address: str, request: EvalRequest, compiles: bool) -> ValidateRequestResponse | None:
    """Return the scheduler's answer, or None if there is no scheduler."""
    async with AsyncClient(address, reconnect_timeout=_PATIENCE) as client:
        try:
            async with asyncio.timeout(_PATIENCE):
                # Without compiling: it answers at once, or nobody is there.
                told = await client.validate(request)
        except (UnavailableError, TimeoutError):
            return None
        if not compiles:
            return told
        with waiting("compiling"):
            return await client.validate(request, compile=True)


def _of_compilation(told: ValidateRequestResponse | None, wanted: bool) -> Iterator[tuple[str, str]]:
    """Yield what keeps the native code from being compiled, if the caller wants to know that."""
    if not wanted:
        return
    if told is None:
        yield (
            "compile",
            f"{_NOT_COMPILED} no scheduler answered: give its --address, or --local for this machine's builder",
        )
    elif not told.HasField("compilation"):
        yield "compile", f"{_NOT_COMPILED} the scheduler is older than this and does not know how"
    elif told.compilation.state not in _FINE:
        found = told.compilation
        state, message = _STATES.get(found.state), found.error.message.strip()
        text = f"{state}: {found.detail}" if state else f"{_NOT_COMPILED} {found.detail}"
        if message and message.partition("\n")[0] in (found.detail or message):  # then the detail is its first line
            text = f"{state}:"
        yield "compile", f"{text}\n{message}".rstrip("\n")


def _lines(found: list[tuple[str, str]], told: ValidateRequestResponse | None) -> Iterator[str]:
    for field, text in found:
        yield f"{field}: {text}"
    if not found:
        yield "valid: the fields, and the syntax of the sources"
    if told is None:
        yield "no scheduler was asked: none answered"
    elif told.digest and all(field == "compile" for field, _ in found):
        yield f"digest {told.digest}"
        yield "a registered device could run it" if told.runnable else "no registered device could run it now"
    if told is not None and (compilation := told.compilation).state in _FINE:
        took = f" in {lasting(compilation.seconds)} on {compilation.node_id}" if compilation.node_id else ""
        yield f"{_STATES[compilation.state]}{took}{': ' if compilation.detail else ''}{compilation.detail}"
    if told is not None:
        yield from (f"  {build_words(build)}" for build in told.compilation.builds)
