"""Which values pass between judge and runner: tensors, plain Python values, and containers of them, without pickle.

`flatten` makes a JSON structure of a value and numbers its tensors. In it an object with one key stands for whatever
JSON does not have: {"tensor": 3}, {"tuple": [...]}, {"dict": [[key, part], ...]}, {"namedtuple": [name, [[field, part],
...]]}, {"dataclass": ...}, {"complex": [real, imaginary]}, {"dtype": name}, {"device": type}. Tensors in a dict are
numbered by its keys and those in a dataclass by its fields, so equal values have the same numbers whatever the order in
which they were made.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import torch

from . import records
from .plain_tensors import UnsupportedValueError, require_plain

#: Most levels of containers.
_MOST_LEVELS = 32
#: Most parts of a value: each container, tensor and number is one, and a string is one for each 16 characters. So the
#: structure fits into a frame.
_MOST_PARTS, _CHARACTERS = 10_000, 16
#: Longest integer, in bits. Python refuses to parse much longer ones.
_MOST_BITS = 4096
#: What to do instead of returning a value that cannot pass.
_ADVICE: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (enum.Enum, "use its value: .value"),
    ((set, frozenset), "a set has no order: use a sorted list"),
    ((bytes, bytearray, memoryview), "use a tensor of dtype torch.uint8"),
    (torch.nn.Module, "use its tensors"),
    (torch.UntypedStorage, "use a tensor"),
    ((range, Iterable), "use a list of its parts: list(...)"),
)
_OTHERWISE = "use tensors, numbers, strings, None, lists, tuples, dicts, namedtuples and dataclasses"


@dataclass(slots=True)
class _Split:
    """What `flatten` has found so far."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    is_sketch: bool = False
    are_arguments: bool = False
    parts: int = 0


def flatten(value: Any, *, is_sketch: bool = False, are_arguments: bool = False) -> tuple[Any, list[torch.Tensor]]:
    """Split `value` into a JSON structure and its tensors.

    Args:
        value: The value.
        is_sketch: Whether tensors on the device "meta" may be in it.
        are_arguments: Whether code of the other process will get it: no dataclass, since its class is not there.

    Returns:
        The structure, in which indices stand for tensors, and the tensors in this order.

    Raises:
        UnsupportedValueError: The value contains something that cannot pass between judge and runner.
    """
    split = _Split(is_sketch=is_sketch, are_arguments=are_arguments)
    return _take_apart(value, split, 0), split.tensors


# Not a closure of `flatten`: a closure that calls itself by name is part of a reference cycle, together with everything
# it holds. Every output of a timed call would then stay in memory until the cyclic collector runs.
def _take_apart(item: Any, split: _Split, depth: int) -> Any:
    _count(split, 1)
    if isinstance(item, torch.Tensor):
        split.tensors.append(require_plain(item, is_sketch=split.is_sketch))
        return {"tensor": len(split.tensors) - 1}
    if item is None or type(item) in (bool, float):
        return item
    if depth > _MOST_LEVELS:
        raise _too_deep()
    if isinstance(item, list):
        return [_take_apart(part, split, depth + 1) for part in item]
    if isinstance(item, tuple):
        if records.is_namedtuple(item):
            return {"namedtuple": _record(item, split, depth)}
        return {"tuple": [_take_apart(part, split, depth + 1) for part in item]}
    if isinstance(item, dict):
        taken = {
            key: [_take_apart(key, split, depth + 1), _take_apart(part, split, depth + 1)]
            for key, part in ordered(item)
        }
        return {"dict": [taken[key] for key in item]}
    return _plain(item, split, depth)


