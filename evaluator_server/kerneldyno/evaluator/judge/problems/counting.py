"""What one call of a reference is made of, counted once for each problem: operations of arithmetic, and kernels.

By torch's dispatcher, in one more run. (A graph of the call would say more; but to record one executes those parts of a call
that use the legacy stream without the others.) So kernels that torch does not launch itself are not seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from ...devices.base import Device
from ...toolkits import Problem
from .trial import Trial

_log = logging.getLogger("kerneldyno.judge")

#: Operations that are no views and launch nothing all the same.
_MAKERS = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
_VIEWS = {"_unsafe_view", "as_strided_", "resize_", "set_", "squeeze_", "t_", "transpose_", "unsqueeze_"}
_IDLE = _MAKERS | _VIEWS
#: Recurrent layers of cuDNN are one operation, and launch about so many kernels for each step of each layer.
_RECURRENT, _KERNELS_A_STEP = "_cudnn_rnn", 2
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv"}


@dataclass(frozen=True, slots=True)
class Counted:
    """What a call is made of."""

    #: Operations of matrix products, convolutions and attention, a multiply-add as two; 0 when none is known.
    flops: int = 0
    #: Operations that make the device do something, at least one: about as many kernels.
    kernels: int = 1
    #: Whether it could be counted at all.
    is_known: bool = False
    #: Whether there are some that torch's settings let compute in TF32, on float32 and a GPU.
    may_use_tf32: bool = False


def count(problem: Problem, device: Device, example: Trial) -> Counted:
    """Count what the reference does on the inputs of `example`; next to nothing where it cannot run under the counter.

    What it ran without and fails under is torch.compile, or a library that bears no such mode. Raises OutOfMemoryError.
    """
    counter = _Counter(device.torch_device.type)
    arguments = example.inputs.arguments(example.inputs.master.clone(), device)
    try:
        with torch.no_grad(), counter:
            problem.expected(0, arguments, example.seed)
        device.synchronize()
    except torch.OutOfMemoryError:
        raise
    except BaseException as error:  # a reference may catch what it did not expect, and exit
        _log.info("a reference cannot be counted: %s: %s", type(error).__name__, error)
        return Counted()
    return Counted(counter.flops, max(1, counter.kernels), True, counter.may_use_tf32)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what torch's own formulas say of each operation, and the operations that the device has a part in."""

    def __init__(self, kind: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self.kernels = 0
        self.may_use_tf32 = False
        self._kind = kind

    def count(
        self, operation: Any, types: Any, arguments: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None
    ) -> Any:
        """Execute one operation, and count it."""
        result = operation(*arguments, **(keywords or {}))
        if operation.overloadpacket == torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
            flops_of: Callable[..., int] = sdpa_flop_count  # the one that torch has no formula for
            self.flops += flops_of(*(tensor.shape for tensor in arguments[:3]))
        elif (formula := flop_registry.get(operation.overloadpacket)) is not None:
            self.flops += formula(*arguments, **(keywords or {}), out_val=result)
        self.may_use_tf32 |= self._kind == "cuda" and _lets_tf32(operation.overloadpacket.__name__)
        if not operation.is_view and operation.overloadpacket.__name__ not in _IDLE:
            made = result if isinstance(result, (list, tuple)) else [result]
            launched = any(
                isinstance(one, torch.Tensor) and one.numel() > 0 and one.device.type == self._kind for one in made
            )
            self.kernels += launched * _kernels(operation, arguments, keywords or {})
        return result


# Under another name in the class: torch has what is defined there import the whole of Dynamo first, which takes two seconds.
_Counter.__torch_dispatch__ = _Counter.count  # type: ignore[method-assign, assignment]


def _lets_tf32(name: str) -> bool:
    """Say whether an operation of this name may compute in TF32 by the settings that are in force."""
    convolution = "convolution" in name or name == _RECURRENT
    if not convolution and name not in _PRODUCTS:
        return False
    try:
        return torch.backends.cudnn.allow_tf32 if convolution else torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # set by the newer switches, which the older ones cannot express
        return True


def _kernels(operation: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> int:
    """Return about how many kernels one operation launches."""
    if operation.overloadpacket.__name__ != _RECURRENT:
        return 1
    names = [argument.name for argument in operation._schema.arguments]
    given: dict[str, Any] = {**dict(zip(names, arguments, strict=False)), **keywords}
    steps = len(given["batch_sizes"]) or given["input"].shape[1 if given["batch_first"] else 0]
    return int(_KERNELS_A_STEP * steps * given["num_layers"] * (2 if given["bidirectional"] else 1))
