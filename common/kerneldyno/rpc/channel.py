"""Open gRPC channels, and define the options that both ends of a connection must agree on.

Every client calls `open`; both servers take their options from here. The values were measured: with gRPC's defaults a
client needs half a minute to reconnect after an outage, and two servers can share one port without an error.
"""

from __future__ import annotations

import ipaddress
import json
from typing import Any

import grpc

from kerneldyno.rpc import tls, unreachable
from kerneldyno.rpc.bearer import BearerChannel
from kerneldyno.rpc.credentials import NONE, Credentials
from kerneldyno.rpc.errors import AddressError, CredentialsError
from kerneldyno.rpc.failover import FailoverChannel
from kerneldyno.rpc.rotation import Endpoint

#: Largest message in bytes, in either direction. It is limited because one client could otherwise use all memory.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024

#: Each side pings an idle peer this often (milliseconds), and closes the connection if no answer comes within the
#: timeout.
KEEPALIVE_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 10_000
#: The same for a client that has another scheduler to turn to: a stream to a process that no longer answers breaks after
#: 17 s (measured). A server refuses pings more often than every 10 s.
_FAILOVER_KEEPALIVE_MS = 12_000
_FAILOVER_KEEPALIVE_TIMEOUT_MS = 5_000

#: Open calls per connection. Further calls wait in the client, so one client cannot use up the server's total.
MAX_CONCURRENT_STREAMS = 1_000

#: Methods that are safe to send twice, so the channel itself retries them. Evaluations are not among them: the caller
#: re-attaches by id or by token instead.
RETRIED_METHODS = (
    ("kerneldyno.v1.SchedulerService", "GetEvaluation"),
    ("kerneldyno.v1.SchedulerService", "ListEvaluations"),
    ("kerneldyno.v1.SchedulerService", "GetCapabilities"),
    ("kerneldyno.v1.SchedulerService", "ValidateRequest"),
    ("kerneldyno.v1.FleetService", "Synchronize"),
    ("kerneldyno.v1.FleetService", "ListNodes"),
    ("kerneldyno.v1.FleetService", "ListQuarantines"),
    ("kerneldyno.v1.FleetService", "DrainNode"),
    ("kerneldyno.v1.FleetService", "UndrainNode"),
    ("kerneldyno.v1.EvaluatorService", "CancelAttempt"),
    ("kerneldyno.v1.EvaluatorService", "GetCapabilities"),
)

#: Target schemes that gRPC knows. Any other scheme, such as "http://host:port", is a mistake.
_TARGET_SCHEMES = ("dns", "unix", "unix-abstract", "ipv4", "ipv6", "vsock", "xds")

Options = list[tuple[str, Any]]


