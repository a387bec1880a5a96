"""Where the commands of the documentation run: one pair of services for all pages, and a directory for each page.

`kerneldyno up`, a command of the pages, starts the services, on free ports. Pages are written for the default ports and
for other machines, so addresses and names are replaced by those of this machine, in commands and in the output that
pages show. `--local` is removed, because services are running. A page's directory looks like the repository, and files
that its commands write stay in it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from kerneldyno.client import Client
from kerneldyno.evaluator.shared.linux import die_with_parent
from tests.docs import docs_transcript
from tests.docs.docs_pages import ROOT, Block, Command, commands

GIVEN = Path(__file__).with_name("given")
#: Time limit in seconds of a command of a page.
LIMIT = 100.0
#: Commands that run until they are stopped, and the options with which they use free ports.
SERVERS = {
    "kerneldyno up": "--listen 127.0.0.1:0 --metrics 127.0.0.1:0 --evaluator-metrics 127.0.0.1:0 --devices cpu --lanes 2",
    "kerneldyno gateway": "--listen 127.0.0.1:0",
    "python -m kerneldyno.rollout.stand_in": "--port 0",
}
_ENDPOINT = re.compile(r"(?<![\w.])(?:[\d.]+|localhost|[\w-]+-host|scheduler):\d{4,5}\b")


class Server:
    """A command of a page that runs until it is stopped."""

    def __init__(self, command: str, cwd: Path, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=cwd,
            env=env,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,  # so that nothing is left when a test run is killed
        )
        self.printed = ""

    def wait_for(self, lines: int) -> str:
        """Wait until it has printed this many lines, and return its output."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + LIMIT
        while self.printed.count("\n") < lines:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"it printed only {self.printed!r}"
            some = os.read(self._process.stdout.fileno(), 1 << 16)
            assert some, f"it ended; it had printed {self.printed!r}"
            self.printed += some.decode()
        return self.printed

    def stop(self) -> int:
        """Stop it as Ctrl-C does, and return its exit status."""
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()


