"""Every number that an operator may change, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from kerneldyno.rpc.security import UNGUARDED, ServerSecurity

_MAY_BE_ZERO = ("drain_seconds", "settle_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one scheduler; the defaults are those of the command line. They are read once, at the start."""

    listen: str = "127.0.0.1:50051"
    """Where gRPC is served, host:port; port 0 takes any."""
    metrics: str = "127.0.0.1:9464"
    """Where Prometheus reads, host:port, or "off"."""
    security: ServerSecurity = UNGUARDED
    """Certificates, tokens, and whether a port without TLS may be open to others."""
    store: str = "memory"
    """Where accepted work is kept: "sqlite:PATH", or "memory", which a crash empties."""
    max_queued: int = 10_000
    """Unfinished evaluations, less the attempts that run; beyond it streams are not read and EvaluateOnce is refused."""
    max_queued_per_client: int = 5_000
    """Unfinished evaluations that one client (or share of clients) may have."""
    max_queued_bytes: int = 512 * 1024 * 1024
    """The same bound as `max_queued` in bytes of request, for large sources."""
    heartbeat_seconds: float = 2.0
    """How often nodes report."""
    lease_seconds: float = 10.0
    """A node unheard of for this long is lost, and its attempts start elsewhere."""
    unmatched_seconds: float = 300.0
    """An evaluation that no registered node can run fails after this long: one may come, or come back."""
    settle_seconds: float = 30.0
    """When no new node came for this long, the fleet is complete, and what none of its nodes can run fails at once.
    0: with its first node. Infinity: never, for fleets that grow on demand."""
    max_attempts: int = 3
    """Attempts of one job, counting those lost to infrastructure."""
    quarantine_seconds: float = 3_600.0
    """How long work that kept killing nodes may not run."""
    client_grace_seconds: float = 3_600.0
    """Work of a client without an open call is cancelled after this long."""
    retain_results: int = 200_000
    """Finished evaluations kept for GetEvaluation, for clients that come back, and as answers to the same work."""
    retain_bytes: int = 4 * 1024 * 1024 * 1024
    """The same bound in bytes of result."""
    retain_seconds: float = 7 * 86_400.0
    """The same bound in time."""
    max_unsent: int = 4_096
    """Finished results that one stream may be behind before it is read no further."""
    max_unsent_bytes: int = 64 * 1024 * 1024
    """The same bound in bytes of result."""
    drain_seconds: float = 30.0
    """How long a stop waits for running attempts. With a durable store they go on without the scheduler after that."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not (value > 0 or (value == 0 and name in _MAY_BE_ZERO)):
                raise ValueError(f"{name} is {value}; it must be greater than 0")
        self.security.check(self.listen, self.metrics)
        if self.lease_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("lease_seconds must be at least twice heartbeat_seconds, or one late report loses a node")
        if (self.store != "memory" and not self.store.startswith("sqlite:")) or self.store == "sqlite:":
            raise ValueError(f'store is {self.store!r}; it must be "memory" or "sqlite:PATH"')