def service_config() -> str:
    """Return the gRPC service config as JSON: round robin over replicas, and retries of `RETRIED_METHODS`.

    It has no `timeout`, because a service-wide one would end watches; pass it per call. It has no `waitForReady`,
    because a wrong address must fail at once; to wait through a restart, pass `wait_for_ready=True` with a deadline.
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
    patience: float = 0.0,
) -> FailoverChannel:
    """Return a channel that connects on its own, with TLS and a token if `credentials` have them.

    Args:
        address: where to connect; see `addresses`. With several it finds the scheduler that serves.
        credentials: TLS files and token.
        max_message_bytes: largest message in either direction.
        own_connection: do not share a connection with an equal channel of this process.
        patience: longest time, in seconds, that a unary call looks for a scheduler that serves.

    Raises:
        AddressError: `address` is not valid.
        CredentialsError: a file cannot be used, or the token would be sent over a network unencrypted.
    """
    listed = addresses(address)
    for one in listed:
        _check_token_stays_safe(one, credentials)
    secure = _secure(credentials)

    def dial(endpoint: Endpoint) -> grpc.aio.Channel:
        several = len(listed) > 1 or bool(endpoint.name) or endpoint.address not in listed
        options = client_options(
            max_message_bytes=max_message_bytes, own_connection=own_connection, has_alternatives=several
        )
        return _dial(endpoint, credentials, secure, options)

    return FailoverChannel(
        listed, dial, explain=lambda details: unreachable.advice(details, credentials), patience=patience
    )


def open_one(endpoint: Endpoint, credentials: Credentials = NONE) -> grpc.aio.Channel:
    """Return a channel to this endpoint alone, to learn what it says. Parameters and errors are those of `open`."""
    options = client_options(own_connection=True, has_alternatives=True)
    return _dial(endpoint, credentials, _secure(credentials), options)


def _secure(credentials: Credentials) -> grpc.ChannelCredentials | None:
    return None if credentials.tls_ca is None else tls.channel_credentials(credentials)


def _dial(
    endpoint: Endpoint, credentials: Credentials, secure: grpc.ChannelCredentials | None, options: Options
) -> grpc.aio.Channel:
    _check_token_stays_safe(endpoint.name or endpoint.address, credentials)
    if endpoint.name:  # the name is what the certificate must have
        host, _, _ = endpoint.name.rpartition(":")
        options += [("grpc.default_authority", endpoint.name), ("grpc.ssl_target_name_override", host)]
    where = target(endpoint.address)
    if secure is not None:
        channel = grpc.aio.secure_channel(where, secure, options)
    else:
        channel = grpc.aio.insecure_channel(where, options)
    return channel if credentials.token is None else BearerChannel(channel, credentials.token)


def _check_token_stays_safe(address: str, credentials: Credentials) -> None:
    if credentials.tls_ca is None and credentials.token is not None and not stays_here(address):
        raise CredentialsError(
            f"the token would be sent to {address} over the network unencrypted: give the CA of its certificate "
            "(tls_ca, --tls-ca or KERNELDYNO_TLS_CA), or use an SSH tunnel and its local address"
        )


def client_options(
    *, max_message_bytes: int = MAX_MESSAGE_BYTES, own_connection: bool = False, has_alternatives: bool = False
) -> Options:
    """Return the options of a channel to one address.

    Args:
        max_message_bytes: largest message in either direction.
        own_connection: do not share a connection with an equal channel of this process.
        has_alternatives: there are other addresses. A call that fails is repeated there, not here, and a machine that
            is gone is noticed sooner.
    """
    if has_alternatives:
        keepalive: Options = [
            ("grpc.keepalive_time_ms", _FAILOVER_KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", _FAILOVER_KEEPALIVE_TIMEOUT_MS),
            # Without this a process that is stopped, whose kernel still acknowledges, is noticed after a minute only.
            ("grpc.http2.ping_timeout_ms", _FAILOVER_KEEPALIVE_TIMEOUT_MS),
        ]
    else:
        keepalive = [
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ]
    return [
        *keepalive,
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),  # otherwise pings stop after two
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.enable_http_proxy", 0),  # peers are inside the cluster; a proxy to the internet cannot reach them
        ("grpc.service_config", service_config()),
        ("grpc.enable_retries", int(not has_alternatives)),
        ("grpc.use_local_subchannel_pool", int(own_connection)),
    ]


def server_options(*, max_message_bytes: int = MAX_MESSAGE_BYTES) -> Options:
    """Return options for `grpc.aio.server`."""
    return [
        ("grpc.so_reuseport", 0),  # a port in use is an error; without this two servers would share it
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # the default disconnects clients that ping as above
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ]


def target(address: str) -> str:
    """Return the gRPC target of `address`: "HOST:PORT", or any target with a scheme that gRPC knows.

    Raises:
        AddressError: it is neither. gRPC itself would only report a host name that cannot be resolved.
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
        raise AddressError(f"{address!r}: write an IPv6 address in brackets, as in [::1]:50051")
    return f"dns:///{address}"


def addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of a list "HOST:PORT,HOST:PORT,...", each valid (see `target`). Most lists have one.

    Raises:
        AddressError: one is not valid, missing, or given twice.
    """
    if text.startswith(("ipv4:", "ipv6:")):  # in these targets commas are gRPC's own
        return (target(text),)
    found = tuple(one.strip() for one in text.split(","))
    for number, one in enumerate(found):
        if not one and len(found) > 1:
            raise AddressError(f"{text!r} has nothing before or after a comma: give HOST:PORT,HOST:PORT")
        target(one)
        if one in found[:number]:
            raise AddressError(f"{text!r} has {one} twice")
    return found


def stays_here(address: str) -> bool:
    """Return True if data sent to `address` (see `addresses`) certainly stays on this machine."""
    return all(_stays_here(one) for one in addresses(address))


def _stays_here(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host, _, _ = address.removeprefix("dns:///").rpartition(":")
    return is_loopback(host)


def is_loopback(host: str) -> bool:
    """Return True if `host` is this machine; the only name accepted is "localhost"."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
