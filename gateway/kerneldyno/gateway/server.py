"""The process of the gateway: binds its port, serves until SIGINT or SIGTERM, and closes in order."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from kerneldyno.gateway.app import Gateway, Settings
from kerneldyno.gateway.refusals import ListenAddressError
from kerneldyno.rpc.channel import is_loopback
from kerneldyno.rpc.errors import CredentialsError

#: How long running requests may take to finish when the gateway stops, in seconds.
GRACE_SECONDS = 5
#: Interval and timeout of WebSocket pings, in seconds: a trainer's event loop may be blocked for a minute.
PING_SECONDS, PONG_SECONDS = 30.0, 120.0


def check_address(listen: str, *, insecure: bool) -> tuple[str, int]:
    """Return host and port of `listen`.

    Raises:
        ListenAddressError: `listen` is not HOST:PORT.
        CredentialsError: other machines could reach the address, and `insecure` does not allow that.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ListenAddressError(f"{listen!r} is not HOST:PORT")
    if not insecure and not is_loopback(host):
        raise CredentialsError(
            f"--listen {listen} lets other machines connect without TLS or tokens: listen on 127.0.0.1 (and connect "
            "trainers by ssh -L), or give --insecure if everybody who reaches this port may run code on the evaluators"
        )
    return host.strip("[]"), int(port)


def serve(settings: Settings, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: settings of the gateway.
        host, port: address to listen on; port 0 chooses a free one.
        ready: called with the address once the port is open.

    Raises:
        OSError: the port is in use or not permitted.
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
