"""`kerneldyno up`: run a scheduler and an evaluator on this machine until Ctrl-C."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from kerneldyno.cli.common import Devices, Json, Lanes, Sandbox, print_json, reporting
from kerneldyno.client.aio import DEFAULT_ADDRESS
from kerneldyno.client.local import LocalServices
from kerneldyno.rpc.channel import is_loopback

#: Seconds between two checks of the services.
_CHECK_SECONDS = 0.25


def up(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address of the scheduler; port 0 takes a free one.")
    ] = DEFAULT_ADDRESS,
    metrics: Annotated[
        str, typer.Option("--metrics", metavar="HOST:PORT|off", help="The scheduler's Prometheus endpoint.")
    ] = "127.0.0.1:9464",
    evaluator_metrics: Annotated[
        str, typer.Option("--evaluator-metrics", metavar="HOST:PORT|off", help="The evaluator's Prometheus endpoint.")
    ] = "127.0.0.1:9465",
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Run a scheduler and an evaluator on this machine, for this machine, until Ctrl-C."""
    for option, address in (("--listen", listen), ("--metrics", metrics), ("--evaluator-metrics", evaluator_metrics)):
        if address != "off" and not is_loopback(address.rpartition(":")[0]):
            text = "`up` serves this machine only; to serve others, start the two services: see docs/operating.md"
            raise typer.BadParameter(f"{address} is open to others: {text}", param_hint=option)
    services = LocalServices(
        listen=listen,
        metrics=metrics,
        evaluator_metrics=evaluator_metrics,
        devices=devices,
        sandbox=sandbox,
        lanes=lanes,
        echo=True,
    )
    stop = threading.Event()
    with reporting():
        try:
            with services:
                if as_json:
                    print_json({"scheduler": services.scheduler, "evaluator": services.evaluator})
                else:
                    _print_addresses(services)
                while not stop.wait(_CHECK_SECONDS):
                    services.check()
        except KeyboardInterrupt:
            return


def _print_addresses(services: LocalServices) -> None:
    for name, fields in (("scheduler", services.scheduler), ("evaluator", services.evaluator)):
        where = [f"{name} {fields['grpc']}"]
        if fields.get("metrics", "off") != "off":
            where.append(f"metrics http://{fields['metrics']}/metrics")
        where.extend(f"{key} {fields[key]}" for key in ("node", "devices") if key in fields)
        print("  ".join(where))
    print("Ctrl-C stops both.", flush=True)
