"""What calls of a reference may change: a snapshot of it, with which changes are found, named and undone.

The snapshot covers what the module and the variables of the reference's file reach: parameters, buffers, other tensors,
attributes, containers, variables of closures, attributes of the file's own classes, and random generators. Values are
restored in place, so every tensor stays the same object at the same address.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Collection, Iterable, MutableMapping
from dataclasses import dataclass
from types import FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch

from ..shared import small_floats, tree
from ..shared.buffers import same_bytes
from .holders import (
    EMPTY,
    ClassAttributes,
    Entries,
    Holder,
    Items,
    NotCopied,
    Pairs,
    Slots,
    Tensor,
    Variable,
    contents,
    is_dense,
    is_special,
    opaque,
)

#: Values without parts, which are compared by value.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
#: Attributes of a module that hold its state; its other attributes with a `_` are PyTorch's own.
_TENSORS = {"_parameters": "parameter", "_buffers": "buffer"}
_OF_TORCH = frozenset(vars(torch.nn.Module())) - {"training"}
#: Parameters beyond this, in bytes, are not copied: they are most of what a large problem holds, and hardly any reference
#: changes its own parameters.
_COPIED = 1 << 28
#: Containers are looked into to this depth.
_DEEPEST = 16

#: Identifies a place in a snapshot.
Key = tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Something that calls have changed."""

    key: Key
    #: What it is, for messages.
    label: str
    #: Its dotted name in the module if it is a tensor there, so that `WithBuffers` can restore it; otherwise "".
    name: str
    restore: Callable[[], None]
    #: False for a large parameter or a sparse tensor, of which no copy was made.
    can_be_restored: bool = True


