"""The harness: the code of ours in the candidate's own process. It can therefore not be trusted.

It executes the judge's orders, one frame each: open the arenas, load the candidate, construct it, call it, run bursts.
It has neither the expected values nor the reference nor the clock; a candidate that takes over the harness can only
make itself fail. Each frame gets one answer: {"ok": ...}, or {"error": ...} with a traceback of the candidate's own
lines. A burst behind a gate gets two answers, the first when the whole burst is queued.

The same harness, in a runner without a candidate, times references (`reference.py`). So a reference and a candidate
with the same code take the same time. A runner can also be told to run a problem instead (`problem.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from ..backends import Backend, Launches, backends
from ..devices import open_device, seeding, timed_loops
from ..devices.base import Device, Gate
from ..devices.signals import Signals
from ..shared import modules, small_floats, tree, wire
from ..shared.buffers import in_mode, whole_call
from ..shared.gradients import Gradients
from ..shared.spec import ProblemSpec, TimedForm
from ..shared.tracebacks import CANDIDATE_FILE, describe_error
from . import binaries, guards, native, parameters, probe, problem, profiler, reference, sandbox
from .candidate_source import import_candidate

#: How many outputs of earlier calls are kept, if there are slots for them, to check that they do not change.
_KEPT_ALIVE = 2
#: Outputs larger than this (bytes) are not poisoned, because poisoning would take too much memory.
_MOST_POISONED = 256 << 20


def preload(kind: str) -> None:
    """Prepare what every harness on this kind of device needs. The zygote calls this once."""
    for backend in backends().values():
        backend.preload(kind)
    reference.preload()


def run(channel: socket.socket, shared_fds: list[int], frame: wire.Frame, scratch: str) -> None:
    """Serve the judge on `channel` until it closes. This runs inside the sandbox.

    Args:
        channel: The socket to the judge.
        shared_fds: The memory files that judge and runner share.
        frame: The judge's request for this runner.
        scratch: The runner's scratch directory.
    """
    faulthandler.enable()
    device = open_device(str(frame["device"]))
    wire.send(channel, {"ok": "forked"})
    if wire.receive(channel) is None:  # the judge says when the device may be opened
        return
    device.warm_up()
    device.divide_memory()
    for backend in backends().values():
        backend.warm_up(device)
    harness = _Harness(device, shared_fds, scratch, channel)
    # Nobody is timed under a tool, and one of them takes memory that was written and freed for written memory.
    pace = None if frame.get("tool") else device.pace()
    wire.send(channel, {"ok": "ready", "pace": pace.cycles if pace else 0.0})
    while (received := wire.receive(channel)) is not None:
        order = received[0]
        if order["op"] == "end":  # only an inspection ends by itself: a tool writes its report then
            return
        if order["op"] == "run_problem":  # then no candidate comes
            problem.run(channel, shared_fds, device, order["memory_bytes"])
            return
        try:
            answer = {"ok": getattr(harness, f"do_{order['op']}")(order)}
        except BaseException as error:  # a candidate's SystemExit or KeyboardInterrupt is its failure
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
        self._empty_call: Callable[..., Any] | None = None
        self._replays: list[Callable[[], Any]] = []
        self._station: timed_loops.Station | None = None
        self._arena_out: torch.Tensor | None = None
        self._signals: Signals | None = None
        self._gate: Gate | None = None
        #: The settings that apply during timed calls. A reference has its own settings of torch.
        self._settings_context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        #: Name of the source whose lines tracebacks show.
        self.file = CANDIDATE_FILE
        self._earlier: deque[Any] = deque(maxlen=_KEPT_ALIVE)
        self._construction: parameters.Construction | None = None
        #: Names of all kernels of the candidate that were launched so far, since CUDA graphs may launch them again.
        self._launched: set[str] = set()
        #: The kernels that the last call launched, as its backend knows them, and names of all that ran in a profile.
        self._kernels: list[Any] = []
        self._ran: set[str] = set()

    def do_arenas(self, order: wire.Frame) -> None:
        """Open the judge's memory, the page of signals and the gate. On the CPU, limit this process's memory first."""
        if self._device.kind == "cpu":
            sandbox.limit_address_space(order["host_bytes"])
        arena_in, arena_out = (
            self._device.reach_arena(ticket, self._shared_fds, number) for number, ticket in enumerate(order["tickets"])
        )
        self._signals = self._device.signals(self._shared_fds)
        self._gate = self._device.gate(self._signals, queues=True)
        for descriptor in self._shared_fds:
            os.close(descriptor)  # not needed: mmap keeps its own copy; seals stay in force
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        self._station = timed_loops.Station.over(
            self._device,
            order["structure"],
            specs,
            arena_in,
            arena_out,
            sets=order["sets"],
            slots=order["slots"],
            slot_bytes=order["slot_bytes"],
        )
        self._arena_out = arena_out
        self._earlier = deque(maxlen=min(_KEPT_ALIVE, order["slots"] - 1))
        if order["memory_bytes"]:  # for honest candidates; a hostile one can undo it
            kept = (self._earlier.maxlen or 0) * self._station.outputs[0].nbytes  # they do not count as the candidate's
            self._device.keep_within(order["memory_bytes"] + kept)

    def do_divide(self, order: wire.Frame) -> None:
        """Divide the memory for outputs anew: timed outputs may be smaller than others, and more of them are needed."""
        assert self._station is not None
        assert self._arena_out is not None
        self._station = self._station.divided(self._arena_out, order["slots"], order["slot_bytes"])

    def do_load(self, order: wire.Frame) -> wire.Frame:
        """Import the candidate's source as a module. Libraries that were built for it are given in the order."""
        self._backend = backends()[order["backend"]]
        self._backend.prepare(self._device)
        if order["libraries"] or order["failures"] or order["native"]:
            from . import libraries  # it imports torch's machinery for extensions

            libraries.use(order["libraries"], order["failures"], order["native"], self._scratch)
        self._module = import_candidate(order["source"], order["files"], self._scratch)
        return {"defines": hasattr(self._module, order["symbol"])}

    def do_probe(self, order: wire.Frame) -> list[list[Any]]:
        """Try to break out of the sandbox, before a candidate is loaded, and return which layers held."""
        return [[layer.name, layer.active, layer.detail] for layer in probe.probe(order["outside"], self._device)]

    def do_construct(self, order: wire.Frame) -> wire.Frame:
        """Make the callable: an instance of the candidate's class under the reference's own seed, or a function.

        Return the instance's constant tensors if `listing` is set.
        """
        target = getattr(self._module, order["symbol"])
        self._call = self._construction = None  # free the earlier instance first
        if not order["instantiate"] and not isinstance(target, type):
            self._call = _whole_call(target, order)
            return {"state": []}
        self._construction = parameters.Construction(
            target,
            order["args"],
            order["kwargs"],
            order["seed"],
            self._device.torch_device,
            order["precision"],
            lambda: self._blank(order),
        )
        assert self._backend is not None
        with self._backend.count_launches(self._device) as launches:
            self._call = _whole_call(self._construction.make(), order)
        self._note(launches)
        return {"state": self._construction.constants() if order["listing"] else []}

    def do_reconstruct(self, order: wire.Frame) -> None:
        """Make the instance again, with the values from the arena for some of its tensors."""
        assert self._construction is not None
        assert self._station is not None
        specs = [tree.TensorSpec.from_json(spec) for _, spec in order["state"]]
        values = [small_floats.cloned(value) for value in tree.views(self._station.arena, specs)]
        names = [name for name, _ in order["state"]]
        self._device.synchronize()  # after the answer the judge overwrites the values with inputs
        self._call = _whole_call(self._construction.make_with(dict(zip(names, values, strict=True))), order)

    def do_parameters(self, order: wire.Frame) -> wire.Frame:
        """Return all parameters and buffers of the instance."""
        return {"parameters": [] if self._construction is None else self._construction.listing()}

    def do_adopt(self, order: wire.Frame) -> None:
        """Set parts of parameters and buffers to the values in the arena."""
        assert self._construction is not None
        assert self._station is not None
        specs = [tree.TensorSpec.from_json(spec) for _, _, spec in order["parts"]]
        with torch.no_grad():
            for (name, start, _), values in zip(order["parts"], tree.views(self._station.arena, specs), strict=True):
                self._construction.assign(name, start, values)
        self._device.synchronize()

    def do_call(self, order: wire.Frame) -> wire.Frame:
        """Call the candidate with inputs that lie in the judge's memory, and store its result in the first slot.

        Store the results of the calls before, as they are now, in the next slots: a result must not change later.
        """
        assert self._backend is not None
        self._poison_free_memory()
        counting = self._backend.suppress_launches if order["ghost"] else self._backend.count_launches
        guarding = guards.guarded(self._device) if order["guarded"] else contextlib.nullcontext()
        with counting(self._device) as launches, torch.no_grad():
            begin = time.perf_counter()
            with self._device.nonzero_memory(), guarding as zones:
                result = self._call_once(order)
            self._device.synchronize()
            seconds = time.perf_counter() - begin
            assert self._station is not None
            structure, returned = self._station.store(result, 0)
            for slot, earlier in enumerate(self._earlier, 1):
                # torch refuses to read a tensor that one of its CUDA graphs has overwritten, and the candidate may have
                # changed an output into something that cannot be stored.
                with contextlib.suppress(RuntimeError, tree.UnsupportedValueError):
                    self._station.store(earlier, slot)
            self._device.synchronize()
        self._earlier.appendleft(result)
        self._note(launches)
        specs = [tree.describe(tensor).to_json() for tensor in returned]
        answer = {"structure": structure, "specs": specs, "launches": launches.count, "seconds": seconds}
        return {**answer, "broken": zones.broken() if zones else []}

    def do_build(self, order: wire.Frame) -> wire.Frame:
        """Build a reference instead of loading a candidate. Return whether it can be timed."""
        self.file = reference.FILE
        self._call, self._settings_context = reference.build(
            ProblemSpec.from_plain(order["problem"]),
            TimedForm.from_plain(order["form"]),
            order["seed"],
            order["buffers"],
            self._device,
        )
        return {"timed": self._call is not None}

    def do_nothing(self, order: wire.Frame) -> None:
        """Prepare a call that does nothing and returns tensors of this description: zeros, or views of the inputs."""
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
        self._empty_call = lambda *_: answer

    def do_settle(self, order: wire.Frame) -> None:
        """Prepare for timing: run on the processor that both sides share, and free memory kept from earlier calls."""
        self._run_on(order["processor"])
        self._earlier.clear()
        gc.collect()
        self._device.settle()

    def do_place(self, order: wire.Frame) -> None:
        """Run on another processor from now on. If `memory` is given, move memory that is kept for later calls, too."""
        self._run_on(order["processor"])
        if order["memory"]:
            self._earlier.clear()
            with self._settings_context():
                self._device.displace(order["memory"])

    @staticmethod
    def _run_on(processor: int | None) -> None:
        if processor is not None:
            with contextlib.suppress(OSError):  # this process may not use that processor
                os.sched_setaffinity(0, {processor})

    def do_capture(self, order: wire.Frame) -> bool:
        """Make bursts replay CUDA graphs of the call if possible, and return whether it is."""
        assert self._station is not None
        assert self._call is not None
        with self._settings_context(), torch.no_grad():
            self._replays = timed_loops.capture(self._call, self._station, order["count"])
            self._device.synchronize()
        return bool(self._replays)

    def do_burst(self, order: wire.Frame) -> list[float]:
        """Run one burst. The judge has the clock; these times only refine it."""
        call = self._empty_call if order["nothing"] else self._call
        assert self._station is not None
        assert self._signals is not None
        assert call is not None
        self._earlier.clear()
        plan = timed_loops.Plan(order["sets"], order["slots"], order["seeds"], order["cold"])
        replays = self._replays if order["replay"] else []
        if replays and order["nothing"]:
            replays = [call] * len(self._replays)
        with self._settings_context(), torch.no_grad():
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

    def do_work(self, order: wire.Frame) -> int:
        """Make calls without a pause for some seconds, keep nothing of them, and return their number."""
        assert self._station is not None
        assert self._call is not None
        until = time.perf_counter() + order["seconds"]
        with self._settings_context(), torch.no_grad():
            made = timed_loops.work(self._call, self._station, self._replays)
            calls = next(number for number in made if time.perf_counter() > until)
            self._device.synchronize()
        return calls

    def do_profile(self, order: wire.Frame) -> wire.Frame:
        """Return which kernels a few calls ran, and which of them are the candidate's; none if the profiler fails."""
        assert self._backend is not None
        ran, failed = profiler.Ran(), ""
        with self._backend.count_launches(self._device) as launches, torch.no_grad():
            try:
                ran = profiler.profile(lambda: self._call_once({**order, "seed": 0}), order["calls"], self._device)
            except profiler.CallError as error:
                raise error.cause from None  # the candidate's own failure
            except Exception as error:  # the profiler's failure
                failed = f"{type(error).__name__}: {error}"[:500]
        self._note(launches)
        self._ran = {name for name, *_ in ran.kernels}
        defined = {name[: profiler.NAME] for name in native.demangled(native.loaded(self._scratch).defines)}
        own = self._launched | (defined & self._ran)
        return {"kernels": ran.kernels, "averages": ran.averages, "own": sorted(own), "failed": failed}

    def do_inspect(self, order: wire.Frame) -> wire.Frame:
        """Call the candidate while a tool watches, on copies of the inputs. Return the names of its own kernels.

        Each copy has memory of its own, so the tool knows where it ends. The memory of inputs in the arena is the judge's.
        """
        assert self._backend is not None
        assert self._station is not None
        assert self._call is not None
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        structure, tensors = tree.flatten(self._station.arguments(order["structure"], specs))
        arguments = tree.rebuild(structure, list(map(small_floats.cloned, tensors)), self._device.torch_device)
        seeding.seed(self._device.torch_device, order["seed"])
        self._device.synchronize()
        with self._backend.count_launches(self._device) as launches, torch.no_grad(), self._device.watched():
            self._call(*arguments)
            self._device.synchronize()
        defined = native.demangled(native.loaded(self._scratch).defines)
        return {"own": sorted({name[: profiler.NAME] for name in (*self._launched, *launches.names, *defined)})}

    def do_survey(self, order: wire.Frame) -> wire.Frame:
        """Return what else may have done the work of a call: torch's operators, and libraries called by native code."""
        assert self._backend is not None
        operators: list[str] = []
        ignored = contextlib.suppress(Exception)  # without operators there is no label
        with self._backend.count_launches(self._device) as launches, torch.no_grad(), ignored:
            operators = profiler.working_operators(lambda: self._call_once({**order, "seed": 0}))
            self._device.synchronize()
        self._note(launches)
        needs = native.demangled(native.loaded(self._scratch).needs)
        return {"operators": operators, "libraries": sorted(filter(native.is_library_call, needs))}

    def do_listing(self, order: wire.Frame) -> wire.Frame:
        """Return what compilers made of the candidate's kernels, and their code if the order asks for it."""
        assert self._backend is not None
        compiled = [self._backend.describe(kernel) for kernel in self._kernels[: binaries.MOST_KERNELS]]
        wanted = binaries.Wanted(order["ptx"], order["sass"], order["seconds"], self._device.architecture)
        return binaries.listing(self._backend.name, compiled, self._scratch, self._ran, wanted)

    def _note(self, launches: Launches) -> None:
        """Remember which kernels a call has launched. Replays of CUDA graphs do not say which they launch."""
        self._launched |= launches.names
        self._kernels = list(launches.kernels.values()) or self._kernels

    def _poison_free_memory(self) -> None:
        """Fill free memory that later outputs may get with 0xFF (NaN or -1), so that it holds no useful values."""
        if not self._earlier:
            return
        tensors: list[torch.Tensor] = []
        with contextlib.suppress(tree.UnsupportedValueError):  # the candidate has changed it since
            _, tensors = tree.flatten(self._earlier[0])
        blocks = [
            torch.empty(tensor.numel() * tensor.element_size(), dtype=torch.uint8, device=tensor.device).fill_(0xFF)
            for tensor in tensors
            for _ in range(_KEPT_ALIVE + 1)
            if tensor.numel() * tensor.element_size() <= _MOST_POISONED
        ]
        del blocks

    def _blank(self, order: wire.Frame) -> list[Any]:
        """Return the arguments of a forward pass, with zeros for all values."""
        assert self._station is not None
        specs = [tree.describe(tensor) for tensor in self._station.inputs[0]]
        arguments = modules.blank(self._station.structure, specs, self._device.torch_device)
        gradients = Gradients.from_plain(order["gradients"])
        return arguments[: len(arguments) - gradients.outputs] if gradients else arguments

    def _call_once(self, order: wire.Frame) -> Any:
        assert self._station is not None
        assert self._call is not None
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        arguments = self._station.arguments(order["structure"], specs)
        seeding.seed(self._device.torch_device, order["seed"])
        return self._call(*arguments)


def _whole_call(module: Any, order: wire.Frame) -> Callable[..., Any]:
    """Return what a call of the candidate is: its module in the mode of the problem, with gradients and buffers."""
    module = in_mode(module, order["training"])
    return whole_call(module, Gradients.from_plain(order["gradients"]), order["buffers"] or None)
