"""Certificates for tests, made by the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


@dataclass(frozen=True, slots=True)
class Pair:
    """Paths of a certificate and its private key."""

    cert: str
    key: str


class Authority:
    """A CA with files in `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._pair = Pair(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
        _openssl("req", "-x509", *_NEW_KEY, "-nodes", *_into(self._pair), "-days", "2", "-subj", f"/CN={name}")

    @property
    def cert(self) -> str:
        """Return the path of the CA's own certificate."""
        return self._pair.cert

    def issue(self, name: str, *, host: str = "IP:127.0.0.1", days: int = 2, passphrase: str = "") -> Pair:
        """Return a certificate for `host` (IP:... or DNS:...). With negative `days` it has expired."""
        pair = Pair(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        request = str(self._folder / f"{name}.csr")
        secret = ("-passout", f"pass:{passphrase}") if passphrase else ("-nodes",)
        subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={host}")
        _openssl("req", *_NEW_KEY, *secret, "-keyout", pair.key, "-out", request, *subject)
        signer = ("-CA", self._pair.cert, "-CAkey", self._pair.key, "-CAcreateserial")
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={host}\n")
        _openssl(
            "x509", "-req", "-in", request, *signer, "-extfile", str(extensions), "-days", str(days), "-out", pair.cert
        )
        return pair


def _into(pair: Pair) -> tuple[str, ...]:
    return ("-keyout", pair.key, "-out", pair.cert)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
