"""Count what one call of a reference consists of, once per problem: arithmetic operations and kernels.

Torch's dispatcher counts them in one more run, so kernels that torch does not launch itself are not seen. (A CUDA graph
of the call would show more. But while a graph is recorded, the parts of a call that use the legacy stream are executed,
and the others are not.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from ..devices.base import Device
from ..shared.running_problem import Counted

_log = logging.getLogger("kerneldyno.toolkits")

#: Operations that are no views, and still launch nothing.
_MAKERS = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
_VIEWS = {"_unsafe_view", "as_strided_", "resize_", "set_", "squeeze_", "t_", "transpose_", "unsqueeze_"}
_IDLE = _MAKERS | _VIEWS
#: A recurrent layer of cuDNN is one operation; it launches about this many kernels per step and layer.
_RECURRENT, _KERNELS_A_STEP = "_cudnn_rnn", 2
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv"}


def count(call: Callable[[], Any], device: Device) -> Counted:
    """Count what a call of a reference does. Raises OutOfMemoryError.

    Return almost nothing if the reference cannot run under the counter. If it ran without the counter and fails under
    it, the cause is torch.compile or a library that does not support dispatch modes.
    """
    counter = _Counter(device.torch_device.type)
    try:
        with torch.no_grad(), device.measured() as used, counter:
            call()
        device.synchronize()
    except torch.OutOfMemoryError:
        raise
    except BaseException as error:  # a reference may catch unexpected exceptions, and exit
        _log.info("event=counting_failed detail=%r", f"{type(error).__name__}: {error}"[:500])
        return Counted()
    return Counted(counter.flops, max(1, counter.kernels), True, counter.may_use_tf32, used.peak)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up torch's own formula for each operation, and the operations that use the device."""

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
            flops_of: Callable[..., int] = sdpa_flop_count  # the one operation for which torch has no formula
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


# Assigned here under another name, because torch imports all of Dynamo (two seconds) for a method defined in the class.
_Counter.__torch_dispatch__ = _Counter.count  # type: ignore[method-assign, assignment]


def _lets_tf32(name: str) -> bool:
    """Return True if an operation of this name may compute in TF32 by the current settings."""
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
