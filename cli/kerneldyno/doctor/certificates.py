"""Check the validity dates of certificates: in files, and of the scheduler's own. For `kerneldyno doctor`.

It reads the two dates from X.509's DER form, because Python's ssl module shows them for CA certificates only.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kerneldyno.doctor.checks import Check, State
from kerneldyno.rpc.credentials import PUBLIC_ROOTS, Credentials

_SOON = timedelta(days=30)
_CONNECT_SECONDS = 3.0
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18


@dataclass(frozen=True, slots=True)
class Validity:
    """The period in which a certificate is valid."""

    begin: datetime
    end: datetime


def validity(der: bytes) -> Validity:
    """Return the dates of a certificate in DER form.

    Raises:
        ValueError: it is not a certificate.
    """
    fields = list(_fields(_content(_content(der, _SEQUENCE), _SEQUENCE)))
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    # serialNumber, signature, issuer, validity
    if len(fields) < 4 or fields[3][0] != _SEQUENCE:
        raise ValueError("not a certificate")
    begin, end = (_time(tag, content) for tag, content in _fields(fields[3][1]))
    return Validity(begin, end)


def of_files(credentials: Credentials, now: datetime) -> Iterator[Check]:
    """Yield findings on the certificates that this client was given."""
    given = {"CA of the scheduler": credentials.tls_ca, "own certificate": credentials.tls_cert}
    for name, path in given.items():
        if path is None or path == PUBLIC_ROOTS:
            continue
        found = [validity(ssl.PEM_cert_to_DER_cert(pem)) for pem in _PEM.findall(Path(path).read_text())]
        if not found:
            yield Check(name, State.FAILED, f"{path} has no certificate", "give a PEM file: docs/security.md")
            continue
        # In a CA file any certificate may be the right one; in one's own chain all are needed.
        pick = max if path == credentials.tls_ca else min
        yield _judge(name, path, pick(found, key=lambda one: one.end), now)


def of_scheduler(address: str, credentials: Credentials, now: datetime) -> Iterator[Check]:
    """Yield a finding on the scheduler's certificate. Without an answer yield nothing: another check reports that."""
    host, _, port = address.removeprefix("dns:///").rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # only to read the certificate; nothing is sent
    context.set_alpn_protocols(["h2"])
    if credentials.tls_cert is not None and credentials.tls_key is not None:
        context.load_cert_chain(credentials.tls_cert, credentials.tls_key, password="")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")) as connection,
        ):
            shown = connection.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        remedy = "check that the scheduler uses TLS; if it does not, leave out --tls-ca"
        yield Check("scheduler's certificate", State.FAILED, f"no TLS with {address}: {error.reason or error}", remedy)
        return
    except (OSError, ValueError):
        return
    if shown:
        yield _judge("scheduler's certificate", address, validity(shown), now)


def _judge(name: str, where: str, found: Validity, now: datetime) -> Check:
    remedy = "issue a new one and restart its users: docs/security.md#certificates"
    if now >= found.end:
        return Check(name, State.FAILED, f"{where} expired at {found.end:%Y-%m-%d %H:%M} UTC", remedy)
    if now < found.begin:
        text = f"{where} is not valid before {found.begin:%Y-%m-%d %H:%M} UTC"
        return Check(name, State.FAILED, text, "set this machine's clock, or issue a new one")
    text = f"{where}, valid until {found.end:%Y-%m-%d} ({(found.end - now).days} days)"
    return Check(name, State.NOTE, text, remedy) if found.end - now < _SOON else Check(name, State.OK, text)


def _content(der: bytes, tag: int) -> bytes:
    for found, content in _fields(der):
        if found == tag:
            return content
        break
    raise ValueError("not a certificate")


def _fields(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each field.

    Raises:
        ValueError: the data is cut off.
    """
    at = 0
    while at < len(der):
        if at + 2 > len(der):
            raise ValueError("cut off")
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        if at + length > len(der):
            raise ValueError("cut off")
        yield tag, der[at : at + length]
        at += length


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two-digit years: 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("not a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
