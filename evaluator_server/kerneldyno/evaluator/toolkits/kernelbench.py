"""The KernelBench form: a reference file with `Model`, `get_inputs` and `get_init_inputs`; a candidate with `ModelNew`.

Files of the public KernelBench work unchanged (https://github.com/ScalingIntelligence/KernelBench). `get_init_inputs`
may return positional arguments, or `[[positional...], {keyword: ...}]`.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from ..devices import filling, seeding
from ..shared import tree
from ..shared.buffers import WithBuffers, in_mode, same_bytes, whole_call
from ..shared.casting import cast, cast_module
from ..shared.gradients import Gradients, detached, floating
from ..shared.out_of_memory import is_lack_of_memory
from ..shared.precision import round_to
from ..shared.small_floats import is_coded, raw
from ..shared.spec import EvalSpec
from . import workloads
from .base import Problem, ReferenceFailure, Sketch, Toolkit, run_source, to_device, unload_with

#: Modes of torch.compile by the contract's numbers of reference backends.
_COMPILE_MODES: dict[int, str | None] = {2: None, 3: "reduce-overhead", 4: "max-autotune"}
#: Makes another seed of a call's seed, so that gradients of outputs are no copies of inputs.
_OTHER_SEED = 0x5EED


class _KernelBenchProblem(Problem):
    instantiate = True

    def __init__(self, spec: EvalSpec, device: torch.device, seed: int) -> None:
        self.symbol = f"{spec.entry_point}New"
        self.init_seed = seed
        self.precision = spec.precision
        self.training = spec.training
        self.buffers: list[str] = []
        self._device = device
        module = run_source(spec.reference_code)
        unload_with(self, module)
        for name in (spec.entry_point, "get_inputs"):
            if not hasattr(module, name):
                raise AttributeError(f"reference_code defines no {name}")
        found = workloads.of_module(module, spec)
        self.workloads = [(each.name, each.value_json) for each in found]
        self._get_inputs, get_init_inputs = _functions(module, found, spec.workload)
        seeding.seed(device, seed)
        self.init_args, self.init_kwargs = _split(get_init_inputs())
        seeding.seed(device, seed)
        with torch.no_grad(), filling.by_device(device):
            made = getattr(module, spec.entry_point)(*self.init_args, **self.init_kwargs)
            self._model = in_mode(cast_module(made.to(device), self.precision), self.training)
        self._replaced = _replace_constants(self._model, seed) if spec.stress_inputs else {}
        if self._replaced:
            cast_module(self._model, self.precision)  # the replaced values are rounded as well
        self.gradients = self._gradients(spec)
        #: True if nothing that the first call shows is missing: its outputs, or the buffers that it changes.
        self._is_known = self.gradients is None and not self.training
        #: The floating-point outputs without their memory, once there has been one.
        self._outputs: list[torch.Tensor] = []
        self._precise_model: torch.nn.Module | None = None
        self._has_precise = True
        self._draws_on_device = device.type != "cpu"
        self.timed = self._called(self._model)
        self._backend = spec.reference_backend
        self._entry_point = spec.entry_point
        self.baseline_code = spec.baseline_code

    def make_ready(self, seed: int) -> None:
        if self.baseline_code:
            self.timed = self._called(self._library_model())
            return
        if self._backend in _COMPILE_MODES:
            compiled = torch.compile(self._model, mode=_COMPILE_MODES[self._backend])
            self.timed = self._called(self._model, compiled)

    def _library_model(self) -> Any:
        """Return the module of a library baseline, made as the reference is, with the reference's values by name."""
        module = run_source(self.baseline_code)
        unload_with(self, module)
        if not hasattr(module, self._entry_point):
            raise AttributeError(f"the library baseline defines no {self._entry_point}")
        seeding.seed(self._device, self.init_seed)
        with torch.no_grad(), filling.by_device(self._device):
            made = getattr(module, self._entry_point)(*self.init_args, **self.init_kwargs)
            model = in_mode(cast_module(made.to(self._device), self.precision), self.training)
            ours = tree.dense_state(self._model)
            for name, tensor in tree.dense_state(model).items():
                if name in ours and (ours[name].shape, ours[name].dtype) == (tensor.shape, tensor.dtype):
                    raw(tensor).copy_(raw(ours[name]))
        return model

    def _called(self, model: torch.nn.Module, compiled: Any = None) -> Callable[..., Any]:
        """Return what is called: a model or its compiled form, with gradients and buffers if they are compared."""
        return whole_call(model, self.gradients, self.buffers if self.training else None, compiled)

    def _gradients(self, spec: EvalSpec) -> Gradients | None:
        """Return the gradients that the request asks for, or the inputs by `requires_grad`."""
        wanted: list[bool] = []
        if "requires_grad" in spec.reference_code:  # otherwise there is no need to draw inputs once more
            # NumPy, for example, makes no tensors without memory.
            with contextlib.suppress(Exception), torch.device("meta"):
                wanted = [tensor.requires_grad for tensor in floating(list(self._get_inputs()))]
        if not spec.backward and not any(wanted):
            return None
        names = [name for name, parameter in self._model.named_parameters() if parameter.is_floating_point()]
        return Gradients(wanted if any(wanted) else [], names)

    def inputs(self, trial: int, seed: int) -> tuple[Any, ...]:
        made = self._draw(seed)
        if not isinstance(made, list | tuple):
            raise TypeError(f"get_inputs() returned a {type(made).__name__}, not a list")
        drawn = tuple(cast(to_device(value, self._device), self.precision) for value in made)
        if self.gradients is not None:
            drawn = detached(drawn)
        if not self._is_known:
            self._look(drawn, seed)
        return drawn if self.gradients is None else (*drawn, *self._cotangents(seed))

    def _look(self, drawn: tuple[Any, ...], seed: int) -> None:
        """Call the reference once, to see the form of its outputs, and in training mode which buffers it changes."""
        before: dict[str, torch.Tensor] = {}
        if self.training:
            buffers = self._model.named_buffers()
            before = {name: each for name, each in buffers if each.layout is torch.strided and not each.is_quantized}
        seeding.seed(self._device, seed)
        with torch.no_grad():
            found = WithBuffers(self._model, list(before), self._model)(*copy.deepcopy(drawn))
        if before:
            self.buffers += [name for name, value in found["buffers"].items() if not same_bytes(value, before[name])]
            found = found["output"]
        if self.gradients is not None:
            self._outputs = [output.to("meta") for output in floating(found)]
            self.gradients.outputs = len(self._outputs)
        self._is_known = True

    def _cotangents(self, seed: int) -> list[torch.Tensor]:
        """Draw gradients of the outputs."""
        seeding.seed(self._device, seed ^ _OTHER_SEED)
        return [torch.randn(output.shape, dtype=output.dtype, device=self._device) for output in self._outputs]

    def _draw(self, seed: int) -> Any:
        """Call get_inputs with the device as default if that works: drawing large inputs on the host takes seconds."""
        if self._draws_on_device:
            try:
                seeding.seed(self._device, seed)
                with self._device:
                    return self._get_inputs()
            except Exception as error:  # NumPy or host generators are no fault of the reference
                if is_lack_of_memory(error):
                    raise
                self._draws_on_device = False
        seeding.seed(self._device, seed)
        return self._get_inputs()

    def input_bytes(self) -> int | None:
        try:
            with torch.device("meta"):
                _, tensors = tree.flatten(cast(list(self._get_inputs()), self.precision), is_sketch=True)
        except Exception:  # it needs values, or NumPy
            return None
        return tree.layout([tree.describe(tensor) for tensor in tensors])[1]

    def expected(self, trial: int, arguments: Sequence[Any], seed: int) -> Any:
        seeding.seed(self._device, seed)
        with torch.no_grad():
            return self._called(self._model)(*arguments)

    def parameter_bytes(self) -> int:
        tensors = (*self._model.parameters(), *self._model.buffers())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)  # sparse ones have no `nbytes`

    def state(self) -> dict[str, torch.Tensor]:
        return self._replaced

    def parameters(self) -> dict[str, torch.Tensor]:
        return tree.dense_state(self._model)

    def precise(self, arguments: Sequence[Any], seed: int) -> Any:
        if not self._has_precise:
            return None
        try:
            if self._precise_model is None:
                self._precise_model = copy.deepcopy(self._model).double()
            return self._run(self._precise_model, arguments, seed)
        except Exception as error:  # a reference with fixed dtypes has no float64 form
            if is_lack_of_memory(error):
                self._precise_model = None
                raise torch.OutOfMemoryError(str(error)) from error  # a later try may succeed
            self._has_precise = False
        self._precise_model = None
        return None

    def precise_at(self, arguments: Sequence[Any], seed: int, bits: int) -> Any:
        if not self._has_precise:
            return None
        model = copy.deepcopy(self._model).double()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    parameter.copy_(round_to(parameter, bits))
        return self._run(model, arguments, seed)

    def _run(self, model: torch.nn.Module, arguments: Sequence[Any], seed: int) -> Any:
        seeding.seed(self._device, seed)
        with torch.no_grad():
            return self._called(model)(*(_to_double(value) for value in arguments))


