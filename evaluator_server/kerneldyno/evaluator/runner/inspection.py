"""An inspection: the harness under a tool of NVIDIA's, in a runner of its own.

A tool must be there before a process opens the device, so this runner does not fork the zygote's Python: it starts the
tool, and the tool starts a Python of its own, which runs the ordinary harness (`main` below). When that has ended, this
program reads the tool's report and sends it, as the last frame. All of it happens inside the sandbox, with the
candidate's rights: a hostile candidate can write the report itself, and no tool reads its files outside.

Tools may close descriptors. So the harness fetches its own from a socket in the scratch.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from typing import Any

from ..shared import wire
from . import counters, sanitizer

#: The socket in the scratch at which the harness fetches its descriptors.
_DOOR = "door"
#: Seconds that the harness has for that. It starts under the tool and imports torch.
_FETCHING_SECONDS = 60.0


def run(channel: socket.socket, shared_fds: list[int], frame: wire.Frame, scratch: str) -> None:
    """Start the tool that `frame` names over a harness, wait for both, and send the tool's report.

    Args:
        channel: The socket to the judge, which the harness uses first.
        shared_fds: The memory files that judge and harness share.
        frame: The judge's request; `tool` has the tool's `name`, and names of `kernels`.
        scratch: The runner's scratch directory.
    """
    tool = _tool(frame["tool"], scratch)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(os.path.join(scratch, _DOOR))
        door.listen(1)
        program = [sys.executable, "-P", "-m", __name__, os.path.join(scratch, _DOOR)]
        process = subprocess.Popen([*tool.command, *program], env={**os.environ, **tool.environment})
        ended = os.pidfd_open(process.pid)
        came = door.fileno() in select.select([door.fileno(), ended], [], [], _FETCHING_SECONDS)[0]
        if came:
            with door.accept()[0] as harness:
                wire.send(harness, {**frame, "scratch": scratch}, (channel.fileno(), *shared_fds))
        else:
            process.kill()
        os.close(ended)
    for descriptor in shared_fds:
        os.close(descriptor)
    process.wait()
    if not came:  # what the tool printed is in the runner's output, which the judge reads then
        print(
            f"the tool ended with status {process.returncode}, and no harness had started", file=sys.stderr, flush=True
        )
        return
    report: dict[str, Any] = {"status": process.returncode, **tool.read()}
    wire.send(channel, {"report": report})


def _tool(asked: wire.Frame, scratch: str) -> counters.Tool | sanitizer.Tool:
    return (counters.Tool if asked["name"] == "ncu" else sanitizer.Tool)(asked, scratch)


def main() -> None:
    """Run the harness: the tool starts this as `python -m ... DOOR`."""
    from . import harness

    with socket.socket(socket.AF_UNIX) as door:
        door.connect(sys.argv[1])
        received = wire.receive(door)
    if received is None:
        sys.exit("no descriptors came through the door")
    frame, (channel, *shared_fds) = received
    harness.run(socket.socket(fileno=channel), shared_fds, frame, frame["scratch"])


if __name__ == "__main__":
    main()
