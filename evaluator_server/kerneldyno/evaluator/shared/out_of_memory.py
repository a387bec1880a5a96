"""Reading torch's out-of-memory errors: only the exceptions and their messages contain the numbers.

A candidate may write such a message itself. Any text is accepted here; text that does not match yields no number.
"""

from __future__ import annotations

import re

import torch

#: torch's message when the host's memory has run out; it has no exception of its own for that.
_NO_HOST_MEMORY = "can't allocate memory"
#: How CUDA and its libraries say that the device's memory has run out, in errors that torch raises under other names.
_NO_DEVICE_MEMORY = re.compile(
    r"CUDA (driver )?error: out of memory|\bCU\w+_ALLOC_FAILED\b|\bCUDA_ERROR_OUT_OF_MEMORY\b"
)
_LACKS_HOST = re.compile(rf"\bMemoryError\b|{_NO_HOST_MEMORY}")
_NAMED = re.compile(rf"\b(OutOfMemoryError|MemoryError)\b|{_NO_HOST_MEMORY}|{_NO_DEVICE_MEMORY.pattern}")
_ASKED_OF_HOST = re.compile(r"tried to allocate (\d{1,18}) bytes")
_SIZE = r"(?P<number>\d{1,9}(\.\d{1,9})?) (?P<unit>bytes|KiB|MiB|GiB)"
_ASKED = re.compile(f"Tried to allocate {_SIZE}")
_FREE = re.compile(f"of which {_SIZE} is free")
_HELD = re.compile(f"Of the allocated memory {_SIZE} is allocated by PyTorch")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def is_lack_of_memory(error: BaseException) -> bool:
    """Return True if `error` means that memory has run out, of the device or of the host."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return _NO_HOST_MEMORY in str(error) or says_device_lacks_memory(str(error))


def says_device_lacks_memory(message: str) -> bool:
    """Return True if the message of an exception means that the device's memory has run out.

    torch has an exception of its own only for its own allocator; a library's handle or a kernel may need memory too.
    """
    return _NO_DEVICE_MEMORY.search(message) is not None


def says_host_lacks_memory(text: str) -> bool:
    """Return True if the text of an exception (name and message) means that the host's memory has run out."""
    return _LACKS_HOST.search(text) is not None


def text_means_lack_of_memory(text: str) -> bool:
    """Return True if the text of an exception (name and message) means that memory has run out."""
    return _NAMED.search(text) is not None


def asked_bytes(message: str) -> int:
    """Return how many bytes could not be allocated; 0 if the message does not say."""
    if (host := _ASKED_OF_HOST.search(message)) is not None:
        return int(host[1])
    return _size(_ASKED.search(message)) or 0


def free_bytes(message: str) -> int | None:
    """Return how many bytes of device memory were free at that moment; None if the message does not say."""
    return _size(_FREE.search(message))


def held_bytes(message: str) -> int | None:
    """Return how many bytes torch's tensors in that process held at that moment; None if the message does not say."""
    return _size(_HELD.search(message))


def _size(found: re.Match[str] | None) -> int | None:
    return None if found is None else int(float(found["number"]) * _UNITS[found["unit"]])
