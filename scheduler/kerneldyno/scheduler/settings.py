"""Every number that an operator may change, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from kerneldyno.rpc.security import ServerSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one scheduler; the defaults are those of the command line."""

    listen: str = "127.0.0.1:50051"
    """Where gRPC is served, host:port; port 0 takes any."""
    metrics: str = "127.0.0.1:9464"
    """Where Prometheus reads, host:port, or "off"."""
    security: ServerSecurity = ServerSecurity()
    """Certificates, tokens, and whether a port without TLS may be open to others."""
    max_queued: int = 10_000
    """Evaluations that may wait; beyond it streams are not read and EvaluateOnce is refused."""
    max_queued_bytes: int = 512 * 1024 * 1024
    """The same bound in bytes of request, for large sources."""
    heartbeat_seconds: float = 2.0
    """How often nodes report."""
    lease_seconds: float = 10.0
    """A node unheard of for this long is lost, and its attempts start elsewhere."""
    unmatched_seconds: float = 300.0
    """An evaluation that no registered node can run fails after this long."""
    max_attempts: int = 3
    """Attempts of one evaluation, counting those lost to infrastructure."""
    retain_results: int = 20_000
    """Finished evaluations kept for GetEvaluation and for clients that come back."""
    retain_bytes: int = 256 * 1024 * 1024
    """The same bound in bytes of result."""
    max_unsent: int = 4_096
    """Finished results that one stream may be behind before it is read no further."""
    max_unsent_bytes: int = 64 * 1024 * 1024
    """The same bound in bytes of result."""
    drain_seconds: float = 30.0
    """How long a stop waits for running attempts."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and value <= 0 and name != "drain_seconds":
                raise ValueError(f"{name} is {value}; it must be greater than 0")
        self.security.check(self.listen, self.metrics)
        if self.lease_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("lease_seconds must be at least twice heartbeat_seconds, or one late report loses a node")
