"""The harness: what runs in the candidate's own process, and therefore can be trusted with nothing.

It obeys the judge, frame by frame: open the arenas, load the candidate, construct it, call it, run bursts. It holds
neither expected values nor the reference nor the clock; a candidate that takes it over can only make itself fail.
Each frame gets one answer, {"ok": ...} or {"error": ...} with a traceback of the candidate's own lines; a burst
behind a gate gets two, the first one when all of it is queued.

The same harness, in a runner of its own without any candidate, times references (`reference.py`): a reference and a
candidate that are the same code then take the same time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import importlib.util
import io
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from ..backends import Backend, backends
from ..devices import open_device, seeding, timed_loops
from ..devices.base import Device, Gate
from ..devices.signals import Signals
from ..shared import small_floats, tree, wire
from ..shared.tracebacks import CANDIDATE_FILE, describe_error
from . import native, parameters, probe, profiler, reference, sandbox

#: Outputs of earlier calls that are kept, where there are slots for them, and must not change.
_KEPT_ALIVE = 2
#: Larger outputs than this are not worth the memory that poisoning takes, in bytes.
_MOST_POISONED = 256 << 20


def preload(kind: str) -> None:
    """Get ready what every harness on a device of this kind needs; called once, in the zygote."""
    for backend in backends().values():
        backend.preload(kind)
    reference.preload()


def run(channel: socket.socket, shared_fds: list[int], frame: wire.Frame, scratch: str) -> None:
    """Serve the judge on `channel` until it closes. Runs inside the sandbox."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):  # what was printed before a crash must not be lost in a buffer
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    device = open_device(str(frame["device"]))
    device.warm_up()
    for backend in backends().values():
        backend.warm_up(device)
    if device.kind == "cpu":
        sandbox.limit_address_space(int(frame["memory_bytes"]))
    harness = _Harness(device, shared_fds, scratch, channel)
    pace = device.pace()
    wire.send(channel, {"ok": "ready", "pace": pace.cycles if pace else 0.0})
    while (received := wire.receive(channel)) is not None:
        order = received[0]
        try:
            answer = {"ok": getattr(harness, f"do_{order['op']}")(order)}
        except BaseException as error:  # SystemExit and KeyboardInterrupt of the candidate are its failures too
            answer = {"error": dataclasses.asdict(describe_error(error, harness.file))}
        wire.send(channel, answer)


