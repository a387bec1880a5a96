"""`kerneldyno profile`: evaluate one candidate, and show what its kernels do on the device and what limits them."""

from __future__ import annotations

import typer

from kerneldyno.cli.asked import Asked
from kerneldyno.cli.candidate_options import NO_BUILD_OPTIONS, BuildOptions
from kerneldyno.cli.cards import verdict_card
from kerneldyno.cli.chosen import Chosen
from kerneldyno.cli.common import NO_VERDICT, Json, Service, print_json, reporting, stdout
from kerneldyno.cli.evaluate import judged
from kerneldyno.cli.kernel_view import kernel_view
from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: The request asks for counters, so this command has no option --profile.
_COUNTERS = Chosen({"profile_level": "counters"})


def profile(
    *,
    asked: Asked,
    build: BuildOptions = NO_BUILD_OPTIONS,
    chosen: Chosen = _COUNTERS,
    service: Service,
    as_json: Json = False,
) -> None:
    """Judge CANDIDATE as evaluate does, and show hardware counters of its kernels, advice and energy. It needs a GPU."""
    with reporting():
        result = judged(service, asked.request(chosen, build))
        if as_json:
            print_json(result_to_json(result))
        elif result.outcome == EvalResult.CORRECT:
            stdout().print(kernel_view(result))
        else:
            stdout().print(verdict_card(result))
            stdout().print(kernel_view(result, verdict=False))
        if result.outcome == EvalResult.INFRASTRUCTURE_ERROR:
            raise typer.Exit(NO_VERDICT)