def _record(item: Any, split: _Split, depth: int) -> list[Any]:
    try:
        named = records.fields(item)
    except AttributeError as error:
        raise UnsupportedValueError(f"a dataclass with a field that was never set: {error}") from None
    name = type(item).__name__
    _count(split, sum(1 + len(text) // _CHARACTERS for text in (name, *(each for each, _ in named))))
    return [name, [[each, _take_apart(part, split, depth + 1)] for each, part in named]]


def _plain(item: Any, split: _Split, depth: int) -> Any:
    """Return the structure of a value that is neither a tensor nor a list, tuple or dict."""
    if isinstance(item, enum.Enum):
        raise _unsupported(item)
    if isinstance(item, int):
        if item.bit_length() > _MOST_BITS:
            raise UnsupportedValueError(f"an integer of {item.bit_length()} bits; at most {_MOST_BITS} are possible")
        return int(item)
    if isinstance(item, float):
        return float(item)
    if isinstance(item, complex):
        return {"complex": [item.real, item.imag]}
    if isinstance(item, str):
        _count(split, len(item) // _CHARACTERS)
        return str(item)
    if isinstance(item, torch.dtype):
        return {"dtype": str(item).removeprefix("torch.")}
    if isinstance(item, torch.device):
        return {"device": item.type}
    if records.is_dataclass(item):
        if split.are_arguments:
            name = type(item).__name__
            raise UnsupportedValueError(
                f"a dataclass ({name}), whose class a candidate does not have; use a namedtuple"
            )
        return {"dataclass": _record(item, split, depth)}
    if hasattr(item, "item") and hasattr(item, "dtype") and hasattr(item, "ndim"):
        return _of_numpy(item, split, depth)
    raise _unsupported(item)


def _of_numpy(item: Any, split: _Split, depth: int) -> Any:
    """Return the structure of a NumPy scalar: that of the Python number of its kind."""
    if item.ndim != 0:
        raise UnsupportedValueError(f"a value of type {type(item).__name__}; use a tensor: torch.from_numpy(...)")
    kinds: dict[str, Callable[[Any], Any]] = {"b": bool, "i": int, "u": int, "f": float, "c": complex, "U": str}
    made = kinds.get(getattr(item.dtype, "kind", ""))
    if made is None:
        raise _unsupported(item)
    return _take_apart(made(item.item()), split, depth)


def _count(split: _Split, more: int) -> None:
    split.parts += more
    if split.parts > _MOST_PARTS:
        raise UnsupportedValueError(
            f"a value of more than {_MOST_PARTS} parts (tensors, numbers, {_CHARACTERS} characters of a string); put"
            " numbers into a tensor, and stack tensors"
        )


def _unsupported(item: Any) -> UnsupportedValueError:
    advice = next((said for kinds, said in _ADVICE if isinstance(item, kinds)), _OTHERWISE)
    return UnsupportedValueError(f"a value of type {type(item).__name__}; {advice}")


def ordered(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return keys and values of a dict, in an order that only depends on the keys. Raises UnsupportedValueError."""
    pairs = list(value.items())
    if all(type(key) is str for key in value):
        return sorted(pairs, key=itemgetter(0)) if len(pairs) > 1 else pairs
    return sorted(pairs, key=lambda pair: json.dumps(_key(pair[0])))


def _key(key: Any) -> Any:
    structure, tensors = flatten(key)
    if tensors:
        raise UnsupportedValueError("a dict with a tensor in a key; use numbers, strings, None and tuples of them")
    return structure


def parts(value: Any) -> Sequence[Any]:
    """Return the parts of a container, in the order in which their tensors are numbered; nothing for other values."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return [part for _, part in ordered(value)]
    return [part for _, part in records.fields(value)] if records.is_dataclass(value) else ()


def mapped(value: Any, change: Callable[[torch.Tensor], Any], depth: int = 0) -> Any:
    """Return `value` with the result of `change` in place of each tensor; tensors are visited as they are numbered.

    `depth` is the number of containers around it. Raises UnsupportedValueError if that becomes too large.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if depth > _MOST_LEVELS:
        raise _too_deep()
    if isinstance(value, dict):
        made = {key: mapped(part, change, depth + 1) for key, part in ordered(value)}
        return {key: made[key] for key in value}
    if isinstance(value, list | tuple) and not records.is_namedtuple(value):
        return type(value)(mapped(part, change, depth + 1) for part in value)
    if isinstance(value, tuple) or records.is_dataclass(value):
        return records.replaced(value, lambda part: mapped(part, change, depth + 1))
    return value


def _too_deep() -> UnsupportedValueError:
    return UnsupportedValueError(f"a value nested deeper than {_MOST_LEVELS} levels, or one that contains itself")


def rebuild(structure: Any, tensors: Sequence[torch.Tensor], device: torch.device) -> Any:
    """Return the value that `flatten` split, with `tensors` in place of its tensors."""
    if isinstance(structure, list):
        return [rebuild(part, tensors, device) for part in structure]
    if not isinstance(structure, dict):
        return structure
    ((kind, content),) = structure.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "tuple":
            return tuple([rebuild(part, tensors, device) for part in content])
        case "dict":
            return {rebuild(key, tensors, device): rebuild(part, tensors, device) for key, part in content}
        case "namedtuple":
            name, named = content
            made = records.namedtuple_class(name, tuple(each for each, _ in named))
            return made(*(rebuild(part, tensors, device) for _, part in named))
        case "dataclass":
            name, named = content
            made = records.dataclass_class(name, tuple(each for each, _ in named))
            return made(*(rebuild(part, tensors, device) for _, part in named))
        case "complex":
            return complex(*content)
        case "dtype":
            return getattr(torch, content)
    return device if content != "cpu" else torch.device("cpu")


def numbers(structure: Any, depth: int = 0) -> list[int]:
    """Return the numbers of the tensors in a structure, in its order.

    Raises UnsupportedValueError if `flatten` cannot have made it; anybody may have sent it. `depth` is the number of
    containers around it.
    """
    if structure is None or isinstance(structure, bool | int | float | str):
        return []
    if depth > _MOST_LEVELS:
        raise _too_deep()
    if isinstance(structure, list):
        return _numbers_of_all(structure, depth)
    if not isinstance(structure, dict) or len(structure) != 1:
        raise _no_structure()
    ((kind, content),) = structure.items()
    match kind, content:
        case "tensor", int() if type(content) is int:
            return [content]
        case "tuple", list():
            return _numbers_of_all(content, depth)
        case "dict", list() if all(_is_pair(pair) for pair in content):
            return _numbers_of_all([part for pair in content for part in pair], depth)
        case (("namedtuple" | "dataclass"), [str(), list(named)]) if all(_is_field(pair) for pair in named):
            return _numbers_of_all([part for _, part in named], depth)
        case "complex", [int() | float(), int() | float()]:
            return []
        case "dtype", str() if isinstance(getattr(torch, content, None), torch.dtype):
            return []
        case "device", str():
            return []
    raise _no_structure()


def _numbers_of_all(parts: Sequence[Any], depth: int) -> list[int]:
    return [number for part in parts for number in numbers(part, depth + 1)]


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2


def _is_field(pair: Any) -> bool:
    return _is_pair(pair) and isinstance(pair[0], str)


def _no_structure() -> UnsupportedValueError:
    return UnsupportedValueError("no structure of a value")
