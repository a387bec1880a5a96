"""A fake builder and its zygote: real processes that speak the real protocol, but build nothing.

`fake_builder.py --control-fd N ...` is a builder, `fake_builder.py --fd N ...` a zygote. The `kernel_code` of a request
is a Python expression, which gives the fields of the builder's answer. Both end with their parent.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import sys

from kerneldyno.evaluator.shared import wire
from kerneldyno.evaluator.shared.messages import pack, unpack
from kerneldyno.v1 import evaluation_pb2 as pb

#: What an expression may name.
_NAMES = {"pack": pack, "pb": pb}


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--fd", "--control-fd", "--exit-with-parent"):
        parser.add_argument(flag, type=int)
    options, _ = parser.parse_known_args()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != options.exit_with_parent:
        sys.exit("orphan")
    control = socket.socket(fileno=options.fd if options.control_fd is None else options.control_fd)
    if options.control_fd is not None:
        wire.send(control, {"op": "ready"})
    while (received := wire.receive(control)) is not None and received[0]["op"] != "shutdown":
        if (order := received[0])["op"] == "build":
            fields = eval(unpack(pb.EvalRequest, order["request"]).kernel_code, _NAMES)
            wire.send(control, {"op": "built", "attempt": order["attempt"], **fields})


if __name__ == "__main__":
    main()
