"""Security settings of a server, and the check that refuses a port that is open to others without TLS.

Both servers share these options and checks: `add_options`, `ServerSecurity.of`, then `check` when the settings are read
and `gate` when the server is made.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from kerneldyno.rpc import tokens
from kerneldyno.rpc.auth import Gate
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.serving import Address
from kerneldyno.rpc.tls import ServerTls

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """Paths and permissions. It holds no secret, so it may be logged."""

    tls: ServerTls | None = None
    """The server's certificate; without it connections are not encrypted."""
    tokens: str | None = None
    """Path of the token file; see `kerneldyno.rpc.tokens`."""
    insecure: bool = False
    """Allow ports without TLS that other machines can reach."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> ServerSecurity:
        """Return the settings from parsed command line options.

        Raises:
            CredentialsError: the options do not fit together.
        """
        tls = ServerTls.of(options.tls_cert, options.tls_key, options.tls_client_ca)
        return cls(tls, options.tokens or None, options.insecure)

    def __str__(self) -> str:
        """Return the settings as key=value, for the log."""
        cert, client_ca = (self.tls.cert, self.tls.client_ca) if self.tls is not None else (None, None)
        return f"tls_cert={cert} tls_client_ca={client_ca} tokens={self.tokens} insecure={self.insecure}"

    def check(self, listen: str, metrics: str) -> None:
        """Refuse ports without TLS that other machines can reach.

        Args:
            listen: address of the gRPC port.
            metrics: address of the metrics port, or "off".

        Raises:
            CredentialsError: one is reachable, and `insecure` does not allow it.
            ValueError: an address is not HOST:PORT.
        """
        grpc_here = Address.parse(listen).loopback
        metrics_here = metrics == "off" or Address.parse(metrics).loopback
        if self.insecure:
            return
        if self.tls is None and not grpc_here:
            raise CredentialsError(
                f"--listen {listen} would let others in without TLS: give --tls-cert and --tls-key, or listen "
                "on 127.0.0.1, or give --insecure if everybody who can reach this port may run code here"
            )
        if not metrics_here:
            raise CredentialsError(
                f"--metrics {metrics} would be open to other machines without TLS: serve metrics on 127.0.0.1, or give "
                "--insecure if everybody who can reach this port may read them"
            )

    def gate(self, listen: str, environ: Mapping[str, str] = os.environ) -> Gate:
        """Return the gate of the server at `listen`. If it admits everybody, log a warning.

        Raises:
            CredentialsError: the tokens cannot be used.
        """
        file = tokens.TokenFile(self.tokens, environ) if self.tokens else None  # made first: it sees every change
        known = tokens.load(self.tokens, environ)
        if known:
            _log.info("event=tokens principals=%s", ",".join(known.names()))
        elif not Address.parse(listen).loopback:
            certified = self.tls is not None and self.tls.client_ca is not None
            who = "with a certificate of the client CA" if certified else "who reaches it"
            _log.warning('event=no_tokens listen=%s detail="everybody %s may run code; give --tokens"', listen, who)
        return Gate(known, file)


#: Neither TLS nor tokens: for a server that only this machine can reach.
UNGUARDED = ServerSecurity()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command line options that `ServerSecurity.of` reads."""
    add = parser.add_argument
    add("--tls-cert", metavar="FILE", help="serve with TLS: the certificate chain, PEM")
    add("--tls-key", metavar="FILE", help="private key of the certificate, PEM")
    add("--tls-client-ca", metavar="FILE", help="require client certificates signed by this CA, PEM")
    add("--tokens", metavar="FILE", help=f"tokens that may call, TOML; {tokens.TOKENS_VARIABLE} adds more")
    add("--insecure", action="store_true", help="allow ports without TLS that other machines can reach")
