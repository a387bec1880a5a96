"""`kerneldyno gateway`: serve HTTP to trainers that speak it, in front of a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kerneldyno.cli.common import UNREACHABLE, Json, UsageError, fail, print_json, reporting
from kerneldyno.cli.training import RequestFields, Reward, needing, request_fields, reward_of
from kerneldyno.client.aio import DEFAULT_ADDRESS
from kerneldyno.rpc import channel


def gateway(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address of the HTTP server; port 0 takes a free one.")
    ] = "127.0.0.1:8080",
    address: Annotated[
        str,
        typer.Option(
            "--scheduler",
            "--address",
            envvar="KERNELDYNO_ADDRESS",
            metavar="HOST:PORT[,HOST:PORT]",
            help="The scheduler, or several of which one serves.",
        ),
    ] = DEFAULT_ADDRESS,
    problems: Annotated[
        Path | None,
        typer.Option("--problems", metavar="PATH", help="Folder, .jsonl or .parquet: problems that labels may name."),
    ] = None,
    reward: Reward = "drkernel",
    request: RequestFields = None,
    turns: Annotated[int, typer.Option("--turns", min=1, max=1000, help="Steps of an environment's episode.")] = 3,
    client_id: Annotated[
        str, typer.Option("--client-id", help="Scope of ids at the scheduler; two gateways need two different ones.")
    ] = "gateway",
    max_body_mb: Annotated[int, typer.Option("--max-body-mb", min=1, max=1024, help="Largest request, in MiB.")] = 16,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Admit other machines, which can then run code on the evaluators.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve the reward routes of OpenRLHF and slime, KernelGYM's API, and an OpenEnv-style environment."""
    with reporting(), needing("gateway"):
        from kerneldyno.gateway.app import Settings
        from kerneldyno.gateway.guard import Limits
        from kerneldyno.gateway.server import check_address, serve
        from kerneldyno.rollout.problems import Problem, ProblemError, load

        try:
            host, port = check_address(listen, insecure=insecure)
            channel.addresses(address)
            loaded = {} if problems is None else {problem.id: problem for problem in load(problems)}
            options = request_fields(request)
            for problem in loaded.values() or [Problem("--request", "pass")]:
                problem.request(options)
        except (ProblemError, ValueError) as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from error
        settings = Settings(
            scheduler=address,
            reward=reward_of(reward),
            problems=loaded,
            options=options,
            turns=turns,
            client_id=client_id,
            loopback_only=not insecure,
            limits=Limits(max_body_bytes=max_body_mb << 20),
        )

        def ready(where: str) -> None:
            if as_json:
                print_json({"gateway": where, "scheduler": address, "problems": len(loaded)})
            else:
                print(
                    f"gateway http://{where}  scheduler {address}  {len(loaded)} problems\nCtrl-C stops it.", flush=True
                )

        try:
            serve(settings, host, port, ready)
        except OSError as error:
            fail(f"cannot listen on {listen}: {error.strerror or error}", UNREACHABLE)
