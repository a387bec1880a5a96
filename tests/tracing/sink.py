"""A collector that accepts all spans and does not read them, for the benchmark of docs/tracing.md.

    python -m tests.tracing.sink [PORT]

prints its endpoint. On SIGINT it ends, and prints how many batches and bytes it received.
"""

from __future__ import annotations

import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc


def main() -> None:
    sizes: list[int] = []

    def take(request: bytes, context: grpc.ServicerContext) -> bytes:
        sizes.append(len(request))
        return b""

    server = grpc.server(ThreadPoolExecutor(1))
    export: dict[str, Any] = {"Export": grpc.unary_unary_rpc_method_handler(take)}
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, export),))
    port = server.add_insecure_port(f"127.0.0.1:{sys.argv[1] if len(sys.argv) > 1 else 0}")
    server.start()
    print(f"http://127.0.0.1:{port}", flush=True)
    ended = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: ended.set())
    ended.wait()
    print(f"{len(sizes)} batches, {sum(sizes)} bytes")


if __name__ == "__main__":
    main()
