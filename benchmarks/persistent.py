"""The baseline: long-lived worker processes that judge one candidate after another, like most evaluators for training.

Each worker has imported torch and opened the device once. It executes a candidate's source, compares by `allclose`,
times by events (`inprocess.py`), and then takes the next candidate in the same process. A worker is replaced if it
dies, hangs, or can no longer compute the reference, which shows that a candidate has broken its CUDA context. Timing is
exclusive among the workers of a device. There is no sandbox: run only programs that are harmless to your user.
"""

from __future__ import annotations

import linecache
import multiprocessing
import os
import queue
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

#: A candidate that takes longer counts as hung.
_LIMIT_SECONDS = 60.0
#: Time limit for importing torch and opening the device.
_START_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Task:
    """One candidate."""

    name: str
    reference: str
    source: str
    backend: str = "triton"


class Pool:
    """`per_device` workers on each of `devices` ("cpu:0", "cuda:1") that time `calls` calls. Enter it to start them."""

    def __init__(self, per_device: int, devices: Sequence[str], calls: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="persistent-")
        turns = {device: self._context.Lock() for device in devices}
        self._settings = [(device, calls, turns[device], self._folder.name) for device in devices] * per_device
        self._workers: list[_Worker] = []
        #: Number of workers that were replaced: they died, hung, or could not compute the reference any more.
        self.restarts = 0

    def __enter__(self) -> Self:
        self._workers = [_Worker(self._context, settings) for settings in self._settings]
        try:
            for worker in self._workers:
                worker.wait_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._folder.cleanup()

    def judge(self, tasks: Sequence[Task], seconds: float) -> tuple[dict[str, dict[str, Any]], float]:
        """Return results of `inprocess.evaluate` by name, of all tasks that start within `seconds`, and the duration.

        If a worker dies or hangs, the result is {"correct": False, "compiled": False} with a message.
        """
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)
        answers: dict[str, dict[str, Any]] = {}
        begin = time.monotonic()

        def drive(number: int) -> None:
            while time.monotonic() - begin < seconds:
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    return
                answers[task.name] = self._ask(number, task)

        with ThreadPoolExecutor(len(self._workers)) as drivers:
            for driver in [drivers.submit(drive, number) for number in range(len(self._workers))]:
                driver.result()
        return answers, time.monotonic() - begin

    def _ask(self, number: int, task: Task) -> dict[str, Any]:
        worker = self._workers[number]
        begin = time.monotonic()
        answer = worker.ask(task)
        answer["seconds"] = time.monotonic() - begin
        if not answer["fingerprint"]:
            self.restarts += 1
            worker.kill()
            self._workers[number] = _Worker(self._context, self._settings[number])
            self._workers[number].wait_ready()
        return answer


class _Worker:
    """One worker process and the pipe to it."""

    def __init__(self, context: Any, settings: tuple[Any, ...]) -> None:
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, *settings), daemon=True)
        self._process.start()
        theirs.close()

    def wait_ready(self) -> None:
        """Wait until the worker is ready. Raises RuntimeError if it does not start."""
        try:
            if not self._pipe.poll(_START_SECONDS):
                raise RuntimeError("a persistent worker did not start in time")
            self._pipe.recv()
        except EOFError:
            raise RuntimeError("a persistent worker died before it was ready; its error is above") from None

    def ask(self, task: Task) -> dict[str, Any]:
        """Return the worker's answer; if it died or hung, an answer with a message."""
        message = f"no answer within {_LIMIT_SECONDS:.0f} s"
        try:
            self._pipe.send(task)
            if self._pipe.poll(_LIMIT_SECONDS):
                answer: dict[str, Any] = self._pipe.recv()
                return answer
        except (EOFError, OSError):
            self._process.join(5)
            message = f"the worker died with status {self._process.exitcode}"
        return {"compiled": False, "correct": False, "message": message, "fingerprint": []}

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _work(pipe: Connection, device: str, calls: int, turn: Any, folder: str) -> None:
    """Judge candidates until the process is killed. The environment is set before torch and triton are imported."""
    tempfile.tempdir = folder
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    kind, _, index = device.partition(":")
    if kind == "cpu":
        os.environ.update(TRITON_INTERPRET="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    else:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[int(index or 0)] if visible else index or "0"
    import torch

    from benchmarks import inprocess

    inprocess.CALLS = calls
    place = torch.device(kind)
    torch.ones(1, device=place).add_(1)
    pipe.send("ready")
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        # For a reference with a Triton kernel: Triton reads the kernel's source from here.
        lines = task.reference.splitlines(keepends=True)
        linecache.cache["reference.py"] = (len(task.reference), None, lines, "reference.py")
        try:
            answer = inprocess.evaluate(
                task.reference, task.source, task.backend, place, inprocess.TOLERANCE, _Turn(turn)
            )
        except Exception as error:  # the reference itself failed: this worker must be replaced
            message = f"{type(error).__name__}: {error}"[:2000]
            answer = {"compiled": False, "correct": False, "message": message, "fingerprint": []}
        pipe.send(answer)


class _Turn:
    """A lock between processes, as a context manager. After 10 s it goes on without it: its holder may be dead."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._held = False

    def __enter__(self) -> None:
        self._held = self._lock.acquire(timeout=10)

    def __exit__(self, *_: object) -> None:
        if self._held:
            self._lock.release()