def _replace_constants(model: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Replace parameters and buffers whose elements are all equal by secret values near them. Return these by name.

    Otherwise a candidate could leave out a scale of ones or a bias of zeros. Single numbers stay as they are: they are
    settings, and a candidate may rightly have them in its source.
    """
    generator = torch.Generator().manual_seed(seed)
    replaced = {}
    with torch.no_grad():
        for name, tensor in tree.dense_state(model).items():
            if (
                not tensor.is_floating_point()
                or is_coded(tensor.dtype)
                or tensor.numel() < 2
                or not bool((tensor == tensor.reshape(-1)[0]).all())
            ):
                continue
            change = torch.rand(tensor.shape, generator=generator).to(tensor.device) - 0.5
            base = float(tensor.reshape(-1)[0])
            tensor.copy_(change if base == 0 else base * (1 + change))
            replaced[name] = tensor
    return replaced


def _functions(
    module: ModuleType, found: Sequence[workloads.Workload], number: int
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return `get_inputs` and `get_init_inputs` for a workload, if there are any."""
    get_init_inputs = getattr(module, "get_init_inputs", list)
    if not found:
        return module.get_inputs, get_init_inputs
    return found[number].applied(module.get_inputs), found[number].applied(get_init_inputs)


def _split(made: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    if not isinstance(made, list | tuple):
        raise TypeError(f"get_init_inputs() returned a {type(made).__name__}, not a list")
    match made:
        case [list() | tuple() as positional, dict() as keywords]:
            return list(positional), dict(keywords)
    return list(made), {}


def _to_double(value: Any) -> Any:
    return tree.mapped(value, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


class KernelBenchToolkit(Toolkit):
    """Builds problems from KernelBench files."""

    name = "kernelbench"

    def build(self, spec: EvalSpec, device: torch.device, seed: int) -> Problem:
        try:
            return _KernelBenchProblem(spec, device, seed)
        except BaseException as error:
            raise ReferenceFailure("build", error) from error

    def sketch(self, spec: EvalSpec) -> Sketch | None:
        module = run_source(spec.reference_code)
        get_inputs, get_init_inputs = _functions(module, workloads.of_module(module, spec), spec.workload)
        with torch.device("meta"):
            args, kwargs = _split(get_init_inputs())
            return Sketch(args, kwargs, cast(get_inputs(), spec.precision), spec.precision, spec.training)


TOOLKIT = KernelBenchToolkit()
