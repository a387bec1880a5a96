"""One entry of the build cache: a file with one line of facts in JSON, and then the library.

The builder writes it (`builder/cache.py`), and judges read it. An entry names its key and the SHA-256 of its library.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Largest library in bytes. With those of a whole candidate it must fit into a frame (`wire`), in base64.
MOST_BYTES = 40 << 20
#: Longest messages of compilers that are kept, in characters.
MOST_LOG = 32 * 1024
#: Longest first line, in bytes.
_MOST_HEAD = 1 << 20


#: How the names of entries end.
SUFFIX = ".library"


def place(directory: Path, key: str) -> Path:
    """Return where the entry of a key is, or would be."""
    return directory / f"{key}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Library:
    """One built library."""

    key: str
    name: str
    #: Whether lean headers were used.
    lean: bool
    #: Time that the build took, and the steps that took it, in seconds.
    seconds: float
    steps: tuple[tuple[str, float], ...]
    content: bytes

    def encode(self) -> bytes:
        """Return the content of the file."""
        head = {name: value for name, value in asdict(self).items() if name != "content"}
        head["sha256"] = hashlib.sha256(self.content).hexdigest()
        return json.dumps(head).encode() + b"\n" + self.content


def read(path: Path, key: str) -> Library:
    """Read one entry.

    Raises:
        OSError: The file cannot be read, or is a symbolic link.
        ValueError: It is not the entry of that key, or it is damaged.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
        first, content = file.readline(_MOST_HEAD), file.read()
    head: dict[str, Any] = json.loads(first)
    try:
        if head["key"] != key or head["sha256"] != hashlib.sha256(content).hexdigest():
            raise ValueError("key or checksum do not match")
        steps = tuple((str(name), float(seconds)) for name, seconds in head["steps"])
        return Library(key, str(head["name"]), bool(head["lean"]), float(head["seconds"]), steps, content)
    except (KeyError, TypeError) as error:
        raise ValueError(f"malformed: {error}") from None
