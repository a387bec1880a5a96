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
from kerneldyno.scheduler.settings import Settings, without_password
from kerneldyno.scheduler.shared import require_driver

_log = logging.getLogger(__name__)

#: The variable with the default of --store: a URL with a password is not for a command line.
STORE_VARIABLE = "KERNELDYNO_STORE"
#: Options that set a field of `Settings`: option, field, help text.
_OPTIONS = (
    ("--listen", "listen", "serve gRPC at HOST:PORT; port 0 takes any free port"),
    ("--metrics", "metrics", 'serve Prometheus metrics at HOST:PORT, or "off"'),
    (
        "--store",
        "store",
        'where accepted work is kept: sqlite:PATH, postgresql://..., or "memory", which does not survive a crash',
    ),
    ("--advertise", "advertise", "HOST:PORT at which clients and nodes reach this scheduler, told by its standbys"),
    (
        "--store-lease",
        "store_lease_seconds",
        "seconds without a sign of the active scheduler until a standby takes over",
    ),
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
    # Files with a URL, from which secrets are made, usually end with a line break.
    chosen_store = os.environ.get(STORE_VARIABLE, "").strip() or defaults.store
    for option, field, text in _OPTIONS:
        default = chosen_store if field == "store" else getattr(defaults, field)
        shown = without_password(default).replace("%", "%%") if field == "store" else "%(default)s"
        parser.add_argument(option, dest=field, type=type(default), default=default, help=f"{text} ({shown})")
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
        return asyncio.run(_serve(settings))
    except (OSError, StoreError, CredentialsError) as error:
        print(f"kerneldyno-scheduler: {error}", file=sys.stderr)
        return 1


def default_path() -> Path:
    """Return the default path of the store (XDG base directories)."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "kerneldyno" / "scheduler.sqlite"


async def _serve(settings: Settings) -> int:
    """Serve until a signal, and return the exit status."""
    names = (field.name for field in dataclasses.fields(settings) if field.name not in ("security", "store"))
    plain = " ".join([f"store={settings.store_name}", *(f"{name}={getattr(settings, name)}" for name in names)])
    _log.info("event=settings %s %s %s", plain, settings.security, serving.limits())
    with serving.Signals() as signals:
        store, listening = None, False

        def ready(address: serving.Address, metrics: serving.Address | None) -> None:
            nonlocal listening
            if not listening:
                serving.print_ready("kerneldyno-scheduler", grpc=address, metrics=metrics or "off")
            listening = True

        if settings.shared:
            require_driver()
            from kerneldyno.scheduler import standby

            turn = await standby.turn(settings, signals.stop, ready)
            if turn is None:
                _log.info("event=stopped role=standby")
                return 0
            settings, store = turn
        async with running(settings, hurry=signals.hurry, store=store) as scheduler:
            ready(scheduler.address, scheduler.metrics_address)
            waits = [asyncio.ensure_future(event.wait()) for event in (signals.stop, scheduler.lost)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
    if scheduler.lost.is_set():
        text = "another scheduler has taken over the store; this one told nobody anything since, and ends"
        print(f"kerneldyno-scheduler: {text}", file=sys.stderr)
        return 1
    _log.info("event=stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
