"""Read files that hold secrets (tokens, private keys), and refuse those that every user of the machine may access."""

from __future__ import annotations

import stat
from pathlib import Path

from kerneldyno.rpc import input_files
from kerneldyno.rpc.errors import CredentialsError


def read_text(path: str, what: str) -> str:
    """Return the text of `path`.

    Args:
        path: the file.
        what: what the file holds, for error messages.

    Raises:
        CredentialsError: it cannot be read, or every user of this machine may change it.
    """
    try:
        text = input_files.read_text(Path(path))
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise CredentialsError(f"cannot read {what} from {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CredentialsError(f"{path} is not a text file; expected {what}") from error
    if mode & stat.S_IWOTH:
        raise CredentialsError(f"every user of this machine may change {path}; run: chmod o-w {path}")
    return text


def read_secret(path: str, what: str) -> str:
    """Return the text of `path`, which only its owner and group may read.

    Raises:
        CredentialsError: as for `read_text`, or every user of this machine may read it.
    """
    text = read_text(path, what)
    refuse_readable(path, what)
    return text


def refuse_readable(path: str, what: str) -> None:
    """Raise CredentialsError when every user of this machine may read `path`."""
    if Path(path).stat().st_mode & stat.S_IROTH:
        raise CredentialsError(f"{path} holds {what} and every user of this machine may read it; run: chmod 600 {path}")
