"""A problem's process: one reference with its inputs, float64 runs and values, behind the walls of a candidate.

The judge sends orders, and this program answers them one by one. Tensors pass through two arenas of the judge: `inbox`
has what a call is made with, also if it was drawn here, and `outbox` takes what the call returned. What does not fit
waits until the judge has made that arena larger. Only this file and `reference.py` run references, and no candidate is
ever in either process.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Sequence
from typing import Any

import torch

from ..devices.base import Device
from ..shared import small_floats, tree, wire
from ..shared.out_of_memory import is_lack_of_memory
from ..shared.reference_failure import ReferenceFailure
from ..shared.running_problem import INBOX, OUTBOX, Call, Part, PreciseRun
from ..shared.spec import ProblemSpec
from ..shared.tracebacks import describe_error
from ..toolkits.base import REFERENCE_FILE
from ..toolkits.local import LocalProblem, build_local, store
from . import sandbox

#: Device memory that its allocator may keep for later, in bytes.
_MOST_IDLE_BYTES = 1 << 30


def run(channel: socket.socket, shared_fds: list[int], device: Device, memory_bytes: int) -> None:
    """Serve the judge on `channel` until it closes. `harness.run` calls this in a warm runner.

    Args:
        channel: The socket to the judge.
        shared_fds: The memory files that judge and runner share.
        device: The device.
        memory_bytes: Host memory that it may use.
    """
    if device.kind == "cpu":
        sandbox.limit_address_space(memory_bytes)
    server = _Server(device, shared_fds)
    while (received := wire.receive(channel)) is not None:
        server.begin(received[0])
        wire.send(channel, server.answer(received[0]))
        if device.idle_bytes() > _MOST_IDLE_BYTES:
            device.clear()  # it may be long until the next order, and others need the memory


class _Server:
    def __init__(self, device: Device, shared_fds: list[int]) -> None:
        self._device = device
        self._shared_fds = shared_fds
        self._problem: LocalProblem | None = None
        self._arenas: dict[int, torch.Tensor] = {}
        #: Where the next tensors go in their box, the box of those that are given now, and those that did not fit into it.
        self._next, self._box = 0, OUTBOX
        self._waiting: tuple[list[torch.Tensor], list[tree.TensorSpec]] = [], []
        #: Number of orders that the judge has sent together with this one.
        self._series = 1

    def begin(self, order: wire.Frame) -> None:
        """Forget the tensors of earlier orders: the judge has taken them, unless this one goes on with them."""
        index, self._series = order.get("series", (0, 1))
        if index == 0:
            self._next = 0
            if order["op"] not in ("arena", "store"):
                self._waiting = [], []

    def answer(self, order: wire.Frame) -> wire.Frame:
        """Execute one order, and return the answer to it."""
        try:
            return {"ok": getattr(self, f"do_{order['op']}")(order)}
        except BaseException as error:  # a reference may raise SystemExit
            answer = {"error": _described(error), "lacked_memory": _lacks_memory(error)}
            self._device.synchronize()  # an error of the device ends this process: it could not answer anything any more
            return answer

    def do_arena(self, order: wire.Frame) -> None:
        """Open an arena of the judge, in place of the earlier one with its number."""
        number = order["number"]
        if (earlier := self._arenas.pop(number, None)) is not None:
            self._device.leave_arena(earlier)
        del earlier
        if order["ticket"] is not None:
            self._arenas[number] = self._device.reach_arena(order["ticket"], self._shared_fds, number)

    def do_build(self, order: wire.Frame) -> wire.Frame:
        """Build the problem, and describe it."""
        self.do_limit(order)
        problem = self._problem = build_local(ProblemSpec.from_plain(order["problem"]), self._device, order["seed"])
        return {
            "symbol": problem.symbol,
            "instantiate": problem.instantiate,
            "init_args": problem.init_args,
            "init_kwargs": problem.init_kwargs,
            "init_seed": problem.init_seed,
            "precision": problem.precision,
            "training": problem.training,
            "workloads": list(problem.workloads),
            "cases": problem.cases,
            "constants": list(problem.constants),
            "parameter_bytes": problem.parameter_bytes,
            "input_bytes": problem.input_bytes,
            "construction_bytes": problem.construction_bytes,
            **self._late(),
        }

    def do_limit(self, order: wire.Frame) -> None:
        """Limit the device memory of this process. That is for honest references; a hostile one can undo it."""
        self._device.keep_within(order["memory_bytes"])

    def do_draw(self, order: wire.Frame) -> wire.Frame:
        """Draw one input set."""
        with self._ready.drawn(order["number"], order["seed"]) as (structure, tensors):
            given = self._give(tensors, INBOX, keep_layout=True)
            return {"structure": structure, **given, **self._late()}

    def do_draw_sets(self, order: wire.Frame) -> None:
        """Draw several sets into the inbox, which has room for them."""
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        _, size = tree.layout(specs)
        numbers = order["numbers"]
        region = self._arenas[INBOX][: len(numbers) * size].zero_()
        self._ready.draw_sets(numbers, order["seeds"], specs, torch.split(region, size))
        self._device.synchronize()

    def do_answer(self, order: wire.Frame) -> wire.Frame:
        """Call the reference on what lies in the inbox."""
        specs, region = self._posted(order)
        call = Call(order["number"], order["structure"], specs, region, order["seed"], order["measured"])
        found = self._ready.called(call)
        given = self._give(found.values)
        told = {"mutates": found.mutates, "aliased": found.aliased, "peak": found.peak}
        return {"structure": found.structure, **told, **given}

    def do_precise(self, order: wire.Frame) -> wire.Frame | None:
        """Run the reference in float64 on what lies in the inbox."""
        specs, region = self._posted(order)
        run = PreciseRun(order["structure"], tree.views(region, specs), order["seed"], order["bits"])
        (found,) = self._ready.precise([run])
        return None if found is None else {"structure": found[0], **self._give(found[1])}

    def do_count(self, order: wire.Frame) -> wire.Frame:
        """Count what a call on what lies in the inbox consists of."""
        specs, region = self._posted(order)
        return dataclasses.asdict(self._ready.count(order["structure"], specs, region, order["seed"]))

    def do_parameters(self, order: wire.Frame) -> list[list[Any]]:
        """List all parameters and buffers."""
        found = self._ready.parameters()
        return [[name, spec.to_json(), checksum] for name, (spec, checksum) in found.items()]

    def do_values(self, order: wire.Frame) -> wire.Frame:
        """Give parts of parameters and buffers."""
        with self._ready.values([Part(*part) for part in order["parts"]]) as values:
            return self._give(values)

    def do_constants(self, order: wire.Frame) -> wire.Frame:
        """Give the values of all constants."""
        return self._give(list(self._ready.constants.values()))

    def do_held(self, order: wire.Frame) -> int:
        """Return the device memory that is kept between calls, in bytes."""
        return self._ready.held_bytes

    def do_store(self, order: wire.Frame) -> None:
        """Store what did not fit into its box, which is larger now."""
        tensors, specs = self._waiting
        self._waiting = [], []
        self._store(tensors, specs, 0)

    @property
    def _ready(self) -> LocalProblem:
        assert self._problem is not None
        return self._problem

    def _late(self) -> wire.Frame:
        """Return what may become known when inputs are drawn for the first time."""
        gradients = self._ready.gradients
        return {
            "gradients": None if gradients is None else gradients.to_plain(),
            "buffers": list(self._ready.buffers),
            "drawing_bytes": self._ready.drawing_bytes,
        }

    def _posted(self, order: wire.Frame) -> tuple[list[tree.TensorSpec], torch.Tensor]:
        """Return how the inputs of an order lie in the inbox, and the part of it that they take."""
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        return specs, self._arenas[INBOX][order["begin"] :][: tree.layout(specs)[1]]

    def _give(self, tensors: Sequence[torch.Tensor], box: int = OUTBOX, *, keep_layout: bool = False) -> wire.Frame:
        """Put tensors into a box if they fit, and describe them."""
        self._box = box
        specs = [tree.describe(tensor, keep_layout=keep_layout) for tensor in tensors]
        arena, nbytes = self._arenas.get(box), tree.layout(specs)[1]
        stored = arena is not None and self._next + nbytes <= arena.numel()
        if stored:
            self._store(tensors, specs, self._next)
            self._next += nbytes
        else:
            # The next order of a series may write to the same memory.
            self._waiting[0].extend(map(small_floats.cloned, tensors) if self._series > 1 else tensors)
            self._waiting[1].extend(specs)
        return {"tensors": [spec.to_json() for spec in specs], "stored": stored}

    def _store(self, tensors: Sequence[torch.Tensor], specs: Sequence[tree.TensorSpec], begin: int) -> None:
        store(tensors, specs, self._arenas[self._box][begin:])
        self._device.synchronize()


def _described(error: BaseException) -> wire.Frame:
    """Return the failure in plain values: where it happened, and the exception of the reference."""
    if isinstance(error, ReferenceFailure):
        return {"stage": error.stage, **dataclasses.asdict(error.error)}
    return {"stage": "reference", **dataclasses.asdict(describe_error(error, REFERENCE_FILE))}


def _lacks_memory(error: BaseException) -> bool:
    return error.lacked_memory if isinstance(error, ReferenceFailure) else is_lack_of_memory(error)
