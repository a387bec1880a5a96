"""The program of a compiler process: it builds one library in its sandbox, and writes it into the builder's memory file.

No candidate's Python ever runs in this process, only compilers on a candidate's text. The builder gives it one build,
and takes what it returns for that build and for no other.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from ..shared import wire
from ..shared.library_file import MOST_BYTES, MOST_LOG
from ..shared.native_build import NativeBuild
from . import errors, lean, nvcc
from .commands import Compilation, commands

#: Flags of compilers about dependencies; the latter are followed by a file.
_DEPENDENCIES = ("-MD", "-MMD", "--generate-dependencies-with-compile")
_DEPENDENCY_FILE = ("-MF", "--dependency-output")
#: Largest header that is compiled ahead, in bytes; gcc makes 210 MB of it.
MOST_HEADER_BYTES = 400 << 20


class TooLarge(Exception):  # noqa: N818
    """The library is larger than libraries may be."""


class StepFailed(Exception):  # noqa: N818
    """A step of the build failed; the message is what it printed."""


@dataclass(slots=True)
class _Build:
    """One build and its steps, which may run side by side."""

    build: NativeBuild
    directory: Path
    use_lean: bool
    #: The directory of the header that was compiled ahead, if there is one.
    precompiled: Path | None
    steps: list[tuple[str, float]] = field(default_factory=list)

    def run(self) -> Path:
        """Return the built library. Raises StepFailed."""
        compilations, link = commands(self.build, self.directory)
        with ThreadPoolExecutor(len(compilations)) as pool:
            done = [pool.submit(self._compile, each) for each in compilations]
            failed = [str(error) for each in done if isinstance(error := each.exception(), StepFailed)]
        if failed:
            raise StepFailed("\n".join(failed))
        for each in done:
            each.result()
        self._step("link", link)
        return self.directory / f"{self.build.name}{cpp_extension.LIB_EXT}"

    def _compile(self, compilation: Compilation) -> None:
        compiler, *rest = _without_dependencies(compilation.command)
        if self.use_lean:
            include = _torch_headers()[0]
            precompiled = None if compilation.is_nvcc else self.precompiled
            rest = [*lean.flags(self.build, compilation.source, include, self.directory, precompiled), *rest]
        command = [compiler, *rest]
        if not (compilation.is_nvcc and self._compile_side_by_side(command, compilation.source)):
            self._step(f"{Path(compiler).name} {compilation.source}", command)

    def _compile_side_by_side(self, command: list[str], source: str) -> bool:
        dry = subprocess.run([*command, "--dryrun"], cwd=self.directory, capture_output=True, text=True, check=False)
        plan = nvcc.read(dry.stderr, source) if dry.returncode == 0 else None
        if plan is None:
            return False
        file, identity = plan.identity
        file.write_text(identity)
        with ThreadPoolExecutor(1) as pool:
            device = pool.submit(self._chain, plan.device, source, plan.environment)
            try:
                self._chain(plan.host, source, plan.environment)
            except StepFailed:
                device.exception()  # both passes report the same errors
                raise
            device.result()
        self._step(f"{nvcc.program(plan.last)} {source}", plan.last, plan.environment)
        return True

    def _chain(self, chain: tuple[str, ...], source: str, environment: dict[str, str]) -> None:
        for command in chain:
            self._step(f"{nvcc.program(command)} {source}", command, environment)

    def _step(self, name: str, command: list[str] | str, environment: dict[str, str] | None = None) -> None:
        """Run one command. A text is a command for the shell."""
        began = time.monotonic()
        ran = subprocess.run(
            command,
            shell=isinstance(command, str),
            cwd=self.directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.steps.append((name, time.monotonic() - began))
        if ran.returncode:
            output = ran.stdout.decode(errors="replace")
            raise StepFailed(output.replace(f"{self.directory}/", "") or f"{name}: status {ran.returncode}")


def _without_dependencies(command: list[str]) -> list[str]:
    """Return a compiler's command without the flags by which ninja learns the headers; they cost a step."""
    kept: list[str] = []
    flags = iter(command)
    for flag in flags:
        if flag in _DEPENDENCY_FILE:
            next(flags, None)
        elif flag not in _DEPENDENCIES:
            kept.append(flag)
    return kept


