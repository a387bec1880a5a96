"""`python -m kerneldyno.evaluator.judge`: the judge of one device. The evaluator server starts it; nobody does by hand."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from importlib import metadata

from kerneldyno.rpc.version import VERSION

from ..shared import wire
from ..shared.startup import die_with, see_only

#: Size in MiB of the pieces in which the judge's allocator maps device memory (torch's own: 20), and the first version
#: of torch with this setting.
_SEGMENT_MIB = 128
_LARGER_SEGMENTS = (2, 11)


def main() -> int:
    """Serve until the server closes the connection, and return the exit status."""
    parser = argparse.ArgumentParser(description="Judges candidates on one device.")
    parser.add_argument("--control-fd", type=int, required=True, help="socket to the evaluator server")
    parser.add_argument("--zygote-fd", type=int, required=True, help="socket to the zygote")
    parser.add_argument("--device", required=True, help="cpu:0 or cuda:N")
    parser.add_argument("--node-id", default="")
    parser.add_argument("--sandbox", choices=("auto", "require", "off"), default="auto")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--number", type=int, default=0, help="the device's number among those of its server")
    parser.add_argument("--devices", type=int, default=1, help="the number of devices of its server")
    parser.add_argument("--memory-bytes", type=int, default=0, help="host memory of one candidate; 0 derives it")
    parser.add_argument("--reference-seconds", type=float, default=120.0, help="limit for one order to a reference")
    parser.add_argument(
        "--host-bytes",
        type=int,
        default=0,
        help="host memory of all that candidates may use beyond that; 0 measures it",
    )
    parser.add_argument("--exit-with-parent", type=int, default=0, metavar="PID")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    if args.exit_with_parent:
        die_with(args.exit_with_parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    see_only(args.device)
    return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    # Trainers like to set CUDA_DEVICE_MAX_CONNECTIONS=1. With a single queue to the device, work that waits at a gate
    # would block the work that opens the gate. Problems of all sizes come and go; without expandable segments, the
    # remains of large blocks add up to tens of gigabytes. Each segment is mapped by four calls of the driver, for each
    # of which all GPUs of the host wait for one lock; so they are large where torch can make them so.
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    larger = f",large_segment_size_mb:{_SEGMENT_MIB}" if _torch_version() >= _LARGER_SEGMENTS else ""
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", f"expandable_segments:True{larger}")
    # Import torch only now: it reads the environment when it is imported. Objects of imported modules stay alive, so
    # garbage collection would only cost time.
    gc.disable()
    import torch

    from ..devices import hostmemory, open_device
    from .comparison import fused
    from .service import Service, Settings

    gc.enable()
    zygote = socket.socket(fileno=args.zygote_fd)
    device = open_device("cpu:0" if args.device.startswith("cpu") else "cuda:0")
    device.warm_up()
    hostmemory.limit_own(hostmemory.allowance())  # the judge's own allocations beyond that fail, and nothing else does
    # Import and compile now what takes seconds at its first use, while the zygote does the same. Few problems of the CPU
    # device need what the first line imports, so there it is imported when it is needed.
    if device.kind != "cpu":
        torch.randn(2, device="meta") * 2
    fused.warm_up(device.torch_device)
    if wire.receive(zygote) is None:
        sys.exit("the zygote ended before it was ready")
    gc.freeze()
    settings = Settings(
        device_name=args.device,
        node_id=args.node_id,
        sandbox=args.sandbox,
        lanes=args.lanes,
        spares=args.spares,
        memory_bytes=args.memory_bytes or _fair_memory(device.kind, hostmemory.total(), args.lanes + args.spares),
        host_bytes=args.host_bytes,
        version=VERSION,
        reference_seconds=args.reference_seconds,
        share=(args.number, args.devices),
    )
    return asyncio.run(Service(settings, device, zygote).serve(socket.socket(fileno=args.control_fd)))


def _torch_version() -> tuple[int, ...]:
    """Return major and minor version of torch without importing it."""
    return tuple(int(part) for part in metadata.version("torch").split(".")[:2])


def _fair_memory(kind: str, total: int, runners: int) -> int:
    """Return how much of a host's `total` memory a candidate may use whose problem needs no more, in bytes.

    Problems of the CPU device are small; nvcc on a GPU node is not.
    """
    if kind == "cpu":
        return 2 << 30
    return min(32 << 30, max(4 << 30, total // (runners + 2)))


if __name__ == "__main__":
    # Neither torch nor Triton's bindings end quietly, and they leave nothing to wait for.
    status = main()
    sys.stderr.flush()
    os._exit(status)