class Desk:
    """The services, and the addresses and names that differ from those on the pages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("KERNELDYNO_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "COLUMNS": "80",
            "NO_COLOR": "1",
        }
        self._here: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        self._up = Server(f"kerneldyno up {SERVERS['kerneldyno up']}", self._folder, self.env)
        try:
            self._look_around()
        except BaseException:
            self._up.stop()
            raise
        return self

    def _look_around(self) -> None:
        self.up = self._up.wait_for(3)
        found = re.findall(r"(127\.0\.0\.1:\d+)", self.up)
        self.scheduler, scheduler_metrics, evaluator, evaluator_metrics = found
        self.env["KERNELDYNO_ADDRESS"] = self.scheduler
        with Client(self.scheduler) as client:
            (node,) = client.nodes()
        self._here = [
            *((address, self.scheduler) for address in ("127.0.0.1:50051", "scheduler:50051", "scheduler-host:50051")),
            *(
                ("127.0.0.1:9464", scheduler_metrics),
                ("127.0.0.1:9465", evaluator_metrics),
                ("127.0.0.1:43799", evaluator),
            ),
            *((name, node.node_id) for name in ("vm", "node-a", "node-b", "gpu-node-1")),
            ("Intel(R) Xeon(R) Processor", node.devices[0].model),
        ]

    def __exit__(self, *_: object) -> None:
        status = self._up.stop()
        assert status == 0, f"`kerneldyno up` ended with {status}"

    def here(self, text: str, more: list[tuple[str, str]]) -> str:
        """Return `text` with the addresses and names of this machine."""
        text = text.replace(" --local", "")
        table = dict([*self._here, *more])
        pattern = "|".join(re.escape(word) for word in sorted(table, key=len, reverse=True))
        return re.sub(rf"(?<![\w.-])(?:{pattern})(?![\w-])", lambda match: table[match[0]], text)


class Page:
    """One page's directory, and the servers that its commands have started."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self._desk = desk
        self.folder = folder
        self._servers: list[Server] = []
        self._here: list[tuple[str, str]] = []
        for entry in ROOT.iterdir():
            if entry.name not in ("build", ".git") and not entry.name.endswith("_cache"):
                (folder / entry.name).symlink_to(entry)
        for entry in GIVEN.iterdir():
            (folder / entry.name).write_bytes(entry.read_bytes())

    def close(self) -> None:
        """Stop the servers that the page left running."""
        statuses = [server.stop() for server in reversed(self._servers)]
        assert set(statuses) <= {0, 130}, statuses  # 130: interrupted while it worked

    def transcript(self, block: Block) -> list[str]:
        """Run a transcript. Return what is not as the page says."""
        found = []
        for part in _parts(commands(block.text)):
            if _server_of(part[0].text):
                printed = [self._serve(part[0])]
            else:
                printed = self._shell(
                    [one.text for one in part], block.said if block.mark == "ends with status" else "0"
                )
            for command, output in zip(part, printed, strict=True):
                lines = docs_transcript.missing(self._local(_shown(command.printed)), output)
                if lines:
                    found.append(
                        f"$ {command.text}\nprints no such line:\n  " + "\n  ".join(lines) + f"\nbut\n{output}"
                    )
        return found

    def script(self, block: Block) -> None:
        """Run a script."""
        self._shell([block.text], "0")

    def programs(self, blocks: list[Block], prints: list[Block]) -> list[str]:
        """Run the page's programs in one process, in order. Return what they should print and do not."""
        (self.folder / "programs_of_the_page.py").write_text(
            "\n".join(self._local([block.text])[0] for block in blocks)
        )
        output = self._run([sys.executable, "programs_of_the_page.py"], "0")
        lines = docs_transcript.missing(self._local([line for one in prints for line in one.text.splitlines()]), output)
        return [f"the programs do not print\n  {line}\nbut\n{output}" for line in lines]

    def _serve(self, command: Command) -> str:
        if command.text.startswith("kerneldyno up"):
            return self._desk.up
        server = _server_of(command.text)
        line = f"{self._local([command.text])[0]} {SERVERS[server]}"
        self._servers.append(Server(line, self.folder, self._desk.env))
        printed = self._servers[-1].wait_for(len(command.printed))
        said = _ENDPOINT.findall(command.printed[0])[0]
        real = _ENDPOINT.findall(printed)[0]
        self._here += [(said, real), (said.replace("127.0.0.1", "localhost"), real)]
        return printed

    def _shell(self, texts: list[str], ends_with: str) -> list[str]:
        """Run commands in one shell and return the output of each. A command must succeed unless the next uses `$?`."""
        mark = f"--- {os.urandom(8).hex()}"
        script = "kd_status=0\n"
        for index, text in enumerate(self._local(texts)):
            fails_well = "echo $?" in texts[index] or index == 0
            script += "" if fails_well else '[ $kd_status = 0 ] || { echo "status $kd_status"; exit 99; }\n'
            script += f"echo '{mark}'\n(exit $kd_status)\n{text}\nkd_status=$?\n"
        output = self._run(["bash", "-c", script + "exit $kd_status\n"], ends_with)
        return output.split(f"{mark}\n")[1:]

    def _run(self, arguments: list[str], ends_with: str) -> str:
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=self._desk.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == int(ends_with), f"ended with status {done.returncode}\n{done.stdout}"
        return done.stdout

    def _local(self, texts: list[str]) -> list[str]:
        return [self._desk.here(text, self._here) for text in texts]


def _parts(of: list[Command]) -> list[list[Command]]:
    """Return groups of commands that one shell runs; each server is a group of its own."""
    found: list[list[Command]] = []
    for command in of:
        if found and not _server_of(command.text) and not _server_of(found[-1][0].text):
            found[-1].append(command)
        else:
            found.append([command])
    return found


def _server_of(command: str) -> str:
    return next((server for server in SERVERS if command.startswith(server)), "")


def _shown(printed: list[str]) -> list[str]:
    """Return the lines that a page shows, without empty lines and `...`."""
    return [line for line in printed if line.strip(" .…")]
