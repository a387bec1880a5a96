"""Channels, and the options that both ends of a connection must agree on.

Whoever dials does it by `open`; both servers take their options from here. The values were measured; gRPC's own
defaults need half a minute to reconnect after an outage and let two servers share one port in silence.
"""

from __future__ import annotations

import ipaddress
import json
from typing import Any

import grpc
from kerneldyno.rpc import tls
from kerneldyno.rpc.bearer import BearerChannel
from kerneldyno.rpc.credentials import NONE, Credentials
from kerneldyno.rpc.errors import AddressError, CredentialsError

#: Largest message in bytes, in either direction. Not unlimited: one client could otherwise take the memory.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024

#: Either side pings an idle peer this often (milliseconds), and gives it up when no answer comes within the timeout.
KEEPALIVE_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 10_000

#: Calls that one connection may have open. More wait at the client; so one cannot take the server's whole share.
MAX_CONCURRENT_STREAMS = 1_000

#: Methods that may safely be sent twice, and so are retried by the channel itself. Evaluations are not among them: the
#: caller re-attaches by id or by token instead.
RETRIED_METHODS = (
    ("kerneldyno.v1.SchedulerService", "GetEvaluation"),
    ("kerneldyno.v1.SchedulerService", "ListEvaluations"),
    ("kerneldyno.v1.SchedulerService", "GetCapabilities"),
    ("kerneldyno.v1.FleetService", "Synchronize"),
    ("kerneldyno.v1.FleetService", "ListNodes"),
    ("kerneldyno.v1.FleetService", "ListQuarantines"),
    ("kerneldyno.v1.FleetService", "DrainNode"),
    ("kerneldyno.v1.FleetService", "UndrainNode"),
    ("kerneldyno.v1.EvaluatorService", "CancelAttempt"),
    ("kerneldyno.v1.EvaluatorService", "GetCapabilities"),
)

#: Schemes of targets that gRPC knows; what has another one is a mistake, such as "http://host:port".
_TARGET_SCHEMES = ("dns", "unix", "unix-abstract", "ipv4", "ipv6", "vsock", "xds")

Options = list[tuple[str, Any]]


def service_config() -> str:
    """Return the gRPC service config as JSON: round robin over replicas, and retries of `RETRIED_METHODS`.

    It has no `timeout` (a service-wide one would kill watches; pass it per call) and no `waitForReady` (a wrong address
    must fail at once; a caller that wants to wait through a restart passes `wait_for_ready=True` with a deadline).
    """
    return json.dumps(
        {
            "loadBalancingConfig": [{"round_robin": {}}],
            "methodConfig": [
                {
                    "name": [{"service": service, "method": method} for service, method in RETRIED_METHODS],
                    "retryPolicy": {
                        "maxAttempts": 5,
                        "initialBackoff": "0.1s",
                        "maxBackoff": "2s",
                        "backoffMultiplier": 2,
                        "retryableStatusCodes": ["UNAVAILABLE"],
                    },
                }
            ],
            "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
        }
    )


def open(
    address: str,
    credentials: Credentials = NONE,
    *,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    own_connection: bool = False,
) -> grpc.aio.Channel:
    """Return a channel to `address` (see `target`), with TLS and a token as `credentials` say. It connects by itself.

    `own_connection` keeps the channel from sharing a connection with an equal channel of this process.

    Raises:
        AddressError: `address` is no address to dial.
        CredentialsError: a file cannot be used, or the token would cross a network in the clear.
    """
    options = client_options(max_message_bytes=max_message_bytes, own_connection=own_connection)
    if credentials.tls_ca is not None:
        channel = grpc.aio.secure_channel(target(address), tls.channel_credentials(credentials), options)
    elif credentials.token is None or stays_here(address):
        channel = grpc.aio.insecure_channel(target(address), options)
    else:
        raise CredentialsError(
            f"the token would cross the network to {address} in the clear: give the CA of its certificate "
            "(tls_ca, --tls-ca or KERNELDYNO_TLS_CA), or use an SSH tunnel and its end on this machine"
        )
    return channel if credentials.token is None else BearerChannel(channel, credentials.token)


def client_options(*, max_message_bytes: int = MAX_MESSAGE_BYTES, own_connection: bool = False) -> Options:
    """Return the options of a channel; parameters as in `open`."""
    return [
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),  # otherwise pings stop after two
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.enable_http_proxy", 0),  # peers are inside the cluster; a proxy for the outside world cannot reach them
        ("grpc.service_config", service_config()),
        ("grpc.use_local_subchannel_pool", int(own_connection)),
    ]


def server_options(*, max_message_bytes: int = MAX_MESSAGE_BYTES) -> Options:
    """Return options for `grpc.aio.server`."""
    return [
        ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a silent share
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # the default cuts off clients that ping as above
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ]


def target(address: str) -> str:
    """Return the gRPC target of `address` ("host:port", or any target with a scheme of gRPC's own).

    Raises:
        AddressError: it is neither. gRPC itself would report a host name that cannot be resolved.
    """
    scheme, colon, rest = address.partition(":")
    if colon and scheme in _TARGET_SCHEMES:
        return address
    if rest.startswith("//"):
        raise AddressError(
            f"{address!r} is a URL, not the address of a gRPC service: give HOST:PORT, without {scheme}://"
        )
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
        raise AddressError(f"{address!r} is not the address of a service: give HOST:PORT, as in 127.0.0.1:50051")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise AddressError(f"{address!r}: an IPv6 address is written in brackets, as in [::1]:50051")
    return f"dns:///{address}"


def stays_here(address: str) -> bool:
    """Whether what is sent to `address` (see `target`) surely does not leave this machine."""
    if address.startswith("unix:"):
        return True
    host, _, _ = address.removeprefix("dns:///").rpartition(":")
    return is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine alone; of names only "localhost" is."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
