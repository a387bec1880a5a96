"""The gateway's process: binds its port, serves until SIGINT or SIGTERM, and closes in order."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from kerneldyno.gateway.app import Gateway, Settings
from kerneldyno.rpc.channel import is_loopback
from kerneldyno.rpc.errors import CredentialsError

#: How long answers that are under way may take to end when the gateway is stopped, in seconds.
GRACE_SECONDS = 5
#: WebSocket pings, in seconds: a trainer whose event loop is held up for a minute is not gone.
PING_SECONDS, PONG_SECONDS = 30.0, 120.0


def check_address(listen: str, *, insecure: bool) -> tuple[str, int]:
    """Return host and port of `listen`.

    Raises:
        ValueError: it is not HOST:PORT.
        CredentialsError: others than this machine would reach it, and `insecure` does not allow that.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{listen!r} is not HOST:PORT")
    if not insecure and not is_loopback(host):
        raise CredentialsError(
            f"--listen {listen} would let others in, without TLS or tokens: listen on 127.0.0.1 (and let ssh -L bring "
            "trainers there), or say --insecure if everybody who reaches this port may run code on the evaluators"
        )
    return host.strip("[]"), int(port)


def serve(settings: Settings, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal. `ready` is called with the address once the port is open.

    Raises:
        OSError: the port is taken or may not be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2_048)
        bound = listener.getsockname()[1]
        config = uvicorn.Config(
            Gateway(settings).app,
            log_level="warning",
            access_log=False,
            lifespan="on",
            ws="websockets-sansio",
            ws_max_size=settings.limits.max_body_bytes,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PONG_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        ready(f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}")
        uvicorn.Server(config).run(sockets=[listener])
