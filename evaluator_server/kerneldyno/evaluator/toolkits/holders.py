"""The kinds of things that hold state: what a snapshot (`state.py`) saves of each, compares and restores."""

from __future__ import annotations

import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, MutableMapping
from dataclasses import dataclass, field
from types import CellType, MemberDescriptorType
from typing import Any

import torch

from ..shared import small_floats
from ..shared.buffers import same_bytes

#: Stands for a name that does not exist, and for the value of a variable that has none yet.
_MISSING = object()
EMPTY = object()


class Holder(ABC):
    """One thing of which a snapshot was taken."""

    @abstractmethod
    def changed(self, same: Callable[[Any, Any], bool]) -> list[Any]:
        """Return the keys of what has changed in it, by a function that compares entries."""

    @abstractmethod
    def restore(self, key: Any) -> None:
        """Restore what a key stands for."""

    @abstractmethod
    def label(self, key: Any) -> str:
        """Return what a key stands for, for messages."""

    def tensor_name(self, key: Any) -> str:
        """Return the name in the model if a key stands for a tensor that has one; otherwise ""."""
        return ""


@dataclass(slots=True)
class Tensor(Holder):
    """The values of a tensor."""

    tensor: torch.Tensor
    clone: torch.Tensor
    title: str
    name: str

    def changed(self, same: Callable[[Any, Any], bool]) -> list[Any]:
        return [] if same_bytes(self.tensor, self.clone) else [None]

    def restore(self, key: Any) -> None:
        if (self.tensor.shape, self.tensor.dtype) != (self.clone.shape, self.clone.dtype):
            self.tensor.data = small_floats.cloned(self.clone)
        else:
            small_floats.raw(self.tensor.detach()).copy_(small_floats.raw(self.clone))

    def label(self, key: Any) -> str:
        return self.title

    def tensor_name(self, key: Any) -> str:
        return self.name


@dataclass(slots=True)
class NotCopied(Holder):
    """A tensor of which there is no copy: only a number (its checksum or its version) that changes with it."""

    read: Callable[[], int]
    title: str
    saved: int = field(init=False)

    def __post_init__(self) -> None:
        self.saved = self.read()

    def changed(self, same: Callable[[Any, Any], bool]) -> list[Any]:
        return [] if self.read() == self.saved else [None]

    def restore(self, key: Any) -> None:
        """Do nothing: its values are lost."""

    def label(self, key: Any) -> str:
        return self.title


@dataclass(slots=True)
class Entries(Holder):
    """Named entries: attributes, or global variables."""

    title: Callable[[Any], str]
    entries: MutableMapping[str, Any]
    saved: dict[str, Any]
    name_of: Callable[[str], str] = lambda _: ""
    ignored: Collection[str] = frozenset()

    def changed(self, same: Callable[[Any, Any], bool]) -> list[Any]:
        now = dict(self.entries)
        keys = [name for name, old in self.saved.items() if not same(old, now.get(name, _MISSING))]
        new = (name for name in now if name not in self.saved and name not in self.ignored)
        return keys + [name for name in new if not name.startswith("__")]  # torch.compile adds such global variables

    def restore(self, key: Any) -> None:
        if key in self.saved:
            self.entries[key] = self.saved[key]
        else:
            self.entries.pop(key, None)

    def label(self, key: Any) -> str:
        return self.title(key)

    def tensor_name(self, key: Any) -> str:
        old = self.saved.get(key)
        return self.name_of(key) if isinstance(old, torch.Tensor) and is_dense(old) else ""


@dataclass(slots=True)
class Items(Holder):
    """The items of a list, a deque or a set."""

    container: Any
    saved: list[Any]
    title: str

    def changed(self, same: Callable[[Any, Any], bool]) -> list[Any]:
        if isinstance(self.container, set):
            return [] if self.container == set(self.saved) else [None]
        now = list(self.container)
        return [] if len(now) == len(self.saved) and all(map(same, self.saved, now)) else [None]

    def restore(self, key: Any) -> None:
        self.container.clear()
        (self.container.update if isinstance(self.container, set) else self.container.extend)(self.saved)

    def label(self, key: Any) -> str:
        return self.title


