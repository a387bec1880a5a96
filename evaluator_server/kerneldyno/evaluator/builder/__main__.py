"""`python -m kerneldyno.evaluator.builder`: the builder of a node. The evaluator server starts it; nobody does by hand."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from ..shared import wire
from ..shared.startup import die_with, see_only


def main() -> int:
    """Serve until the server closes the connection, and return the exit status."""
    parser = argparse.ArgumentParser(description="Builds native code of candidates.")
    parser.add_argument("--control-fd", type=int, required=True, help="socket to the evaluator server")
    parser.add_argument("--zygote-fd", type=int, required=True, help="socket to the zygote")
    parser.add_argument("--places", type=int, required=True, help="builds at once")
    parser.add_argument("--cache", type=Path, required=True, help="directory of the build cache")
    parser.add_argument("--cache-bytes", type=int, required=True)
    parser.add_argument("--architecture", default="", help="of the GPUs, as in TORCH_CUDA_ARCH_LIST; empty without any")
    parser.add_argument("--sandbox", choices=("auto", "require", "off"), default="auto")
    parser.add_argument("--exit-with-parent", type=int, default=0, metavar="PID")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    if args.exit_with_parent:
        die_with(args.exit_with_parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    see_only("cpu:0")  # no GPU
    return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    gc.disable()  # objects of imported modules stay alive
    from ..devices import open_device
    from .cache import BuildCache, CacheError
    from .service import EXIT_FATAL, Service
    from .toolchain import Toolchain

    gc.enable()
    control, zygote = socket.socket(fileno=args.control_fd), socket.socket(fileno=args.zygote_fd)
    try:
        cache = BuildCache(args.cache, args.cache_bytes)
    except CacheError as error:
        wire.send(control, {"op": "fatal", "detail": str(error)})
        return EXIT_FATAL
    if wire.receive(zygote) is None:
        sys.exit("the zygote ended before it was ready")
    gc.freeze()
    service = Service(
        open_device("cpu:0"),
        zygote,
        cache=cache,
        toolchain=Toolchain(args.architecture),
        places=args.places,
        memory_bytes=_fair_memory(args.places),
        sandbox=args.sandbox,
    )
    return asyncio.run(service.serve(control))


def _fair_memory(places: int) -> int:
    """Return host memory for one build, in bytes. nvcc needs one to two GiB, and more for CUTLASS."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(16 << 30, max(4 << 30, total // (places + 2)))


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)