class _Harness:
    def __init__(self, device: Device, shared_fds: list[int], scratch: str, channel: socket.socket) -> None:
        self._device = device
        self._shared_fds = shared_fds
        self._scratch = scratch
        self._channel = channel
        self._module: ModuleType | None = None
        self._backend: Backend | None = None
        self._call: Callable[..., Any] | None = None
        self._nothing: Callable[..., Any] | None = None
        self._replays: list[Callable[[], Any]] = []
        self._station: timed_loops.Station | None = None
        self._signals: Signals | None = None
        self._gate: Gate | None = None
        #: What is in force while timed calls are made; a reference has settings of torch of its own.
        self._circumstances: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        #: The source whose lines tracebacks show.
        self.file = CANDIDATE_FILE
        self._earlier: deque[Any] = deque(maxlen=_KEPT_ALIVE)
        self._construction: parameters.Construction | None = None
        #: Names of the candidate's kernels that were launched so far: a graph that it replays later holds them.
        self._launched: set[str] = set()

    def do_arenas(self, order: wire.Frame) -> None:
        """Reach the judge's memory, the page of signals and the gate."""
        arena_in, arena_out = (
            self._device.reach_arena(ticket, self._shared_fds, number) for number, ticket in enumerate(order["tickets"])
        )
        self._signals = self._device.signals(self._shared_fds)
        self._gate = self._device.gate(self._signals, queues=True)
        for descriptor in self._shared_fds:
            os.close(descriptor)  # for tidiness: Python's mmap keeps one of its own, and the seals hold anyway
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        self._station = timed_loops.Station.over(
            self._device,
            order["structure"],
            specs,
            arena_in,
            arena_out,
            sets=order["sets"],
            slots=order["slots"],
        )
        self._earlier = deque(maxlen=min(_KEPT_ALIVE, order["slots"] - 1))
        if order["memory_bytes"]:  # a candidate can lift this again; it is for those who mean no harm
            kept = (self._earlier.maxlen or 0) * self._station.outputs[0].nbytes  # by us, so not of its share
            self._device.keep_within(order["memory_bytes"] + kept)

    def do_load(self, order: wire.Frame) -> wire.Frame:
        """Import the candidate's source as a module of its own, from a file, as Triton's compiler needs it."""
        self._backend = backends()[order["backend"]]
        self._backend.prepare(self._device)
        path = os.path.join(self._scratch, CANDIDATE_FILE)
        with open(path, "w", encoding="utf-8") as file:
            file.write(order["source"])
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        spec.loader.exec_module(module)
        self._module = module
        return {"defines": hasattr(module, order["symbol"])}

    def do_probe(self, order: wire.Frame) -> list[list[Any]]:
        """Try to break out, before any candidate is here; say which walls held."""
        return [[layer.name, layer.active, layer.detail] for layer in probe.probe(order["outside"], self._device)]

    def do_construct(self, order: wire.Frame) -> wire.Frame:
        """Make the callable: an instance of the candidate's class, with the reference's own seed, or a function.

        Answers with the constant tensors that the instance has, if they are asked for.
        """
        target = getattr(self._module, order["symbol"])
        self._call = self._construction = None  # what was made before need not lie beside what is made now
        if not order["instantiate"] and not isinstance(target, type):
            self._call = target
            return {"state": []}
        self._construction = parameters.Construction(
            target, order["args"], order["kwargs"], order["seed"], self._device.torch_device
        )
        assert self._backend is not None
        with self._backend.count_launches(self._device) as launches:
            self._call = self._construction.make()
        self._launched |= launches.names
        return {"state": self._construction.constants() if order["listing"] else []}

    def do_reconstruct(self, order: wire.Frame) -> None:
        """Make the instance again, with the values that the judge has put into the arena for some of its tensors."""
        assert self._construction is not None
        assert self._station is not None
        specs = [tree.TensorSpec.from_json(spec) for _, spec in order["state"]]
        values = [small_floats.cloned(value) for value in tree.views(self._station.arena, specs)]
        names = [name for name, _ in order["state"]]
        self._device.synchronize()  # as soon as this is answered the judge writes inputs where the values are
        self._call = self._construction.make_with(dict(zip(names, values, strict=True)))

    def do_parameters(self, order: wire.Frame) -> wire.Frame:
        """Answer with all parameters and buffers that the instance has."""
        return {"parameters": [] if self._construction is None else self._construction.listing()}

    def do_adopt(self, order: wire.Frame) -> None:
        """Give parts of parameters and buffers the values that the judge has put into the arena."""
        assert self._construction is not None
        assert self._station is not None
        specs = [tree.TensorSpec.from_json(spec) for _, _, spec in order["parts"]]
        with torch.no_grad():
            for (name, start, _), values in zip(order["parts"], tree.views(self._station.arena, specs), strict=True):
                self._construction.assign(name, start, values)
        self._device.synchronize()

    def do_call(self, order: wire.Frame) -> wire.Frame:
        """Call the candidate over the judge's memory itself; store what it returns in the first slot.

        The next slots get what the calls before returned, as it is now: outputs must stay what they were.
        """
        assert self._backend is not None
        self._poison_free_memory()
        counting = self._backend.suppress_launches if order["ghost"] else self._backend.count_launches
        with counting(self._device) as launches, torch.no_grad():
            begin = time.perf_counter()
            with self._device.soiled_memory():
                result = self._call_once(order)
            self._device.synchronize()
            seconds = time.perf_counter() - begin
            assert self._station is not None
            structure, returned = self._station.store(result, 0)
            for slot, earlier in enumerate(self._earlier, 1):
                # What torch knows to be overwritten, by a CUDA graph of its own, it lets nobody read.
                with contextlib.suppress(RuntimeError):
                    self._station.store(earlier, slot)
            self._device.synchronize()
        self._earlier.appendleft(result)
        self._launched |= launches.names
        specs = [tree.describe(tensor).to_json() for tensor in returned]
        return {"structure": structure, "specs": specs, "launches": launches.count, "seconds": seconds}

    def do_build(self, order: wire.Frame) -> wire.Frame:
        """Build a reference instead of loading a candidate; say whether there is one to be timed."""
        self.file = reference.FILE
        self._call, self._circumstances = reference.build(order["spec"], order["seed"], self._device)
        return {"timed": self._call is not None}

    def do_nothing(self, order: wire.Frame) -> None:
        """Have a call ready that does nothing, and returns tensors so described: zeros, or what lies in the inputs."""
        assert self._station is not None
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        device = self._device.torch_device
        if order["laid_over"]:
            leaves = tree.views(self._station.arena, specs)
        else:
            leaves = [
                torch.empty_strided(spec.shape, spec.stride, dtype=spec.torch_dtype, device=device).zero_()
                for spec in specs
            ]
        answer = tree.rebuild(order["structure"], leaves, device)
        self._nothing = lambda *_: answer

    def do_settle(self, order: wire.Frame) -> None:
        """Begin to be timed: on one processor, which both sides share, and with no memory kept from what came before."""
        self._run_on(order["processor"])
        self._earlier.clear()
        gc.collect()
        self._device.settle()

    def do_place(self, order: wire.Frame) -> None:
        """Launch calls from a processor from now on, with memory that is kept for later elsewhere if that is wanted."""
        self._run_on(order["processor"])
        if order["memory"]:
            self._earlier.clear()
            with self._circumstances():
                self._device.displace(order["memory"])

    @staticmethod
    def _run_on(processor: int | None) -> None:
        if processor is not None:
            with contextlib.suppress(OSError):  # not ours to choose
                os.sched_setaffinity(0, {processor})

    def do_capture(self, order: wire.Frame) -> bool:
        """Have bursts replay CUDA graphs of the call, if that is possible, and say whether it is."""
        assert self._station is not None
        assert self._call is not None
        with self._circumstances(), torch.no_grad():
            self._replays = timed_loops.capture(self._call, self._station, order["count"])
            self._device.synchronize()
        return bool(self._replays)

    def do_burst(self, order: wire.Frame) -> list[float]:
        """Run one burst; the judge holds the clock, these times only refine it."""
        call = self._nothing if order["nothing"] else self._call
        assert self._station is not None
        assert self._signals is not None
        assert call is not None
        self._earlier.clear()
        plan = timed_loops.Plan(order["sets"], order["slots"], order["seeds"], order["cold"])
        replays = self._replays if order["replay"] else []
        if replays and order["nothing"]:
            replays = [call] * len(self._replays)
        with self._circumstances(), torch.no_grad():
            timed_loops.lead_in(call, self._station, order["lead_in"])
            if order["paced"]:
                return timed_loops.run_paced(
                    call, self._station, plan, signals=self._signals, base=order["value"], replays=replays
                )
            return timed_loops.run_burst(
                call,
                self._station,
                plan,
                replays=replays,
                gate=self._gate if order["gated"] else None,
                value=order["value"],
                queued=lambda launching: wire.send(self._channel, {"ok": "queued", "launching": launching}),
            )

    def do_profile(self, order: wire.Frame) -> wire.Frame:
        """Say which kernels a few calls ran, and which of them are the candidate's; nothing where the profiler fails."""
        assert self._backend is not None
        ran, failed = profiler.Ran(), ""
        with self._backend.count_launches(self._device) as launches, torch.no_grad():
            try:
                ran = profiler.profile(lambda: self._call_once({**order, "seed": 0}), order["calls"], self._device)
            except profiler.CallError as error:
                raise error.cause from None  # the candidate's own failure
            except Exception as error:  # the profiler's
                failed = f"{type(error).__name__}: {error}"[:500]
        self._launched |= launches.names
        defined = {name[: profiler.NAME] for name in native.demangled(native.loaded(self._scratch).defines)}
        own = self._launched | defined.intersection(name for name, *_ in ran.kernels)
        return {"kernels": ran.kernels, "averages": ran.averages, "own": sorted(own), "failed": failed}

    def do_survey(self, order: wire.Frame) -> wire.Frame:
        """Say what else may have done the work of a call: torch's operators, and libraries that its own code calls."""
        operators: list[str] = []
        with torch.no_grad(), contextlib.suppress(Exception):  # there is no label then
            operators = profiler.working_operators(lambda: self._call_once({**order, "seed": 0}))
            self._device.synchronize()
        needs = native.demangled(native.loaded(self._scratch).needs)
        return {"operators": operators, "libraries": sorted(filter(native.is_library_call, needs))}

    def _poison_free_memory(self) -> None:
        """Leave nothing useful in the blocks that outputs of the sizes seen so far will get: they start as NaN or -1."""
        if not self._earlier:
            return
        _, tensors = tree.flatten(self._earlier[0])
        blocks = [
            torch.empty(tensor.numel() * tensor.element_size(), dtype=torch.uint8, device=tensor.device).fill_(0xFF)
            for tensor in tensors
            for _ in range(_KEPT_ALIVE + 1)
            if tensor.numel() * tensor.element_size() <= _MOST_POISONED
        ]
        del blocks

    def _call_once(self, order: wire.Frame) -> Any:
        assert self._station is not None
        assert self._call is not None
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        arguments = self._station.arguments(order["structure"], specs)
        seeding.seed(self._device.torch_device, order["seed"])
        return self._call(*arguments)