@dataclass(slots=True)
class Pairs(Holder):
    """The keys and values of a dict."""

    container: dict[Any, Any]
    saved: list[tuple[Any, Any]]
    title: str

    def changed(self, same: Callable[[Any, Any], bool]) -> list[Any]:
        now = list(self.container.items())
        if len(now) != len(self.saved):
            return [None]
        alike = (same(old[0], new[0]) and same(old[1], new[1]) for old, new in zip(self.saved, now, strict=True))
        return [] if all(alike) else [None]

    def restore(self, key: Any) -> None:
        self.container.clear()
        self.container.update(self.saved)

    def label(self, key: Any) -> str:
        return self.title


def contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return EMPTY


@dataclass(slots=True)
class Variable(Holder):
    """A variable that a closure shares with others."""

    cell: CellType
    title: str
    saved: Any = field(init=False)

    def __post_init__(self) -> None:
        self.saved = contents(self.cell)

    def changed(self, same: Callable[[Any, Any], bool]) -> list[Any]:
        return [] if same(self.saved, contents(self.cell)) else [None]

    def restore(self, key: Any) -> None:
        if self.saved is EMPTY:
            del self.cell.cell_contents
        else:
            self.cell.cell_contents = self.saved

    def label(self, key: Any) -> str:
        return self.title


@dataclass(slots=True)
class Opaque(Holder):
    """An object whose state can be read and written as a whole, such as a random generator or an array."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]
    title: str
    saved: Any = field(init=False)

    def __post_init__(self) -> None:
        self.saved = self.read()

    def changed(self, same: Callable[[Any, Any], bool]) -> list[Any]:
        now = self.read()
        if isinstance(now, torch.Tensor):
            return [] if torch.equal(now, self.saved) else [None]
        return [] if repr(now) == repr(self.saved) else [None]

    def restore(self, key: Any) -> None:
        self.write(self.saved)

    def label(self, key: Any) -> str:
        return self.title


class ClassAttributes(MutableMapping[str, Any]):
    """The attributes of a class as a mapping that can be written."""

    def __init__(self, owner: type) -> None:
        self._owner = owner

    def __getitem__(self, name: str) -> Any:
        return vars(self._owner)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(list(vars(self._owner)))

    def __len__(self) -> int:
        return len(vars(self._owner))


class Slots(MutableMapping[str, Any]):
    """The attributes that an object holds in slots, as a mapping."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._slots = {
            name: slot
            for kind in type(owner).__mro__
            for name, slot in vars(kind).items()
            if isinstance(slot, MemberDescriptorType)
        }

    def __getitem__(self, name: str) -> Any:
        try:
            return self._slots[name].__get__(self._owner)
        except AttributeError:  # it has no value
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        self._slots[name].__set__(self._owner, value)

    def __delitem__(self, name: str) -> None:
        self._slots[name].__delete__(self._owner)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._slots if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def is_special(name: str) -> bool:
    """Return True for names with underscores on both sides, which are Python's own."""
    return name.startswith("__") and name.endswith("__")


def is_dense(tensor: torch.Tensor) -> bool:
    """Return True for tensors whose values can be compared and restored here.

    An expanded tensor has its values from another one, and torch cannot write to it.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        return False
    return all(size < 2 or step != 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def opaque(value: Any, label: str) -> Opaque | None:
    """Return a holder for a random generator or a NumPy array; None for anything else."""
    if isinstance(value, torch.Generator):
        return Opaque(value.get_state, value.set_state, label)
    if isinstance(value, random.Random):
        return Opaque(value.getstate, value.setstate, label)
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return Opaque(lambda: bits.state, lambda state: setattr(bits, "state", state), label)
    if isinstance(value, numpy.random.RandomState):
        return Opaque(value.get_state, value.set_state, label)
    if isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
        return Opaque(value.tobytes, lambda saved: _fill(value, saved), label)
    return None


def _fill(array: Any, saved: bytes) -> None:
    array.flat[:] = sys.modules["numpy"].frombuffer(saved, array.dtype)
