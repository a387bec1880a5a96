"""Read the tokens that a server knows, from a TOML file and from the environment.

    [[token]]
    name = "trainer"                # who this is, in fair shares, limits, logs
    sha256 = "9f86d0..."            # of the token; or token = "...", in a file that only its owner may read
    roles = ["submit"]
    weight = 2.0                    # share of the fleet beside others; 1 by default
    max_queued = 5000               # unfinished evaluations; the scheduler's own limit by default
    requests_per_second = 50.0      # unary calls, and evaluations of streams; no limit by default

The file is read again when it changes. The variable KERNELDYNO_TOKENS holds "name:role+role:token,...", without limits.
Only digests are kept in memory.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.reloading import WatchedFiles
from kerneldyno.rpc.roles import EVERY_ROLE, Role
from kerneldyno.rpc.secret_files import read_text, refuse_readable

_log = logging.getLogger(__name__)

TOKENS_VARIABLE = "KERNELDYNO_TOKENS"
#: Shortest token in characters; a shorter one could be guessed.
MIN_TOKEN_CHARS = 20
_MAKE = "python3 -c 'import secrets; print(secrets.token_urlsafe(32))' makes one"
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")
_TOKEN = re.compile(r"[!-+\--~]+")  # printable ASCII without space and comma
_KEYS = {"name", "token", "sha256", "roles", "weight", "max_queued", "requests_per_second"}


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of one or several tokens, and what the owner may do."""

    name: str
    roles: Role
    weight: float = 1.0
    """Share of the fleet relative to other principals."""
    max_queued: int | None = None
    """Most unfinished evaluations at a time; None for the scheduler's own limit."""
    requests_per_second: float | None = None
    """Rate limit of unary calls, and of evaluations in streams; None for no limit."""


#: The caller where no tokens are in use.
ANONYMOUS = Principal("anonymous", EVERY_ROLE)


class Tokens:
    """Principals by the SHA-256 of their tokens. It is false if there are none; then anybody may do anything."""

    def __init__(self, principals: Iterable[tuple[bytes, Principal]] = ()) -> None:
        self._principals: dict[bytes, Principal] = {}
        by_name: dict[str, Principal] = {}
        for digest, principal in principals:
            if digest in self._principals:
                raise CredentialsError(f"token of {principal.name!r} is listed twice; a token has one owner")
            if by_name.setdefault(principal.name, principal) != principal:
                raise CredentialsError(f"tokens of {principal.name!r} differ in roles or limits; they must be the same")
            self._principals[digest] = principal

    def __bool__(self) -> bool:
        return bool(self._principals)

    def names(self) -> list[str]:
        """Return the names of those who have tokens."""
        return sorted({principal.name for principal in self._principals.values()})

    def find(self, token: str) -> Principal | None:
        """Return the owner of `token`, in a time that does not reveal how close a wrong token is."""
        presented = _digest(token)
        found = None
        for digest, principal in self._principals.items():
            if hmac.compare_digest(digest, presented):
                found = principal
        return found


def load(path: str | None, environ: Mapping[str, str]) -> Tokens:
    """Return the tokens of the file at `path`, if given, and of the environment.

    Raises:
        CredentialsError: the file cannot be read or is not private enough, or an entry is wrong. The message never
            holds a token.
    """
    in_file = _from_file(path) if path else []
    return Tokens([*in_file, *_from_environment(environ.get(TOKENS_VARIABLE, ""))])


class TokenFile:
    """Tokens of a file that may change while the server runs, and those of the environment at the start."""

    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = {TOKENS_VARIABLE: environ.get(TOKENS_VARIABLE, "")}
        self._watched = WatchedFiles([path])

    def changed(self) -> Tokens | None:
        """Return the tokens if they have changed since the last call, else None.

        A file that cannot be used is logged and counts as unchanged.
        """
        if not self._watched.changed():
            return None
        try:
            found = load(self._path, self._environ)
        except CredentialsError as error:
            _log.warning("event=tokens_kept detail=%r", str(error))
            return None
        _log.info("event=tokens_renewed principals=%s", ",".join(found.names()))
        return found


def _from_file(path: str) -> list[tuple[bytes, Principal]]:
    try:
        document = tomllib.loads(read_text(path, "tokens"))
    except tomllib.TOMLDecodeError as error:
        raise CredentialsError(f"{path} is not TOML: {error}") from error
    entries = document.get("token")
    if set(document) != {"token"} or not isinstance(entries, list) or not entries:
        raise CredentialsError(f"{path} must hold at least one [[token]] entry, and nothing else")
    if any(isinstance(entry, dict) and "token" in entry for entry in entries):
        refuse_readable(path, "tokens (give sha256 instead of token, or make the file private)")
    return [_entry(entry, f"{path}: token {number}") for number, entry in enumerate(entries, 1)]


def _entry(entry: Any, where: str) -> tuple[bytes, Principal]:
    if not isinstance(entry, dict):
        raise CredentialsError(f"{where} is not a table; write [[token]]")
    if unknown := set(entry) - _KEYS:
        raise CredentialsError(f"{where} has unknown keys: {', '.join(sorted(unknown))}")
    if ("token" in entry) == ("sha256" in entry):
        raise CredentialsError(f"{where} needs either sha256 (of the token) or token, not both")
    digest = _known(entry["token"], where) if "token" in entry else _from_hex(entry["sha256"], where)
    weight, rate = (_positive(entry, key, (int, float), where) for key in ("weight", "requests_per_second"))
    max_queued = _positive(entry, "max_queued", (int,), where)
    principal = Principal(
        name=_name(entry.get("name"), where),
        roles=_roles(entry.get("roles"), where),
        weight=1.0 if weight is None else float(weight),
        max_queued=max_queued,
        requests_per_second=rate,
    )
    return digest, principal


def _from_environment(text: str) -> list[tuple[bytes, Principal]]:
    principals = []
    for number, entry in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
        where = f"{TOKENS_VARIABLE}: token {number}"
        name, roles, token = [*entry.split(":", 2), "", ""][:3]
        principal = Principal(_name(name, where), _roles(roles.split("+"), where))
        principals.append((_known(token, where), principal))
    return principals


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _known(token: Any, where: str) -> bytes:
    if not isinstance(token, str) or len(token) < MIN_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise CredentialsError(
            f"{where}: a token needs at least {MIN_TOKEN_CHARS} printable ASCII characters, no space, no comma; {_MAKE}"
        )
    return _digest(token)


def _from_hex(text: Any, where: str) -> bytes:
    if not isinstance(text, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise CredentialsError(f"{where}: sha256 needs 64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints")
    return bytes.fromhex(text)


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise CredentialsError(f"{where}: name must have 1 to 100 letters, digits, or . _ @ -")
    return name


def _roles(names: Any, where: str) -> Role:
    known = {str(role): role for role in Role}
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name in known for name in names):
        raise CredentialsError(f"{where}: roles must be a list of some of {', '.join(known)}")
    roles = Role(0)
    for name in names:
        roles |= known[name]
    return roles


def _positive(entry: Mapping[str, Any], key: str, kinds: tuple[type, ...], where: str) -> Any:
    value: Any = entry.get(key)
    if value is None:
        return None
    right = isinstance(value, kinds) and not isinstance(value, bool)
    if not right or not 0 < value < math.inf:
        raise CredentialsError(f"{where}: {key} must be a {'whole ' if float not in kinds else ''}number above 0")
    return value
