"""Guard zones: known bytes before and behind each tensor that a candidate makes through torch in one call.

A kernel that writes outside its tensors changes a zone, and `Guards.broken` finds that after the call. A guarded tensor
has a storage of its own, which begins and ends with its elements. So code that looks at the storage, its offset or its
size finds nothing unusual; only resizing the tensor fails. Memory that the candidate allocated before the call, or that
it gets in other ways (CUDA graphs, compiled code, its own allocator), has no zones.

This code runs in the candidate's own process. A candidate that takes it over can hide a broken zone, and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..devices.base import Device
from ..shared import small_floats

#: Size of each zone in bytes, and what it holds: as numbers tiny, negative ones, so that reading them changes little.
_ZONE = 64 << 10
_PATTERN = 0xA5
#: Bytes of tensors that the candidate has dropped are kept up to about this size, until their zones are looked at.
#: Results of operators that are larger than this are not guarded, since they are copied into guarded memory.
_MOST = 256 << 20
#: Most broken zones that are reported.
_MOST_REPORTED = 4
_ATEN = torch.ops.aten
#: Operators that return memory with any content.
_EMPTY = {
    _ATEN.empty.memory_format,
    _ATEN.empty_strided.default,
    _ATEN.empty_like.default,
    _ATEN.new_empty.default,
    _ATEN.new_empty_strided.default,
}


class _Part:
    """A part of device memory, as torch.as_tensor takes it without copying."""

    def __init__(self, base: torch.Tensor, start: int, nbytes: int) -> None:
        self.base = base
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (base.data_ptr() + start, False),
            "version": 3,
            "strides": None,
        }


@dataclass(frozen=True, slots=True)
class _Block:
    """The memory of one guarded tensor, with its zones. `owner` lives as long as the tensor."""

    base: torch.Tensor
    owner: weakref.ref[Any]
    dtype: torch.dtype
    shape: tuple[int, ...]

    def zones(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.base[:_ZONE], self.base[-_ZONE:]


@contextlib.contextmanager
def guarded(device: Device) -> Iterator[Guards | None]:
    """Guard the tensors that the body makes on `device`. None if that could change how a later call behaves.

    PyTorch never runs compiled code again in a function that it has seen under a dispatch mode, so the candidate would
    be slower from now on.
    """
    if "torch._dynamo" in sys.modules:
        yield None
        return
    guards = Guards(device)
    with guards:
        yield guards


class Guards(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts zones around the tensors that operators of torch return while it is entered."""

    def __init__(self, device: Device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._blocks: list[_Block] = []
        #: Bytes of all blocks since the last look at dropped ones.
        self._since = 0
        self._broken: list[dict[str, Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise the first operator would import torch._dynamo, which takes more than a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _EMPTY and (made := self._empty(func, args, kwargs)) is not None:
            return made
        result = func(*args, **kwargs)
        if func in _EMPTY or not _makes_one_tensor(func) or not self._is_eligible(result, result.device):
            return result
        if _extent(result) > _MOST or _storage(result) in {_storage(tensor) for tensor in _tensors((args, kwargs))}:
            return result
        target = self._allocate(result)
        if target is None:
            return result
        with contextlib.suppress(RuntimeError, NotImplementedError):  # its elements overlap, or torch cannot copy them
            small_floats.raw(target).copy_(small_floats.raw(result))
            return target
        return result

    def broken(self) -> list[dict[str, Any]]:
        """Return which zones were written to, once the device has done its work."""
        self._device.synchronize()
        self._look(self._blocks)
        return self._broken[:_MOST_REPORTED]

    def _empty(self, func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor | None:
        """Return a guarded tensor in place of an empty one, without making that one first; None if it is impossible."""
        place = kwargs.get("device") or (args[0].device if isinstance(args[0], torch.Tensor) else torch.device("cpu"))
        if kwargs.get("pin_memory") or place.type != self._device.torch_device.type:
            return None
        with contextlib.suppress(RuntimeError, NotImplementedError):
            like = func(*args, **{**kwargs, "device": torch.device("meta")})
            return self._allocate(like) if self._is_eligible(like, place) else None
        return None

    def _is_eligible(self, made: Any, place: torch.device) -> bool:
        return (
            type(made) is torch.Tensor
            and made.layout is torch.strided
            and not made.is_quantized
            and made.numel() > 0
            and place.type == self._device.torch_device.type
            and not (place.type == "cuda" and torch.cuda.is_current_stream_capturing())
        )

    def _allocate(self, like: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor between zones; None if there is no memory for it."""
        nbytes = _extent(like)
        if self._since + nbytes > _MOST:
            self._let_go()
        where = self._device.torch_device
        try:
            base = torch.empty(nbytes + 2 * _ZONE, dtype=torch.uint8, device=where)
        except (RuntimeError, MemoryError):
            return None
        self._since += len(base)
        owner: Any
        if where.type == "cuda":
            owner = _Part(base, _ZONE, nbytes)
            flat = torch.as_tensor(owner, device=where)
        else:
            owner = (ctypes.c_uint8 * nbytes).from_address(base.data_ptr() + _ZONE)
            owner.base = base
            flat = torch.frombuffer(owner, dtype=torch.uint8)
        block = _Block(base, weakref.ref(owner), like.dtype, tuple(like.shape))
        for zone in block.zones():
            zone.fill_(_PATTERN)
        self._blocks.append(block)
        made = torch.empty(0, dtype=like.dtype, device=where)  # not a view, whatever the mode of autograd is
        return made.set_(flat.untyped_storage(), 0, like.shape, like.stride())

    def _let_go(self) -> None:
        """Look at the zones of dropped tensors, and free their memory."""
        dropped = [block for block in self._blocks if block.owner() is None]
        if dropped:
            self._device.synchronize()
            self._look(dropped)
            self._blocks = [block for block in self._blocks if block.owner() is not None]
        self._since = 0

    def _look(self, blocks: list[_Block]) -> None:
        if not blocks:
            return
        changed = [(zone != _PATTERN).any() for block in blocks for zone in block.zones()]
        for at, is_broken in enumerate(torch.stack(changed).tolist()):
            if is_broken:
                block = blocks[at // 2]
                self._broken.append(_describe(block, block.zones()[at % 2], behind=bool(at % 2)))


def _describe(block: _Block, zone: torch.Tensor, *, behind: bool) -> dict[str, Any]:
    """Return what `answers.read_call` reads about a broken zone."""
    places = (zone != _PATTERN).nonzero().view(-1)
    return {
        "behind": behind,
        "nbytes": len(places),
        "distance": int(places[0]) if behind else _ZONE - 1 - int(places[-1]),
        "dtype": str(block.dtype).removeprefix("torch."),
        "shape": list(block.shape),
    }


def _extent(tensor: torch.Tensor) -> int:
    """Return how many bytes lie between the beginning of a tensor's first element and the end of its last one."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _makes_one_tensor(func: Any) -> bool:
    """Return True if an operator of torch's own returns one tensor, and does not say that it is one of its arguments."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return False
    returns = func._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "Tensor" and returns[0].alias_info is None


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
