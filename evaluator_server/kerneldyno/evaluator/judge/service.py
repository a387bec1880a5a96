"""The judge's conversation with the evaluator server: requests become lanes, and lanes' results are sent back.

docs/architecture.md describes the frames. The judge first tests its sandbox. If it must not serve, it sends `fatal` and
exits with status 3. If its own device is broken, it exits, and the server starts another judge.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton

from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from ..devices import hostmemory
from ..devices.base import Device, DeviceDescription
from ..shared import wire
from ..shared.running_problem import RunningProblem
from ..shared.spec import EvalSpec, ProblemSpec
from ..walls import Layer
from . import frames, modes, workloads
from .checks.libraries import Libraries
from .context import JudgeContext
from .hygiene import Hygiene, SickDeviceError
from .lane import Lane, LeakError
from .memory.footprint import CONTEXT_BYTES
from .memory.host import HostMemory
from .memory.ledger import Ledger, lacked_memory
from .problems import process
from .problems.cache import Problems
from .problems.process import Bounds
from .request import UnreadableRequestError, read_request
from .results import verdict
from .runners import ladder, work
from .runners.pool import Pool
from .timing.processors import Processors
from .timing.quiet import Quiet
from .timing.reference_runners import References

_log = logging.getLogger("kerneldyno.judge")

#: Why a request that the server took cannot be read.
_OTHER_VERSION = "the scheduler that filled in its defaults has another version than this evaluator"
#: Least device memory to plan with, in bytes, even if less is free when the judge starts.
_LEAST_ROOM = 1 << 30
#: A problem's process may take this part of the host's memory that is available when the judge starts.
_HOST_PARTS = 4

#: Exit statuses (0 means that the server ended the judge): it must not serve; the device of this process is broken.
EXIT_FATAL = 3
EXIT_BROKEN = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """How a judge is set up."""

    device_name: str
    node_id: str
    sandbox: str
    lanes: int
    spares: int
    #: Host memory of one candidate in bytes, and of all that candidates may use in addition; 0 measures the latter.
    memory_bytes: int
    host_bytes: int
    version: str
    #: Limit for one call of a reference, or for building it, in seconds.
    reference_seconds: float
    #: The device's number among those of its server, and their count.
    share: tuple[int, int]


class Service:
    """Runs until the server closes the connection or sends `shutdown`. `serve` returns the exit status."""

    def __init__(self, settings: Settings, device: Device, zygote: socket.socket) -> None:
        self._settings = settings
        self._device = device
        self._pool = Pool(
            zygote,
            device,
            "cpu:0" if device.kind == "cpu" else "cuda:0",
            spares=settings.spares,
            memory_bytes=settings.memory_bytes,
            devices=settings.share[1],
        )
        # Count a candidate, its reference and its problem in each lane, and the spares.
        contexts = (3 * settings.lanes + settings.spares) * CONTEXT_BYTES if device.kind == "cuda" else 0
        ledger = Ledger(max(_LEAST_ROOM, device.room_bytes() - contexts))
        host_bytes = max(settings.memory_bytes, hostmemory.allowance() // _HOST_PARTS)
        self._lives = process.Lives()
        bounds = Bounds(settings.reference_seconds, host_bytes)

        async def begin(spec: ProblemSpec, seed: int, within: int | None) -> RunningProblem:
            allowed = replace(bounds, device_bytes=within)
            return await process.begin(spec, seed, device, self._pool, allowed, self._lives)

        problems = Problems(device, self._pool.lease, begin)
        processors = Processors(settings.share, roams=device.kind == "cuda", near=device.near_processors())
        host = HostMemory(
            settings.memory_bytes, lambda: settings.host_bytes or hostmemory.allowance() // settings.share[1]
        )
        references = References(device, self._pool, processors, host)
        self._context = JudgeContext(device, self._pool, problems, references, Quiet(device), ledger, host, processors)
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._layers: list[Layer] = []
        self._writer: asyncio.StreamWriter | None = None
        self._broken = asyncio.Event()
        self._hygiene: Hygiene | None = None

    async def serve(self, control: socket.socket) -> int:
        """Serve one connection, and return the exit status."""
        reader, self._writer = await wire.connect(control)
        problem = await self._prove_sandbox() or self._test_device()
        if problem:
            self._send({"op": "fatal", "detail": problem})
            await self._writer.drain()
            return EXIT_FATAL
        self._send(self._ready())
        keeper = asyncio.create_task(self._pool.keep_ready())
        teller = asyncio.create_task(self._tell_stats())
        listener = asyncio.create_task(self._listen(reader))
        broken = asyncio.create_task(self._broken.wait())
        done, pending = await asyncio.wait({keeper, teller, listener, broken}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*pending, *self._lanes.values()):
            task.cancel()
        await asyncio.gather(*self._lanes.values(), return_exceptions=True)
        await self._pool.close()
        for task in done:
            if task is not broken:
                task.result()
        return EXIT_BROKEN if broken in done else 0

    async def _prove_sandbox(self) -> str:
        """Determine which walls hold. Return the reason why the judge must not serve, or ""."""
        try:
            self._layers = await ladder.climb_down(self._pool, self._device.kind, self._settings.sandbox)
        except ladder.NoWallsError as error:
            return str(error)
        if missing := [layer.name for layer in self._layers if not layer.active]:
            _log.warning("event=sandbox_layers_missing layers=%s", ",".join(missing))
        return ""

    def _test_device(self) -> str:
        """Return the reason why the device must not be used, or ""."""
        try:
            self._hygiene = Hygiene(self._device)
        except SickDeviceError as error:
            return str(error)
        return ""

    def _ready(self) -> wire.Frame:
        described, settings = self._device.describe(), self._settings
        device = fleet_pb.Device(
            name=settings.device_name,
            kind=self._device.kind,
            model=described.model,
            memory_bytes=described.memory_bytes,
            lanes=settings.lanes,
            ready=True,
        )
        layers = [
            fleet_pb.SandboxLayer(name=layer.name, active=layer.active, detail=layer.detail) for layer in self._layers
        ]
        return frames.ready(
            device,
            self._environment(described),
            layers,
            spare_runners=settings.spares,
            candidate_memory_bytes=settings.memory_bytes,
            gpu_uuid=described.uuid,
        )

    def _environment(self, described: DeviceDescription) -> pb.Environment:
        return pb.Environment(
            node_id=self._settings.node_id,
            device=self._settings.device_name,
            device_model=described.model,
            driver_version=described.driver_version,
            torch_version=torch.__version__,
            triton_version=triton.__version__,
            cuda_version=described.cuda_version,
            python_version=platform.python_version(),
            kerneldyno_version=self._settings.version,
            triton_interpreter=self._device.kind == "cpu",
        )

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while (frame := await wire.read_frame(reader)) is not None:
            operation = frame.get("op")
            if operation == "evaluate":
                attempt = frame["attempt"]
                self._lanes[attempt] = asyncio.create_task(self._evaluate(attempt, frame))
                await asyncio.sleep(0)  # a task that is cancelled before it starts never answers
            elif operation == "cancel":
                lane = self._lanes.get(frame["attempt"])
                if lane is not None:
                    lane.cancel()
            elif operation == "shutdown":
                return

    async def _evaluate(self, attempt: str, frame: wire.Frame) -> None:
        async def execute(state: str) -> None:
            self._send({"op": "reference", "attempt": attempt, "state": state})

        def tell(stage: pb.Stage.ValueType) -> None:
            self._send(frames.stage(attempt, stage))

        try:
            spec = read_request(frames.request(frame))
            libraries = Libraries.from_json(frame.get("libraries", {}))

            async def evaluate_one(each: EvalSpec) -> tuple[pb.EvalResult, Sequence[tuple[str, str]]]:
                lane = Lane(self._context, each, tell, execute, libraries)
                result = await lane.evaluate()
                if lane.lost_reference:  # a reference that ends its own process does so again
                    lane = Lane(self._context, each, tell, execute, libraries)
                    result = await lane.evaluate()
                if lacked_memory(result) and not lane.had_enough:
                    lane = Lane(self._context, each, tell, execute, libraries, alone=True)
                    result = await lane.evaluate()
                return result, lane.workloads

            async def evaluate_modes(each: EvalSpec) -> tuple[pb.EvalResult, Sequence[tuple[str, str]]]:
                return await modes.evaluate(each, evaluate_one)

            result = await workloads.evaluate(spec, evaluate_modes)
        except LeakError as leak:
            _log.error("event=judge_leaks detail=%r", str(leak))
            self._lanes.pop(attempt, None)
            self._broken.set()  # the server runs this attempt and all others in a new judge
            return
        except asyncio.CancelledError:
            result = verdict.infrastructure("CANCELLED", "the evaluation was cancelled", retryable=False)
        except UnreadableRequestError as error:
            _log.error("event=request_unreadable attempt=%s detail=%r", attempt, str(error))
            result = verdict.infrastructure("REQUEST_UNREADABLE", f"{error}; {_OTHER_VERSION}", retryable=True)
        except Exception as error:
            _log.exception("event=judge_error attempt=%s", attempt)
            result = verdict.infrastructure("JUDGE_ERROR", f"{type(error).__name__}: {error}", retryable=True)
        finally:
            self._lanes.pop(attempt, None)
        if not await self._device_is_sound():
            self._broken.set()  # the server runs these attempts again in a new judge
            return
        result.environment.CopyFrom(self._environment(self._device.describe()))
        self._send(frames.result(attempt, result))

    async def _device_is_sound(self) -> bool:
        assert self._hygiene is not None
        try:
            await work.execute(self._pool.lease, self._hygiene.check)
        except SickDeviceError as error:
            _log.error("event=device_broken detail=%r", str(error))
            return False
        return True

    def _check_idle(self) -> None:
        """If nothing is going on, check that all memory was freed."""
        references = len(self._context.references)
        if (
            self._lanes
            or references
            or self._context.problems.alive
            or self._pool.spares_ready < self._settings.spares
            or self._hygiene is None
        ):
            return
        try:
            self._hygiene.check_idle()
        except SickDeviceError as error:
            _log.error("event=device_broken detail=%r", str(error))
            self._broken.set()

    async def _tell_stats(self) -> None:
        while True:
            problems, host = self._context.problems, self._context.host.ledger
            self._send(
                {
                    "op": "stats",
                    **self._pool.stats(),
                    "device_busy_seconds": self._context.busy_seconds,
                    "reference_cache_hits": problems.hits,
                    "reference_cache_misses": problems.misses,
                    "reference_cache_problems": len(problems),
                    "problem_processes": problems.alive,
                    "problem_process_bytes": problems.nbytes,
                    "problem_births": self._lives.births,
                    "problem_ends": {"rested": self._lives.rested, "died": self._lives.died},
                    "host_memory_room_bytes": host.capacity,
                    "host_memory_admitted_bytes": host.admitted_bytes,
                }
            )
            await self._context.references.expire()
            await problems.expire()
            await self._context.pool.expire()
            self._check_idle()
            await asyncio.sleep(1)

    def _send(self, frame: wire.Frame) -> None:
        assert self._writer is not None
        wire.write_frame(self._writer, frame)
