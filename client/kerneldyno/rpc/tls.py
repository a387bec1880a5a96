"""PEM files as gRPC's credentials, for either end. They are read once, at the start: a renewed certificate needs a restart.

Everything is checked here, since gRPC itself answers a bad file with a failed handshake and a line in a log.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import grpc
from kerneldyno.rpc.credentials import PUBLIC_ROOTS, Credentials
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.secret_files import read_secret, read_text


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What a server shows its clients, and what it asks of them: paths of PEM files."""

    cert: str
    """Its certificate, with the chain below the root."""
    key: str
    """Its private key, without a passphrase."""
    client_ca: str | None = None
    """When given, a client must have a certificate of this CA."""

    @classmethod
    def of(cls, cert: str | None, key: str | None, client_ca: str | None) -> ServerTls | None:
        """Return what three options mean together; None is a server without TLS.

        Raises:
            CredentialsError: they do not go together.
        """
        if cert and key:
            return cls(cert, key, client_ca or None)
        if cert or key or client_ca:
            raise CredentialsError("TLS needs both --tls-cert and --tls-key; --tls-client-ca may come on top")
        return None


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Return `tls` for `add_secure_port`. Raises CredentialsError."""
    key, cert = _pair(tls.cert, tls.key)
    client_ca = _authorities(tls.client_ca) if tls.client_ca else None
    return grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=client_ca, require_client_auth=client_ca is not None
    )


def channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    """Return the TLS part of `credentials`, which has one, for `secure_channel`. Raises CredentialsError."""
    assert credentials.tls_ca is not None
    roots = None if credentials.tls_ca == PUBLIC_ROOTS else _authorities(credentials.tls_ca)
    key = cert = None
    if credentials.tls_cert is not None and credentials.tls_key is not None:
        key, cert = _pair(credentials.tls_cert, credentials.tls_key)
    return grpc.ssl_channel_credentials(root_certificates=roots, private_key=key, certificate_chain=cert)


def _pair(cert: str, key: str) -> tuple[bytes, bytes]:
    """Return key and certificate, in gRPC's order."""
    key_text, cert_text = read_secret(key, "a private key"), read_text(cert, "a certificate")
    try:
        # An empty passphrase: without one OpenSSL would ask for it at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        why = "KEY_VALUES_MISMATCH" in str(error)
        hint = "the key is not the certificate's" if why else "PEM without a passphrase is expected"
        raise CredentialsError(f"{cert} and {key} cannot be used for TLS: {hint} ({error})") from error
    return key_text.encode(), cert_text.encode()


def _authorities(path: str) -> bytes:
    text = read_text(path, "CA certificates")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsError(f"{path} holds no CA certificate in PEM form ({error})") from error
    return text.encode()
