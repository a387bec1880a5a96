"""Shared startup and shutdown of both servers: gRPC server, health, reflection, metrics endpoint, logging, signals.

The `__main__` modules of scheduler and evaluator call these in this order: `configure_logging`, `exit_with_parent`,
`make_server`, `add_health_and_reflection`, `listen`, `start_metrics`, `print_ready`; then they wait for `Signals.stop`,
drain, and call `stop_server`. No service is defined here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from prometheus_client import CollectorRegistry, start_http_server

from kerneldyno.rpc import reflection, tls
from kerneldyno.rpc.channel import MAX_CONCURRENT_STREAMS, MAX_MESSAGE_BYTES, is_loopback, server_options
from kerneldyno.rpc.interceptor import ServerInterceptor

#: Open calls per server, including watches and evaluation streams.
MAX_CONCURRENT_CALLS = 2_000
#: Seconds that cancelled handlers have to end.
STUCK_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port to listen on."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read "HOST:PORT"; brackets around an IPv6 host are allowed."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or "/" in host or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(host.strip("[]"), int(port))

    @property
    def loopback(self) -> bool:
        """Return True if only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def make_server(interceptor: ServerInterceptor, *, max_message_bytes: int = MAX_MESSAGE_BYTES) -> grpc.aio.Server:
    """Return a server with KernelDyno's options; the caller adds services and a port, and starts it."""
    return grpc.aio.server(
        interceptors=[interceptor],
        options=server_options(max_message_bytes=max_message_bytes),
        maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
    )


def listen(server: grpc.aio.Server, address: Address, encryption: tls.ServerTls | None = None) -> Address:
    """Bind `server` to `address`, with TLS if `encryption` is given, and return the address with the real port.

    Raises:
        OSError: the port is in use or not permitted.
        CredentialsError: Certificate or key cannot be used.
    """
    credentials = tls.server_credentials(encryption) if encryption is not None else None
    try:
        if credentials is not None:
            port = server.add_secure_port(str(address), credentials)
        else:
            port = server.add_insecure_port(str(address))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {_why_not_bound(address) or error}") from error
    return Address(address.host, port)


def _why_not_bound(address: Address) -> str:
    """Return the reason that gRPC does not report, or "" if the port has become free."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        socket.create_server((address.host, address.port), family=family).close()
    except OSError as error:
        return _bind_error(error)
    return ""


def _bind_error(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "a service is already there; stop it, or choose another port (0 takes a free one)"
    return error.strerror or str(error)


async def add_health_and_reflection(
    server: grpc.aio.Server, services: Sequence[str], *, probes: Sequence[str] = ()
) -> HealthServicer:
    """Add gRPC health and reflection.

    Args:
        server: The server, not yet started.
        services: Full names of its services.
        probes: Further names for which health answers. They are no services, so reflection does not list them.

    Returns:
        The health servicer. Everything is SERVING: all names, and "", which is the server as a whole.
    """
    health: HealthServicer = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    for name in ("", *services, *probes):
        await health.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.add(server, (*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name))
    return health


class MetricsEndpoint:
    """Serve the Prometheus page of one registry on its own port; `address` has the real port."""

    def __init__(self, address: Address, registry: CollectorRegistry) -> None:
        try:
            self._server, self._thread = start_http_server(address.port, addr=address.host, registry=registry)
        except OSError as error:
            raise OSError(f"cannot serve metrics on {address}: {_bind_error(error)}") from error
        self.address = Address(address.host, self._server.server_port)

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def start_metrics(text: str, registry: CollectorRegistry) -> MetricsEndpoint | None:
    """Serve `registry` at `text` ("HOST:PORT"); return None if `text` is "off".

    Raises:
        OSError: the port is in use or not permitted.
    """
    return None if text == "off" else MetricsEndpoint(Address.parse(text), registry)


async def stop_server(server: grpc.aio.Server, health: HealthServicer, *, grace_seconds: float = 5.0) -> None:
    """Stop `server`: health reports NOT_SERVING, the port closes, and calls still open after the grace are cancelled.

    It may be called again. It does not wait for a handler that does not end, because the process is about to end.
    """
    await health.enter_graceful_shutdown()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace_seconds + STUCK_SECONDS):
            await server.stop(grace_seconds)


def limits() -> str:
    """Return the limits of a server as key=value, for its settings line."""
    return (
        f"max_message_bytes={MAX_MESSAGE_BYTES} max_concurrent_streams={MAX_CONCURRENT_STREAMS} "
        f"max_concurrent_calls={MAX_CONCURRENT_CALLS}"
    )


def print_ready(program: str, **fields: object) -> None:
    """Print the ready line that launchers wait for, for example `kerneldyno-scheduler ready grpc=127.0.0.1:50051`."""
    print(program, "ready", *(f"{key}={value}" for key, value in fields.items()), flush=True)


class Signals:
    """Turn SIGTERM and SIGINT into events: the first asks for a graceful stop, the second for an immediate one.

    Use it as a context manager inside the running loop; leaving the block removes the handlers.
    """

    _NUMBERS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def __enter__(self) -> Signals:
        for number in self._NUMBERS:
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number in self._NUMBERS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _received(self, number: signal.Signals) -> None:
        logging.getLogger(__name__).info("event=signal name=%s", number.name)
        (self.hurry if self.stop.is_set() else self.stop).set()


def configure_logging(level: str = "INFO") -> None:
    """Log `key=value` lines to standard error; standard output carries only the ready line."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("time=%(asctime)s.%(msecs)03dZ level=%(levelname)s logger=%(name)s %(message)s")
    formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def exit_with_parent() -> None:
    """Make the kernel send SIGTERM to this process when its parent ends. Call it early, from the main thread."""
    parent = os.getppid()
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("exit_with_parent must be called from the main thread")
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # the parent ended before the call above
        raise SystemExit(0)
