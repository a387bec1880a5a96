"""A real scheduler as a process, for the commands that watch one and for tests that kill it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def scheduler_process(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a scheduler as a process, yield it when it is ready, and kill it at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kerneldyno.scheduler", "--exit-with-parent"),
        *("--listen", f"127.0.0.1:{port}", "--metrics", "off", "--store", "memory"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith("KERNELDYNO_")},
    )
    assert process.stdout is not None
    try:
        assert b"ready" in await asyncio.wait_for(process.stdout.readline(), 60)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
