"""Lack of memory, as torch tells it: its exceptions and messages have the numbers, and nothing else has them later.

A candidate may write such a message itself. Whatever it says is read, or says nothing; it raises no error here.
"""

from __future__ import annotations

import re

import torch

#: What torch says when the host's memory has run out, for which it has no exception of its own.
_NO_HOST_MEMORY = "can't allocate memory"
_NAMED = re.compile(rf"\b(OutOfMemoryError|MemoryError)\b|{_NO_HOST_MEMORY}")
_ASKED_OF_HOST = re.compile(r"tried to allocate (\d{1,18}) bytes")
_SIZE = r"(?P<number>\d{1,9}(\.\d{1,9})?) (?P<unit>bytes|KiB|MiB|GiB)"
_ASKED = re.compile(f"Tried to allocate {_SIZE}")
_FREE = re.compile(f"of which {_SIZE} is free")
_HELD = re.compile(f"Of the allocated memory {_SIZE} is allocated by PyTorch")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def is_lack_of_memory(error: BaseException) -> bool:
    """Say whether memory has run out, of the device or of the host."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or _NO_HOST_MEMORY in str(error)


def tells_of_it(text: str) -> bool:
    """Say whether the name and message of an exception say so, of which there is nothing else."""
    return _NAMED.search(text) is not None


def asked_bytes(message: str) -> int:
    """Return how many bytes could not be allocated; 0 where the message does not say."""
    if (host := _ASKED_OF_HOST.search(message)) is not None:
        return int(host[1])
    return _size(_ASKED.search(message)) or 0


def free_bytes(message: str) -> int | None:
    """Return how many bytes of the device were free then; None where the message does not say."""
    return _size(_FREE.search(message))


def held_bytes(message: str) -> int | None:
    """Return how many bytes torch's tensors of that process had then; None where the message does not say."""
    return _size(_HELD.search(message))


def _size(found: re.Match[str] | None) -> int | None:
    return None if found is None else int(float(found["number"]) * _UNITS[found["unit"]])
