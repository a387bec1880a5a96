"""Stored inputs of workloads in the form of FlashInfer Trace: tensors of safetensors files, which a request must hold.

Short ones are JSON in a workload's value. The others are compressed text of the reference, each once, however many
workloads use it: a request has no field for files, and the reference is what makes the inputs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kerneldyno.cli.common import UsageError
from kerneldyno.rpc.validation import MAX_SOURCE_BYTES
from kerneldyno.rpc.workloads import MAX_WORKLOAD_BYTES

#: Largest tensor in bytes before it is compressed. The judge makes it anew for each trial.
MAX_TENSOR_BYTES = 64 << 20
#: Formats of safetensors' dtypes for `struct`, of those that JSON can hold; and torch's names of all.
_FORMATS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "F64": "d", "F32": "f", "BOOL": "?"}
_DTYPES = {
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"},
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"},
}
_LINE_CHARS = 120

_SOURCE = '''

import base64 as _base64
import functools as _functools
import zlib as _zlib

# Stored inputs: dtype, and the bytes of the tensor, compressed by zlib, in base64.
_STORED = {{
{entries}}}


@_functools.cache
def _stored_bytes(key):
    return _zlib.decompress(_base64.b64decode(_STORED[key][1]))


def _stored(key):
    """Return a new tensor of one dimension."""
    data = _torch.frombuffer(bytearray(_stored_bytes(key)), dtype=_torch.uint8)
    return data.view(getattr(_torch, _STORED[key][0]))
'''


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a file: its dtype by safetensors' name, and its bytes."""

    dtype: str
    data: bytes

    @property
    def fits(self) -> bool:
        """Return whether a workload's value may hold it as JSON."""
        return not self.data or (self.dtype in _FORMATS and len(self.data) <= MAX_WORKLOAD_BYTES)

    @property
    def numbers(self) -> Sequence[float]:
        """Return its elements in order."""
        form = _FORMATS.get(self.dtype, "B")
        return list(struct.unpack(f"<{len(self.data) // struct.calcsize(form)}{form}", self.data))


class StoredInputs:
    """The tensors that become text of the reference."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def add(self, tensor: Tensor) -> str:
        """Add a tensor, and return the key under which the reference finds it. Equal tensors have one key."""
        key = hashlib.sha256(tensor.dtype.encode() + tensor.data).hexdigest()[:16]
        if key not in self._entries:
            text = base64.b64encode(zlib.compress(tensor.data, 9)).decode()
            lines = "\n".join(text[at : at + _LINE_CHARS] for at in range(0, len(text), _LINE_CHARS))
            self._entries[key] = f'    "{key}": ("{_DTYPES[tensor.dtype]}", """\n{lines}\n"""),\n'
        return key

    def source(self) -> str:
        """Return what the reference needs to make them; empty if there are none."""
        return _SOURCE.format(entries="".join(self._entries.values())) if self._entries else ""

    def check(self, reference: str, path: Path | None) -> None:
        """Raise UsageError if they make the text of the reference too long."""
        size = len(reference.encode())
        if self._entries and size > MAX_SOURCE_BYTES:
            taken = sum(map(len, self._entries.values()))
            raise UsageError(
                f"{path}: the stored inputs of its workloads take {taken} bytes as compressed text, and with them the "
                f"reference has {size}; at most {MAX_SOURCE_BYTES} (1 MiB) fit into a request. Split the file and evaluate "
                'fewer workloads at a time, or have large inputs drawn ("type": "random")'
            )


def read_tensor(file: Path, key: str, beside: Path | None) -> Tensor:
    """Read a tensor of a safetensors file.

    The file begins with the length of a JSON header (eight bytes), which names dtype, shape and place of each tensor
    (https://huggingface.co/docs/safetensors). A relative path counts from the workloads' file.

    Raises:
        UsageError: The file cannot be read, has no such tensor, or the tensor is too large or of an unknown dtype.
    """
    if not file.is_absolute() and beside is not None:
        file = beside.parent / file
    try:
        with open(file, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))[key]
            begin, end = map(int, header["data_offsets"])
            dtype, size = str(header["dtype"]), end - begin
            if dtype not in _DTYPES:
                raise UsageError(f"{file}: {key} has dtype {dtype}; known are {', '.join(_DTYPES)}")
            if size > MAX_TENSOR_BYTES:
                raise UsageError(
                    f"{file}: {key} has {size} bytes; at most {MAX_TENSOR_BYTES} (64 MiB) are taken before they are "
                    'compressed. Have it drawn ("type": "random"), or store a part'
                )
            stream.seek(8 + length + begin)
            data = stream.read(size)
            if len(data) != size:
                raise UsageError(f"{file} ends before {key} does")
            return Tensor(dtype, data)
    except KeyError as error:
        raise UsageError(f"{file} has no tensor {key}, or its header lacks {error}") from error
    except (OSError, OverflowError, MemoryError, TypeError, ValueError, struct.error) as error:
        raise UsageError(f"{file} cannot be read as safetensors: {error}") from error
