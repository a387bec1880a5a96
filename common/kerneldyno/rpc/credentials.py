"""Credentials of a client: its certificate, its token, and the CA by which it verifies the server.

`channel.open` takes a `Credentials`. `choose` makes one from parameters; the environment supplies those left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.secret_files import read_secret

CA_VARIABLE = "KERNELDYNO_TLS_CA"
CERT_VARIABLE = "KERNELDYNO_TLS_CERT"
KEY_VARIABLE = "KERNELDYNO_TLS_KEY"
TOKEN_VARIABLE = "KERNELDYNO_TOKEN"
TOKEN_FILE_VARIABLE = "KERNELDYNO_TOKEN_FILE"
#: All variables that `choose` reads.
VARIABLES = (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE)

#: Value of `tls_ca` for the public root CAs that gRPC ships.
PUBLIC_ROOTS = "public"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of PEM files, and a bearer token; None for each that is absent. TLS is used exactly if `tls_ca` is set."""

    tls_ca: str | None = None
    """CA certificates that verify the server's certificate, or "public"."""
    tls_cert: str | None = None
    """The client's own certificate, for a server that requires one."""
    tls_key: str | None = None
    """Private key of the client's certificate."""
    token: str | None = field(default=None, repr=False)  # never in a log

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise CredentialsError("a client certificate and its key go together: give both, or neither")
        if self.tls_cert is not None and self.tls_ca is None:
            raise CredentialsError("a client certificate is used with TLS only: also give the server's CA (tls_ca)")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise CredentialsError("the token has characters that a header cannot hold; check that the file is right")

    def without_token(self) -> Self:
        """Return a copy without the token, for a server that must not learn it."""
        return replace(self, token=None)


#: No TLS, no token.
NONE = Credentials()


def choose(
    *,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Credentials:
    """Return credentials from the parameters.

    For each parameter, None means the environment's value, and "" means none at all.

    Raises:
        CredentialsError: they do not fit together, or the token file cannot be used.
    """
    if token is None and token_file is None:
        token = environ.get(TOKEN_VARIABLE)
        token_file = environ.get(TOKEN_FILE_VARIABLE) if token is None else None
    return Credentials(
        tls_ca=_or(tls_ca, environ, CA_VARIABLE),
        tls_cert=_or(tls_cert, environ, CERT_VARIABLE),
        tls_key=_or(tls_key, environ, KEY_VARIABLE),
        token=token or (read_secret(token_file, "the token").strip() if token_file else None) or None,
    )


def _or(given: str | None, environ: Mapping[str, str], variable: str) -> str | None:
    return (environ.get(variable) if given is None else given) or None
