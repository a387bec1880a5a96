"""The command `python -m kerneldyno.scheduler`: read the settings, and serve until SIGTERM or SIGINT.

When the scheduler is ready, it prints one line on standard output:
`kerneldyno-scheduler ready grpc=HOST:PORT metrics=HOST:PORT`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kerneldyno.rpc import security, serving
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.scheduler.app import running
from kerneldyno.scheduler.core.ports import StoreError
from kerneldyno.scheduler.settings import Settings

_log = logging.getLogger(__name__)

#: Options that set a field of `Settings`: option, field, help text.
_OPTIONS = (
    ("--listen", "listen", "serve gRPC at HOST:PORT; port 0 takes any free port"),
    ("--metrics", "metrics", 'serve Prometheus metrics at HOST:PORT, or "off"'),
    ("--store", "store", 'where accepted work is kept: sqlite:PATH, or "memory", which does not survive a crash'),
    ("--max-queued", "max_queued", "maximum number of waiting evaluations"),
    ("--max-queued-per-client", "max_queued_per_client", "maximum number of unfinished evaluations of one client"),
    ("--lease", "lease_seconds", "seconds after which a silent node is lost"),
    ("--heartbeat", "heartbeat_seconds", "seconds between two reports of a node"),
    ("--unmatched-timeout", "unmatched_seconds", "seconds after which an evaluation that no node can run fails"),
    (
        "--settle",
        "settle_seconds",
        "seconds without a new node after which work that no node can run fails at once; or inf",
    ),
    (
        "--client-grace",
        "client_grace_seconds",
        "seconds without an open call after which the work of a client is cancelled",
    ),
    ("--quarantine", "quarantine_seconds", "seconds for which work that kept killing nodes may not run"),
    ("--retain-results", "retain_results", "maximum number of finished evaluations that are kept"),
    ("--retain-bytes", "retain_bytes", "maximum size of the kept results in bytes"),
    ("--retain", "retain_seconds", "seconds for which finished evaluations are kept"),
    ("--drain-timeout", "drain_seconds", "seconds for which a stop waits for running evaluations"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scheduler and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m kerneldyno.scheduler", description="The KernelDyno scheduler.")
    defaults = Settings(store=f"sqlite:{default_path()}")
    for option, field, text in _OPTIONS:
        default = getattr(defaults, field)
        parser.add_argument(option, dest=field, type=type(default), default=default, help=f"{text} (%(default)s)")
    security.add_options(parser)
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when the process that started this ends")
    options = parser.parse_args(arguments)
    try:
        chosen = {field: getattr(options, field) for _, field, _ in _OPTIONS}
        settings = Settings(**chosen, security=security.ServerSecurity.of(options))
    except ValueError as error:
        parser.error(str(error))
    if options.exit_with_parent:
        serving.exit_with_parent()
    serving.configure_logging(options.log_level)
    try:
        asyncio.run(_serve(settings))
    except (OSError, StoreError, CredentialsError) as error:
        print(f"kerneldyno-scheduler: {error}", file=sys.stderr)
        return 1
    return 0


def default_path() -> Path:
    """Return the default path of the store (XDG base directories)."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "kerneldyno" / "scheduler.sqlite"


async def _serve(settings: Settings) -> None:
    names = (field.name for field in dataclasses.fields(settings) if field.name != "security")
    plain = " ".join(f"{name}={getattr(settings, name)}" for name in names)
    _log.info("event=settings %s %s %s", plain, settings.security, serving.limits())
    with serving.Signals() as signals:
        async with running(settings, hurry=signals.hurry) as scheduler:
            metrics = scheduler.metrics_address or "off"
            serving.print_ready("kerneldyno-scheduler", grpc=scheduler.address, metrics=metrics)
            await signals.stop.wait()
    _log.info("event=stopped")


if __name__ == "__main__":
    sys.exit(main())