def run(channel: socket.socket, shared_fds: list[int], frame: wire.Frame, scratch: str) -> None:
    """Serve the builder on `channel` until it closes: one order, one build. This runs inside the sandbox.

    Args:
        channel: The socket to the builder.
        shared_fds: The memory file for the library.
        frame: The builder's request for this process.
        scratch: The scratch directory.
    """
    _give_way()
    wire.send(channel, {"ok": "ready", "pace": 0.0})
    while (received := wire.receive(channel)) is not None:
        order, library = received[0], shared_fds[0]
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", str(order["architecture"]))
        if order["op"] == "header":
            wire.send(channel, {"ok": _compile_header(Path(scratch), library)})
            continue
        precompiled = _unpack_header(shared_fds[1], Path(scratch)) if len(shared_fds) > 1 else None
        store = functools.partial(_store, memory_file=library, most=MOST_BYTES)
        built = build_library(NativeBuild.from_json(order["build"]), Path(scratch), store, precompiled)
        wire.send(channel, {"ok": built})


def _give_way() -> None:
    """Give way to candidates, which are judged on the same host.

    Where Linux groups processes by session (autogroup), this has no effect. The group's own priority stays as it is:
    with a lower one, builds took longer than their limits on a busy host.
    """
    os.nice(4)  # to 19


def _compile_header(scratch: Path, memory_file: int) -> int:
    """Compile the header for bindings ahead, as they will be compiled. Return its size; 0 if that failed."""
    build = NativeBuild("header", (("main.cpp", ""),), with_cuda=bool(cpp_extension.CUDA_HOME))
    try:
        (compilation,), _ = commands(build, scratch)
        command = _without_dependencies(compilation.command)
        command = [each for each in command[: command.index("-c")] if not each.startswith("-DTORCH_EXTENSION_NAME")]
        subprocess.run(
            [*command, *lean.header(_torch_headers()[0], scratch)], cwd=scratch, check=True, capture_output=True
        )
        return _store(scratch / f"{lean.PRECOMPILED}.gch", memory_file, MOST_HEADER_BYTES)
    except (TooLarge, OSError, RuntimeError, subprocess.SubprocessError):
        return 0


def _unpack_header(memory_file: int, scratch: Path) -> Path:
    directory = scratch / "header"
    directory.mkdir()
    lean.header(_torch_headers()[0], directory)
    with (directory / f"{lean.PRECOMPILED}.gch").open("wb") as target:
        size, done = os.fstat(memory_file).st_size, 0
        while done < size:
            done += os.sendfile(target.fileno(), memory_file, done, size - done)
    return directory


def build_library(
    build: NativeBuild, scratch: Path, store: Callable[[Path], int], precompiled: Path | None = None
) -> dict[str, Any]:
    """Build a library: with lean headers if possible, else with all of them. Return the answer to the builder.

    `store` receives the path of the library, and returns its size. `precompiled` is the directory of the header that
    was compiled ahead.
    """
    steps: list[tuple[str, float]] = []
    log, ways = "", [True, False] if lean.is_possible(build.text) else [False]
    for use_lean in ways:
        directory = scratch / ("lean" if use_lean else "full")
        directory.mkdir()
        made = _Build(build, directory, use_lean, precompiled, steps)
        try:
            size = store(made.run())
        except TooLarge as error:
            log = str(error)
            break
        except (StepFailed, OSError, RuntimeError, subprocess.SubprocessError) as error:
            log = str(error)
            if (
                isinstance(error, StepFailed)
                and use_lean
                and errors.is_certainly_own(log, build.shown, _torch_headers())
            ):
                break
            shutil.rmtree(directory, ignore_errors=True)  # the scratch is small
        else:
            return {"lean": use_lean, "steps": steps, "size": size, "log": ""}
    return {"lean": use_lean, "steps": steps, "size": 0, "log": log[:MOST_LOG]}


def _torch_headers() -> list[Path]:
    return [Path(path) for path in cpp_extension.include_paths() if "torch" in Path(path).parts]


def _store(path: Path, memory_file: int, most: int) -> int:
    """Copy a file into the memory file, and return its size. Raises TooLarge if it has more than `most` bytes."""
    size = path.stat().st_size
    if not 0 < size <= most:
        raise TooLarge(f"the library has {size >> 20} MiB; at most {most >> 20} MiB are allowed")
    with path.open("rb") as source, os.fdopen(os.dup(memory_file), "wb") as target:
        shutil.copyfileobj(source, target)
    return size
