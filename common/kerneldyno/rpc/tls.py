"""PEM files as gRPC's credentials, for either end.

A server reads its files again when they change, a client with each channel that it opens.

Everything is checked here, since gRPC itself answers a bad file with a failed handshake and a line in a log.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass

import grpc
from kerneldyno.rpc.credentials import PUBLIC_ROOTS, Credentials
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.reloading import WatchedFiles
from kerneldyno.rpc.secret_files import read_secret, read_text

_log = logging.getLogger(__name__)


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
    """Return `tls` for `add_secure_port`. New connections get what the files hold when they are made.

    Raises:
        CredentialsError: the files cannot be used now. Later it is logged, and what they held before stays in force.
    """
    files = _ServerFiles(tls)
    asks = tls.client_ca is not None
    # gRPC takes None for "as before", which its stubs do not know.
    return grpc.dynamic_ssl_server_credentials(files.read(), files.renewed, asks)  # type: ignore[arg-type]


class _ServerFiles:
    """The files of a server, which may be renewed while it runs."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._watched = WatchedFiles([path for path in (tls.cert, tls.key, tls.client_ca) if path])

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Return what they hold. Raises CredentialsError."""
        key, cert = _pair(self._tls.cert, self._tls.key)
        client_ca = _authorities(self._tls.client_ca) if self._tls.client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=client_ca)

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what they hold when that is new, else None. gRPC calls it for each connection, in threads of its own."""
        if not self._watched.changed():
            return None
        try:
            found = self.read()
        except CredentialsError as error:  # one file of several was written so far, or it is wrong
            _log.warning("event=certificate_kept detail=%r", str(error))
            return None
        _log.info("event=certificate_renewed cert=%s", self._tls.cert)
        return found


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
