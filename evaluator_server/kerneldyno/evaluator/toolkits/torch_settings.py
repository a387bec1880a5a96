"""torch's global settings, kept separately for each reference: settings of one reference apply only while it executes.

References of a device share the judge. A reference that calls `torch.set_default_dtype(torch.float16)`, or enters a
mode and never leaves it, would change what all later references compute, and how fast. State of Python itself (a
patched module, an environment variable) is not kept separately: references are trusted to do no harm on purpose.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import overrides
from torch.utils import _python_dispatch as dispatch

from ..shared.spec import ProblemSpec, TimedForm
from .base import Problem, ReferenceFailure, Toolkit

_log = logging.getLogger("kerneldyno.judge")


@dataclass(frozen=True, slots=True)
class _Setting:
    get: Callable[[], Any]
    set: Callable[[Any], Any]

    def read(self) -> Any:
        """Return the value; None if this torch has no such setting, or cannot report it in its present state."""
        try:
            return self.get()
        except (AttributeError, RuntimeError):
            return None


def _of(owner: Any, name: str) -> _Setting:
    return _Setting(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _autocast(kind: str) -> _Setting:
    def write(value: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(kind, value[0])
        torch.set_autocast_dtype(kind, value[1])

    return _Setting(lambda: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)), write)


_CUDA, _CUDNN, _MKLDNN = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn

_PARTS = ((_CUDA, "matmul"), (_MKLDNN, "matmul"), (_CUDNN, "conv"), (_CUDNN, "rnn"))

#: Written in this order, because some general settings change specific ones.
_SETTINGS = [
    _Setting(torch.get_default_dtype, torch.set_default_dtype),
    _Setting(torch.get_default_device, lambda value: torch.set_default_device(None if value.type == "cpu" else value)),
    _Setting(torch.is_grad_enabled, lambda value: torch.set_grad_enabled(value)),
    _Setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    _Setting(torch.get_num_threads, torch.set_num_threads),
    _autocast("cuda"),
    _autocast("cpu"),
    _Setting(_CUDA.flash_sdp_enabled, _CUDA.enable_flash_sdp),
    _Setting(_CUDA.math_sdp_enabled, _CUDA.enable_math_sdp),
    _Setting(_CUDA.mem_efficient_sdp_enabled, _CUDA.enable_mem_efficient_sdp),
    _Setting(_CUDA.cudnn_sdp_enabled, _CUDA.enable_cudnn_sdp),
    _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    *(_of(_CUDNN, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    *(_of(_CUDA.matmul, f"allow_{name}_reduced_precision_reduction") for name in ("fp16", "bf16")),
    _of(_CUDA.matmul, "allow_fp16_accumulation"),
    # torch 2.9 and newer. The settings above also change these.
    *(_of(getattr(owner, part, None), "fp32_precision") for owner, part in _PARTS),
]


class TorchSettings:
    """The settings of one reference. Changes made inside `in_force` apply again inside it, and never outside."""

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}
        self._inside = False

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Apply the reference's settings in the body, and restore the earlier settings afterwards."""
        if self._inside:
            yield
            return
        before, depths = _read(), _depths()
        self._inside = True
        try:
            _write({**dict(enumerate(before)), **self._own}, before)
            yield
        finally:
            self._inside = False
            now = _read()
            self._own = {at: value for at, value in enumerate(now) if value != before[at] and value is not None}
            _leave(depths)
            _write(dict(enumerate(before)), now)


def _read() -> list[Any]:
    return [setting.read() for setting in _SETTINGS]


def _write(wanted: dict[int, Any], there: list[Any]) -> None:
    """Set the values that differ, one after the other, because some settings change others."""
    if all(there[at] == value for at, value in wanted.items()):
        return
    with warnings.catch_warnings(action="ignore"):  # torch 2.9 and newer warn about the older settings
        for at, value in wanted.items():
            if value is not None and _SETTINGS[at].read() != value:
                try:
                    _SETTINGS[at].set(value)
                except (AssertionError, AttributeError, RuntimeError) as error:
                    _log.warning("event=torch_setting_failed value=%s detail=%r", value, str(error))


def _depths() -> tuple[int, int]:
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


def _leave(depths: tuple[int, int]) -> None:
    """Leave the modes that were entered since then, the last one first."""
    functions, dispatches = depths
    while torch._C._len_torch_function_stack() > functions + 1:
        overrides._pop_mode()  # type: ignore[no-untyped-call]
    if torch._C._len_torch_function_stack() > functions:
        torch.set_default_device(None)  # its mode is always the lowest; only this call removes it
    while torch._C._len_torch_function_stack() > functions:
        overrides._pop_mode()  # type: ignore[no-untyped-call]
    while torch._C._len_torch_dispatch_stack() > dispatches:
        dispatch._get_current_dispatch_mode_stack()[-1].__exit__(None, None, None)  # type: ignore[no-untyped-call]


class OwnSettingsProblem(Problem):
    """A problem whose reference executes under its own settings of torch."""

    def __init__(self, problem: Problem, settings: TorchSettings) -> None:
        self._problem = problem
        self.settings = settings
        self.symbol, self.instantiate = problem.symbol, problem.instantiate
        self.init_args, self.init_kwargs, self.init_seed = problem.init_args, problem.init_kwargs, problem.init_seed
        self.precision, self.gradients = problem.precision, problem.gradients
        self.training, self.buffers = problem.training, problem.buffers
        self.workloads = problem.workloads
        self.cases, self.timed = problem.cases, problem.timed

    def know(self, buffers: Sequence[str]) -> None:
        self._problem.know(buffers)

    def make_ready(self, form: TimedForm) -> None:
        with self.settings.in_force():
            self._problem.make_ready(form)
            self.timed = self._problem.timed

    def inputs(self, trial: int, seed: int) -> tuple[Any, ...]:
        with self.settings.in_force():
            return self._problem.inputs(trial, seed)

    def expected(self, trial: int, arguments: Sequence[Any], seed: int) -> Any:
        with self.settings.in_force():
            return self._problem.expected(trial, arguments, seed)

    def precise(self, arguments: Sequence[Any], seed: int) -> Any:
        with self.settings.in_force():
            return self._problem.precise(arguments, seed)

    def precise_at(self, arguments: Sequence[Any], seed: int, bits: int) -> Any:
        with self.settings.in_force():
            return self._problem.precise_at(arguments, seed, bits)

    def input_bytes(self) -> int | None:
        with self.settings.in_force():
            return self._problem.input_bytes()

    def parameter_bytes(self) -> int:
        return self._problem.parameter_bytes()

    def state(self) -> dict[str, torch.Tensor]:
        return self._problem.state()

    def parameters(self) -> dict[str, torch.Tensor]:
        return self._problem.parameters()


def build(toolkit: Toolkit, spec: ProblemSpec, device: torch.device, seed: int) -> OwnSettingsProblem:
    """Build the problem of `spec` under its own settings of torch. `seed` is secret and new. Raises ReferenceFailure."""
    settings = TorchSettings()
    with settings.in_force():
        problem = toolkit.build(spec, device, seed)
    heeded = {
        "precision": problem.precision == spec.precision,
        "backward": bool(problem.gradients) or not spec.backward,
        "module_mode": problem.training == spec.training,
    }
    if ignored := [field for field, found in heeded.items() if not found]:
        text = f"the toolkit {spec.toolkit} knows no {' and no '.join(ignored)}; leave it out"
        raise ReferenceFailure("build", ValueError(text))
    return OwnSettingsProblem(problem, settings)
