"""A sketch of a problem: the constructor's arguments and the shapes of a call's inputs, found without memory or device.

It is made in a process of its own, because a scout, in which a candidate runs, must not see the reference.
"""

from __future__ import annotations

import socket
from typing import Any

from ..shared import tree, wire
from ..shared.spec import ProblemSpec
from ..toolkits import toolkits


def run(channel: socket.socket, shared_fds: list[int], frame: wire.Frame, scratch: str) -> None:
    """Serve the builder on `channel`: one order, one answer. This runs inside the sandbox."""
    wire.send(channel, {"ok": "ready", "pace": 0.0})
    while (received := wire.receive(channel)) is not None:
        wire.send(channel, {"ok": _sketch(ProblemSpec.from_plain(received[0]["problem"]))})


def _sketch(spec: ProblemSpec) -> dict[str, Any] | None:
    """Return the sketch in plain values, or None if the problem cannot be sketched."""
    try:
        made = toolkits()[spec.toolkit].sketch(spec)
        if made is None:
            return None
        args, tensors = tree.flatten(list(made.init_args))
        kwargs, more = tree.flatten(made.init_kwargs)
        inputs, shapes = tree.flatten(list(made.inputs), is_sketch=True)
    except Exception:  # the judge will report it
        return None
    if tensors or more:
        return None
    return {
        "args": args,
        "kwargs": kwargs,
        "inputs": inputs,
        "specs": [tree.describe(tensor).to_json() for tensor in shapes],
        "precision": made.precision,
        "training": made.training,
        "cotangents": 0,
    }