class Snapshot:
    """The state of a module, and of the file that defines it, at one time."""

    def __init__(self, model: torch.nn.Module, file: ModuleType) -> None:
        self._file = file.__name__
        self._seen: set[int] = set()
        self._holders: list[Holder] = []
        self._clones: dict[int, torch.Tensor] = {}
        self._room = _COPIED
        self._alive: list[Any] = []  # an id stands for its object only while that exists
        self._visit_module(model, type(model).__name__, "")
        names = {name: value for name, value in vars(file).items() if not is_special(name)}
        self._add(Entries(lambda name: f"global variable `{name}`", vars(file), names))
        for name, value in names.items():
            self._visit(value, f"global variable `{name}`")

    def changed(self) -> list[Place]:
        """Return the places that have another value now."""
        places = []
        for number, holder in enumerate(self._holders):
            for key in holder.changed(self._is_same):
                restore = functools.partial(holder.restore, key)
                kept = not isinstance(holder, NotCopied)
                places.append(Place((number, key), holder.label(key), holder.tensor_name(key), restore, kept))
        return places

    def restore(self, *, but: Collection[Key] = (), only: Collection[Key] | None = None) -> None:
        """Restore all places, or only some; except those in `but`."""
        with torch.no_grad():
            for place in self.changed():
                if place.key not in but and (only is None or place.key in only):
                    place.restore()

    def _is_same(self, old: Any, new: Any) -> bool:
        """Return True if two entries of a container have the same value. What is in `old` itself is compared elsewhere."""
        if old is new:
            return True
        if isinstance(old, torch.Tensor):
            clone = self._clones.get(id(old))
            return isinstance(new, torch.Tensor) and clone is not None and is_dense(new) and same_bytes(new, clone)
        if type(old) is not type(new):
            return False
        if isinstance(old, tuple):
            return len(old) == len(new) and all(map(self._is_same, old, new))
        return isinstance(old, _PLAIN) and bool(old == new)

    def _add(self, holder: Holder) -> None:
        self._holders.append(holder)

    def _visit(self, value: Any, label: str, name: str = "", depth: int = 0) -> None:
        """Add what `value` holds. `label` says where it was found; `name` is that of a tensor in the module."""
        if isinstance(value, _PLAIN) or id(value) in self._seen or depth > _DEEPEST:
            return
        self._seen.add(id(value))
        self._alive.append(value)
        parts: Iterable[Any] = ()
        if isinstance(value, torch.Tensor):
            size = value.nbytes if isinstance(value, torch.nn.Parameter) and is_dense(value) else 0
            if size > self._room:
                self._add(NotCopied(functools.partial(tree.checksum, value), label))
            elif value.layout is not torch.strided or value.is_quantized:
                self._add(NotCopied(lambda: value._version, label))
            elif is_dense(value):
                self._room -= size
                clone = self._clones[id(value)] = small_floats.cloned(value.detach())
                self._add(Tensor(value, clone, label, name))
        elif isinstance(value, torch.nn.Module):
            self._visit_module(value, f"{type(value).__name__} in {label}", None)
        elif isinstance(value, (list, collections.deque, set)):
            self._add(Items(value, list(value), label))
            parts = list(value)
        elif isinstance(value, dict):
            self._add(Pairs(value, list(value.items()), label))
            parts = list(value.values())
        elif isinstance(value, tuple | frozenset | MappingProxyType):
            parts = list(value.values() if isinstance(value, MappingProxyType) else value)
        elif (generator := opaque(value, label)) is not None:
            self._add(generator)
        elif isinstance(value, MethodType):
            parts = (value.__self__, value.__func__)
        elif isinstance(value, FunctionType):
            self._visit_function(value, depth)
        elif isinstance(value, type):
            self._visit_class(value, depth)
        elif self._is_own(type(value)) or isinstance(value, SimpleNamespace | torch.optim.Optimizer):
            self._visit_object(value, label, depth)
        for part in parts:
            self._visit(part, label, depth=depth + 1)

    def _visit_module(self, module: torch.nn.Module, title: str, path: str | None) -> None:
        """Add the state of a module and its parts. `path` is its name in the model; None if the model has none for it."""
        self._seen.add(id(module))
        self._alive.append(module)
        dotted = "" if not path else f"{path}."

        def name_of(name: str) -> str:
            return "" if path is None else dotted + name

        def label_of(kind: str) -> Callable[[Any], str]:
            return lambda name: f"{kind} `{name}` of {title}"

        for attribute, kind in _TENSORS.items():
            entries = getattr(module, attribute)
            self._add(Entries(label_of(kind), entries, dict(entries), name_of))
            for name, tensor in entries.items():
                self._visit(tensor, label_of(kind)(name), name_of(name))
        own = {name: value for name, value in vars(module).items() if name not in _OF_TORCH}
        self._add(Entries(label_of("attribute"), vars(module), own, name_of, _OF_TORCH))
        for name, value in own.items():
            self._visit(value, label_of("attribute")(name), name_of(name))
        for name, part in module._modules.items():
            if part is not None and id(part) not in self._seen:
                self._visit_module(part, f"{title}.{name}", name_of(name) or None)
        self._visit_class(type(module), 0)

    def _visit_object(self, value: Any, label: str, depth: int) -> None:
        attributes: list[MutableMapping[str, Any]] = [Slots(value)]
        if isinstance(own := getattr(value, "__dict__", None), dict):
            attributes.append(own)
        for held in attributes:
            saved = dict(held)
            self._add(Entries(lambda name: f"`{name}` in {label}", held, saved))
            for part in saved.values():
                self._visit(part, label, depth=depth + 1)

    def _visit_class(self, owner: type, depth: int) -> None:
        if not self._is_own(owner):
            return
        entries = dict(vars(owner))
        label = f"of class {owner.__name__}"
        plain = {name: value for name, value in entries.items() if not is_special(name)}
        self._add(Entries(lambda name: f"attribute `{name}` {label}", ClassAttributes(owner), plain))
        for name, value in entries.items():
            held = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            self._visit(held, f"attribute `{name}` {label}", depth=depth + 1)

    def _visit_function(self, function: FunctionType, depth: int) -> None:
        if function.__module__ != self._file:
            return
        of = f"of function `{function.__qualname__}`"
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) not in self._seen:
                self._seen.add(id(cell))
                self._alive.append(cell)
                self._add(Variable(cell, f"variable `{name}` in a closure {of}"))
                if (held := contents(cell)) is not EMPTY:
                    self._visit(held, f"variable `{name}` in a closure {of}", depth=depth + 1)
        self._add(Entries(lambda name: f"attribute `{name}` {of}", function.__dict__, dict(function.__dict__)))
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._visit(value, f"a default value {of}", depth=depth + 1)
        for name, value in function.__dict__.items():
            self._visit(value, f"attribute `{name}` {of}", depth=depth + 1)

    def _is_own(self, owner: type) -> bool:
        return owner.__module__ == self._file
