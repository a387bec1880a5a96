"""A command in a pseudo-terminal of a given size: tests press its keys and read its screen."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

HOME, ENTER, LEAVE, SHOW_CURSOR = "\x1b[H", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3|4|9|10)[0-7](?:;\d+)*m")


class Terminal:
    """The terminal of a process that was started in it."""

    def __init__(self, process: asyncio.subprocess.Process, keyboard: int) -> None:
        self.process = process
        self.written = ""
        self._keyboard = keyboard
        asyncio.get_running_loop().add_reader(keyboard, self._read)

    def press(self, keys: str) -> None:
        """Type `keys`."""
        os.write(self._keyboard, keys.encode())

    @property
    def screen(self) -> list[str]:
        """Return the lines of the last complete picture, without colours."""
        pictures = self.written.split(HOME)
        text = pictures[-2] if len(pictures) > 2 else pictures[-1]
        return [line.rstrip() for line in _ESCAPE.sub("", text).replace("\r", "").split("\n")]

    async def until(self, condition: Callable[[str], bool]) -> str:
        """Wait until the screen meets the condition, and return the screen."""
        async with asyncio.timeout(60):
            while not condition("\n".join(self.screen)):  # noqa: ASYNC110  (another process is to change it)
                await asyncio.sleep(0.02)
        return "\n".join(self.screen)

    async def ended(self) -> int:
        """Wait for the end of the process, and return its status."""
        status = await asyncio.wait_for(self.process.wait(), 60)
        await asyncio.sleep(0.05)  # so that its last output is read
        return status

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._keyboard)
        os.close(self._keyboard)

    def _read(self) -> None:
        try:
            found = os.read(self._keyboard, 65536)
        except OSError:  # no process has the other end open any more
            found = b""
        if not found:
            asyncio.get_running_loop().remove_reader(self._keyboard)
        self.written += found.decode(errors="replace")


@asynccontextmanager
async def terminal(
    *arguments: object, columns: int = 80, lines: int = 24, **environment: str
) -> AsyncIterator[Terminal]:
    """Run the command line in a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    left_out = ("KERNELDYNO_ADDRESS", "COLUMNS", "LINES", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _IN_TERMINAL, *map(str, arguments)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**kept, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    shown = Terminal(process, ours)
    try:
        yield shown
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        with suppress(OSError):
            shown.close()


#: Makes the terminal its controlling terminal first, so that Ctrl-C arrives as a signal.
_IN_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv[0] = "kerneldyno"
from kerneldyno.cli import main
main()
"""
