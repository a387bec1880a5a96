"""The checks of `kerneldyno doctor`: this machine, the software installed on it, and the services that it will use.

`diagnose` makes findings (`Check`); the command line shows them. The checks change nothing, except for temporary files
and a canary's two evaluations. Every check has a time limit, and none raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

from kerneldyno.doctor import machine, ports, sandbox, services, software
from kerneldyno.doctor.checks import Check, Examination, State, conduct

__all__ = ["CANARY_SECONDS", "Check", "State", "of_machine", "of_services"]

#: Time limit of a canary in seconds; a GPU node that has just started must compile it.
CANARY_SECONDS = 120.0
#: Time limit in seconds of all other checks of the services together.
_SERVICES_SECONDS = 60.0


def of_machine(store: str | None = None) -> Iterator[Check]:
    """Yield findings on this machine. `store` is the scheduler's --store; None for its default."""
    yield from conduct(
        [
            Examination("python", software.python),
            Examination("system", machine.system),
            Examination("torch, triton", software.torch, 90.0),
            Examination("NVIDIA driver", software.driver, 30.0),
            Examination("compilers", software.compilers, 30.0),
            Examination("sandbox here", sandbox.here, 20.0),
            Examination("open files", machine.open_files),
            Examination("/dev/shm", machine.shared_memory),
            Examination("scratch", machine.scratch),
            Examination("journal", lambda: machine.journal(store), 20.0),
            Examination("clock", machine.clocks),
            Examination("ports", ports.default_ports),
        ]
    )


def of_services(address: str, *, with_canary: bool = True, canary_seconds: float = CANARY_SECONDS) -> Iterator[Check]:
    """Yield findings on the scheduler at `address` and its nodes, with a canary's evaluation if asked for."""

    async def collect(found: list[Check]) -> None:
        async with (
            asyncio.timeout(_SERVICES_SECONDS + canary_seconds),
            aclosing(services.examine(address, with_canary=with_canary, canary_seconds=canary_seconds)) as checks,
        ):
            async for check in checks:
                found.append(check)

    found: list[Check] = []
    try:
        asyncio.run(collect(found))
    except Exception as error:  # report it as a finding: the earlier findings are still valid
        text = "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        found.append(Check("services", State.FAILED, text, "see the scheduler's log"))
    yield from found
