"""The settings that an operator may change, in one frozen value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from kerneldyno.rpc.security import UNGUARDED, ServerSecurity
from kerneldyno.rpc.serving import Address

_MAY_BE_ZERO = ("drain_seconds", "settle_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one scheduler, read once at its start. The defaults are those of the command line."""

    listen: str = "127.0.0.1:50051"
    """host:port where gRPC is served; port 0 takes any free port."""
    metrics: str = "127.0.0.1:9464"
    """host:port where Prometheus metrics are served, or "off"."""
    security: ServerSecurity = UNGUARDED
    """Certificates, tokens, and whether a port without TLS may be reachable from other machines."""
    store: str = "memory"
    """Where accepted work is kept: "sqlite:PATH", "postgresql://..." (several schedulers may share it: one is active), or
    "memory", which does not survive a crash."""
    store_lease_seconds: float = 5.0
    """With a store that several share: time without a sign of the active scheduler after which a standby takes over."""
    advertise: str = ""
    """host:port at which clients and nodes reach this scheduler, told by the others while it is active."""
    max_queued: int = 10_000
    """Maximum of unfinished evaluations minus running attempts. At this number, streams are not read and EvaluateOnce is
    refused."""
    max_queued_per_client: int = 5_000
    """Maximum of unfinished evaluations of one client (or share of clients)."""
    max_queued_bytes: int = 512 * 1024 * 1024
    """The same bound in bytes of waiting requests."""
    heartbeat_seconds: float = 2.0
    """Time between two reports of a node."""
    lease_seconds: float = 10.0
    """Time without a message from a node after which it is lost and its attempts start elsewhere."""
    unmatched_seconds: float = 300.0
    """Time after which an evaluation fails that no registered node can run. A matching node may join until then."""
    settle_seconds: float = 30.0
    """Time without a new node after which the fleet is complete, and work that none of its nodes can run fails at once.
    0: complete with the first node. Infinity: never complete, for fleets that grow on demand."""
    max_attempts: int = 3
    """Maximum number of attempts of one job that infrastructure may fail."""
    quarantine_seconds: float = 3_600.0
    """Time for which work that kept killing nodes may not run."""
    client_grace_seconds: float = 3_600.0
    """Time after which the work of a client without an open call is cancelled."""
    retain_results: int = 200_000
    """Maximum number of finished evaluations that are kept, for GetEvaluation, for clients that come back, and as cache."""
    retain_bytes: int = 4 * 1024 * 1024 * 1024
    """The same bound in bytes of results."""
    retain_seconds: float = 7 * 86_400.0
    """The same bound in age."""
    max_unsent: int = 4_096
    """Maximum number of unsent results of one stream. Above it, the stream is not read."""
    max_unsent_bytes: int = 64 * 1024 * 1024
    """The same bound in bytes of results."""
    drain_seconds: float = 30.0
    """Time for which a stop waits for running attempts. With a durable store, they go on without the scheduler after it."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not (value > 0 or (value == 0 and name in _MAY_BE_ZERO)):
                raise ValueError(f"{name} is {value}; it must be greater than 0")
        self.security.check(self.listen, self.metrics)
        if self.lease_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("lease_seconds must be at least twice heartbeat_seconds, or one late report loses a node")
        known = self.shared or self.store == "memory" or self.store.startswith("sqlite:")
        if not known or self.store == "sqlite:":
            raise ValueError(
                f'store is {without_password(self.store)!r}; it must be "memory", "sqlite:PATH" or "postgresql://..."'
            )
        if self.advertise:
            Address.parse(self.advertise)

    @property
    def shared(self) -> bool:
        """Return True if several schedulers may share the store."""
        return self.store.startswith(("postgresql://", "postgres://"))

    @property
    def store_name(self) -> str:
        """The store, for logs and messages: without a password."""
        return without_password(self.store)


def without_password(store: str) -> str:
    """Return the name of a store without the password that a URL may have."""
    if "://" not in store:
        return store
    parts = urlsplit(store)
    user, at, place = parts.netloc.rpartition("@")
    query = re.sub(r"(^|&)(password|sslpassword)=[^&]*", r"\1\2=***", parts.query)
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{place}", query=query))
