"""Helpers that run the command line as a person or a script does: a process, two output streams, an exit status.

A process takes a second to start; `invoke` runs a command in a thread of this process where that makes no difference.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from kerneldyno.cli import app

#: An address where no scheduler listens.
NOBODY = "127.0.0.1:1"


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@asynccontextmanager
async def started(
    *arguments: object, program: str | None = None, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a command as a process. `program` is Python that runs the command line; without it, the module runs."""
    kept = {name: value for name, value in os.environ.items() if name != "KERNELDYNO_ADDRESS"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *(("-m", "kerneldyno.cli") if program is None else ("-c", program)), *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**kept, **environment},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def finished(process: asyncio.subprocess.Process) -> Ran:
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    ran = Ran(process.returncode, out.decode(), err.decode())
    assert "Traceback" not in ran.err
    return ran


async def run(*arguments: object, **environment: str) -> Ran:
    async with started(*arguments, **environment) as process:
        return await finished(process)


async def invoke(*arguments: object, **environment: str) -> Ran:
    runner = CliRunner(env={"KERNELDYNO_ADDRESS": None, **environment})
    result = await asyncio.to_thread(runner.invoke, app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)
