"""Turn PEM files into gRPC credentials, for either end.

A server reads its files again when they change; a client reads them for each channel that it opens.

Everything is checked here, because gRPC reports a bad file only by a failed handshake and a line in its log.
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
    """TLS settings of a server: paths of PEM files."""

    cert: str
    """The server's certificate, with the chain below the root."""
    key: str
    """The server's private key, without a passphrase."""
    client_ca: str | None = None
    """If given, a client must have a certificate signed by this CA."""

    @classmethod
    def of(cls, cert: str | None, key: str | None, client_ca: str | None) -> ServerTls | None:
        """Return the settings that the three options make; None for a server without TLS.

        Raises:
            CredentialsError: they do not fit together.
        """
        if cert and key:
            return cls(cert, key, client_ca or None)
        if cert or key or client_ca:
            raise CredentialsError("TLS needs both --tls-cert and --tls-key; --tls-client-ca is optional")
        return None


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Return credentials for `add_secure_port`. Each new connection uses what the files hold at that time.

    Raises:
        CredentialsError: the files cannot be used now. If that happens later, it is logged and the previous contents
            stay in use.
    """
    files = _ServerFiles(tls)
    asks = tls.client_ca is not None
    # gRPC takes None for "unchanged", which its stubs do not declare.
    return grpc.dynamic_ssl_server_credentials(files.read(), files.renewed, asks)  # type: ignore[arg-type]


class _ServerFiles:
    """The TLS files of a server, which may be renewed while it runs."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._watched = WatchedFiles([path for path in (tls.cert, tls.key, tls.client_ca) if path])

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Return the contents of the files.

        Raises:
            CredentialsError: they cannot be used.
        """
        key, cert = _pair(self._tls.cert, self._tls.key)
        client_ca = _authorities(self._tls.client_ca) if self._tls.client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=client_ca)

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the contents if they are new, else None. gRPC calls this for each connection, in its own threads."""
        if not self._watched.changed():
            return None
        try:
            found = self.read()
        except CredentialsError as error:  # only some of the files have been written so far, or one is wrong
            _log.warning("event=certificate_kept detail=%r", str(error))
            return None
        _log.info("event=certificate_renewed cert=%s", self._tls.cert)
        return found


def channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    """Return the TLS part of `credentials` for `secure_channel`; `tls_ca` must be set.

    Raises:
        CredentialsError: a file cannot be used.
    """
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
        # With no passphrase at all, OpenSSL would ask for one at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        why = "KEY_VALUES_MISMATCH" in str(error)
        hint = "the key does not match the certificate" if why else "expected PEM without a passphrase"
        raise CredentialsError(f"{cert} and {key} cannot be used for TLS: {hint} ({error})") from error
    return key_text.encode(), cert_text.encode()


def _authorities(path: str) -> bytes:
    text = read_text(path, "CA certificates")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsError(f"{path} holds no CA certificate in PEM form ({error})") from error
    return text.encode()
