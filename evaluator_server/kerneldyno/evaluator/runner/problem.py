"""A problem's process: one reference with its inputs, float64 runs and values, behind the walls of a candidate.

The judge sends orders, and this program answers them one by one. Tensors pass through two arenas of the judge: `inbox`
has what a call is made with, and `outbox` takes what it returned. What does not fit into the outbox waits until the judge
has made it larger. Only this file and `reference.py` run references, and no candidate is ever in either process.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import socket
from collections.abc import Sequence
from typing import Any

import torch

from ..devices import open_device
from ..devices.base import Device
from ..shared import tree, wire
from ..shared.out_of_memory import is_lack_of_memory
from ..shared.reference_failure import ReferenceFailure
from ..shared.running_problem import INBOX, OUTBOX, Part
from ..shared.spec import ProblemSpec
from ..shared.tracebacks import describe_error
from ..toolkits.base import REFERENCE_FILE
from ..toolkits.local import LocalProblem, build_local, store
from . import sandbox


def run(channel: socket.socket, shared_fds: list[int], frame: wire.Frame, scratch: str) -> None:
    """Serve the judge on `channel` until it closes. This runs inside the sandbox; see `harness.run`."""
    faulthandler.enable()
    device = open_device(str(frame["device"]))
    wire.send(channel, {"ok": "forked"})
    if wire.receive(channel) is None:  # the judge says when the device may be opened
        return
    device.warm_up()
    if device.kind == "cpu":
        sandbox.limit_address_space(int(frame["memory_bytes"]))
    server = _Server(device, shared_fds)
    wire.send(channel, {"ok": "ready", "pace": 0.0})
    while (received := wire.receive(channel)) is not None:
        order = received[0]
        try:
            answer = {"ok": getattr(server, f"do_{order['op']}")(order)}
        except BaseException as error:  # a reference may raise SystemExit
            answer = {"error": _described(error), "lacked_memory": _lacks_memory(error)}
            device.synchronize()  # an error of the device ends this process: it could not answer anything any more
        wire.send(channel, answer)


class _Server:
    def __init__(self, device: Device, shared_fds: list[int]) -> None:
        self._device = device
        self._shared_fds = shared_fds
        self._problem: LocalProblem | None = None
        self._arenas: dict[int, torch.Tensor] = {}
        #: What did not fit into the outbox.
        self._waiting: tuple[list[torch.Tensor], list[tree.TensorSpec]] = [], []

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
        structure, tensors = self._ready.draw(order["number"], order["seed"])
        return {"structure": structure, **self._give(tensors, keep_layout=True), **self._late()}

    def do_draw_sets(self, order: wire.Frame) -> None:
        """Draw several sets into the outbox, which has room for them."""
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        _, size = tree.layout(specs)
        numbers = order["numbers"]
        region = self._arenas[OUTBOX][: len(numbers) * size].zero_()
        self._ready.draw_sets(numbers, order["seeds"], specs, region)
        self._device.synchronize()

    def do_answer(self, order: wire.Frame) -> wire.Frame:
        """Call the reference on what lies in the inbox."""
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        region = self._arenas[INBOX][: tree.layout(specs)[1]]
        found = self._ready.answer(
            order["number"], order["structure"], specs, region, order["seed"], measured=order["measured"]
        )
        given = self._give(found.values)
        told = {"mutates": found.mutates, "aliased": found.aliased, "peak": found.peak}
        return {"structure": found.structure, **told, **given}

    def do_precise(self, order: wire.Frame) -> wire.Frame | None:
        """Run the reference in float64 on what lies in the inbox."""
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        tensors = tree.views(self._arenas[INBOX], specs)
        found = self._ready.precise(order["structure"], tensors, order["seed"], order["bits"])
        return None if found is None else {"structure": found[0], **self._give(found[1])}

    def do_count(self, order: wire.Frame) -> wire.Frame:
        """Count what a call on what lies in the inbox consists of."""
        specs = [tree.TensorSpec.from_json(spec) for spec in order["specs"]]
        region = self._arenas[INBOX][: tree.layout(specs)[1]]
        return dataclasses.asdict(self._ready.count(order["structure"], specs, region, order["seed"]))

    def do_parameters(self, order: wire.Frame) -> list[list[Any]]:
        """List all parameters and buffers."""
        found = self._ready.parameters()
        return [[name, spec.to_json(), checksum] for name, (spec, checksum) in found.items()]

    def do_values(self, order: wire.Frame) -> wire.Frame:
        """Give parts of parameters and buffers."""
        return self._give(self._ready.values([Part(*part) for part in order["parts"]]))

    def do_constants(self, order: wire.Frame) -> wire.Frame:
        """Give the values of all constants."""
        return self._give(list(self._ready.constants.values()))

    def do_held(self, order: wire.Frame) -> int:
        """Return the device memory that is kept between calls, in bytes."""
        return self._ready.held_bytes

    def do_store(self, order: wire.Frame) -> None:
        """Store what did not fit into the outbox, which is larger now."""
        tensors, specs = self._waiting
        self._waiting = [], []
        self._store(tensors, specs)

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

    def _give(self, tensors: Sequence[torch.Tensor], *, keep_layout: bool = False) -> wire.Frame:
        """Put tensors into the outbox if they fit, and describe them."""
        specs = [tree.describe(tensor, keep_layout=keep_layout) for tensor in tensors]
        outbox = self._arenas.get(OUTBOX)
        stored = outbox is not None and tree.layout(specs)[1] <= outbox.numel()
        if stored:
            self._store(tensors, specs)
        else:
            self._waiting = list(tensors), specs
        return {"tensors": [spec.to_json() for spec in specs], "stored": stored}

    def _store(self, tensors: Sequence[torch.Tensor], specs: Sequence[tree.TensorSpec]) -> None:
        store(tensors, specs, self._arenas[OUTBOX])
        self._device.synchronize()


def _described(error: BaseException) -> wire.Frame:
    """Return the failure in plain values: where it happened, and the exception of the reference."""
    if isinstance(error, ReferenceFailure):
        return {"stage": error.stage, **dataclasses.asdict(error.error)}
    return {"stage": "reference", **dataclasses.asdict(describe_error(error, REFERENCE_FILE))}


def _lacks_memory(error: BaseException) -> bool:
    return error.lacked_memory if isinstance(error, ReferenceFailure) else is_lack_of_memory(error)
