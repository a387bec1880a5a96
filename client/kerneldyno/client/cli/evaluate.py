"""`kerneldyno evaluate`: one candidate, one verdict, for a person to read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.client.cli.cards import verdict_card
from kerneldyno.client.cli.common import (
    NO_VERDICT,
    Address,
    CandidateMemory,
    Devices,
    Json,
    Lanes,
    Local,
    Sandbox,
    Service,
    SpeedupKind,
    TimingPrecision,
    UsageError,
    chosen_fields,
    print_json,
    read_source,
    reporting,
    stdout,
    waiting,
)
from kerneldyno.rewards.extraction import defines
from kerneldyno.rpc.jsonio import request_from_json, result_to_json
from kerneldyno.rpc.validation import DEFAULT_ENTRY_POINT
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult


def evaluate(
    reference: Annotated[
        Path, typer.Argument(metavar="REFERENCE.py", help="The reference; with --cases the candidate, alone.")
    ],
    candidate: Annotated[Path | None, typer.Argument(metavar="CANDIDATE.py", help="The candidate.")] = None,
    cases: Annotated[
        Path | None, typer.Option("--cases", help="Python file with get_cases(), for the kernel_simple toolkit.")
    ] = None,
    backend: Annotated[str, typer.Option("--backend", help="triton, cuda, torch, or a plug-in's.")] = "triton",
    toolkit: Annotated[
        str | None,
        typer.Option("--toolkit", help="kernelbench, kernel_simple (so with --cases), or a plug-in's."),
    ] = None,
    entry_point: Annotated[
        str | None, typer.Option("--entry-point", help="Class of the reference, or the callable. Default Model.")
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", help="Correctness trials, 1 to 20. Default 5.")] = None,
    perf_trials: Annotated[
        int | None, typer.Option("--perf-trials", help="Most timed calls for each time, up to 1000. Default 100.")
    ] = None,
    timing_precision: TimingPrecision = None,
    speedup_kind: SpeedupKind = None,
    candidate_memory: CandidateMemory = None,
    atol: Annotated[float | None, typer.Option("--atol", help="Absolute tolerance (with allclose).")] = None,
    rtol: Annotated[float | None, typer.Option("--rtol", help="Relative tolerance (with allclose).")] = None,
    stage_timeout: Annotated[float | None, typer.Option("--timeout", help="Limit of each stage, in seconds.")] = None,
    device: Annotated[str | None, typer.Option("--device", metavar="cuda|cpu", help="Kind of device.")] = None,
    no_performance: Annotated[bool, typer.Option("--no-performance", help="Judge correctness only.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Profile a correct candidate.")] = False,
    skip_cache: Annotated[
        bool, typer.Option("--skip-cache", help="Run it again, even where an earlier run could answer.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Judge CANDIDATE.py against REFERENCE.py (or against --cases) and show the verdict."""
    with reporting():
        sources = _sources(reference, candidate, cases, toolkit)
        if candidate is not None and toolkit in (None, "kernelbench"):
            _check_order(reference, candidate, sources, entry_point or DEFAULT_ENTRY_POINT)
        fields: dict[str, object] = {"backend": backend, **sources}
        optional = {
            "toolkit": toolkit,
            "entry_point": entry_point,
            "num_correct_trials": trials,
            "num_perf_trials": perf_trials,
            "timeouts": stage_timeout,
            "device": device,
            "run_performance": False if no_performance else None,
            "enable_profiling": profile or None,
            "skip_cache": skip_cache or None,
        }
        fields |= {name: value for name, value in optional.items() if value is not None}
        fields |= chosen_fields(timing_precision, speedup_kind, candidate_memory)
        tolerance = {name: value for name, value in (("atol", atol), ("rtol", rtol)) if value is not None}
        if tolerance:
            fields["tolerance"] = {"preset": "allclose", **tolerance}
        try:
            request = request_from_json(fields)
        except ValueError as error:
            raise UsageError(str(error)) from error
        with Service(address, local, devices, sandbox, lanes).open() as target:
            result = asyncio.run(_judge(target, request))
        if as_json:
            print_json(result_to_json(result))
        else:
            stdout().print(verdict_card(result))
        if result.outcome == EvalResult.INFRASTRUCTURE_ERROR:
            raise typer.Exit(NO_VERDICT)


def _check_order(reference: Path, candidate: Path, sources: Mapping[str, str], entry_point: str) -> None:
    """Raises UsageError when the files look as if they were given the wrong way round: no verdict could come of it."""
    theirs, new = sources["reference_code"], f"{entry_point}New"
    if defines(theirs, [new]) and not defines(theirs, [entry_point]):
        found = f"{reference}, given as the reference, defines {new} and no {entry_point}"
    elif new not in (own := sources["kernel_code"]) and defines(own, [entry_point]) and defines(own, ["get_inputs"]):
        found = f"{candidate}, given as the candidate, defines {entry_point} and get_inputs, and no {new}"
    else:
        return
    raise UsageError(f"{found}: are the arguments swapped? Give REFERENCE.py first, then CANDIDATE.py")


def _sources(first: Path, second: Path | None, cases: Path | None, toolkit: str | None) -> dict[str, str]:
    if cases is not None:
        if second is not None:
            raise UsageError("with --cases give the candidate alone: the cases say what is expected")
        code = {"kernel_code": read_source(first), "cases_code": read_source(cases)}
        return {"toolkit": toolkit or "kernel_simple", **code}
    if second is not None:
        return {"reference_code": read_source(first), "kernel_code": read_source(second)}
    if toolkit in (None, "kernelbench", "kernel_simple"):
        raise UsageError("give REFERENCE.py and CANDIDATE.py, or CANDIDATE.py with --cases CASES.py")
    return {"kernel_code": read_source(first)}


async def _judge(address: str, request: EvalRequest) -> EvalResult:
    async with AsyncClient(address) as client:
        await client.capabilities()  # fails at once where evaluate() would wait for a scheduler to come back
        with waiting("judging"):
            return await anext(client.evaluate([request]))
