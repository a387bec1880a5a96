"""The KernelBench form: a reference file with `Model`, `get_inputs` and `get_init_inputs`; a candidate with `ModelNew`.

Files of the public KernelBench work unchanged (https://github.com/ScalingIntelligence/KernelBench). `get_init_inputs`
may return positional arguments, or `[[positional...], {keyword: ...}]`, or a dict of keyword arguments.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from ..devices import filling, seeding
from ..shared import modules, small_floats, tree
from ..shared.buffers import in_mode, whole_call
from ..shared.casting import cast, cast_module
from ..shared.enums import ReferenceBackend
from ..shared.gradients import Gradients, detached, floating
from ..shared.out_of_memory import is_lack_of_memory
from ..shared.precision import round_to
from ..shared.spec import ProblemSpec, TimedForm
from . import constructor_arguments, workloads
from .base import Problem, ReferenceFailure, Sketch, Toolkit, run_source, to_device, unload_with
from .dependence import Dependence, StatefulReferenceError
from .state import Place, Snapshot

#: Modes of torch.compile.
_COMPILE_MODES: dict[ReferenceBackend, str | None] = {
    ReferenceBackend.TORCH_COMPILE: None,
    ReferenceBackend.TORCH_COMPILE_REDUCE_OVERHEAD: "reduce-overhead",
    ReferenceBackend.TORCH_COMPILE_MAX_AUTOTUNE: "max-autotune",
}
#: Makes another seed of a call's seed, so that gradients of outputs are no copies of inputs.
_OTHER_SEED = 0x5EED


class _KernelBenchProblem(Problem):
    instantiate = True

    def __init__(self, spec: ProblemSpec, device: torch.device, seed: int) -> None:
        self.symbol = f"{spec.entry_point}New"
        self.init_seed = seed
        self.precision = spec.precision
        self.training = spec.training
        self.buffers: list[str] = []
        self._device = device
        self._file = module = run_source(spec.reference_code)
        unload_with(self, module)
        for name in (spec.entry_point, "get_inputs"):
            if not hasattr(module, name):
                raise AttributeError(f"reference_code defines no {name}")
        found = workloads.of_module(module, spec)
        self.workloads = [(each.name, each.value_json) for each in found]
        self._get_inputs, get_init_inputs = _functions(module, found, spec.workload)
        seeding.seed(device, seed)
        self._draws_on_device = device.type != "cpu"
        constructor = getattr(module, spec.entry_point)
        self.init_args, self.init_kwargs = constructor_arguments.split(get_init_inputs(), constructor)
        self._model = self._made(constructor)
        self._replaced = _replace_constants(self._model, seed) if spec.secret_constants else {}
        if self._replaced:
            cast_module(self._model, self.precision)  # the replaced values are rounded as well
        self.gradients = self._gradients(spec)
        #: What a call shows and later calls need: which state calls change, and the outputs that have gradients.
        self._knows_state, self._knows_outputs = False, self.gradients is None
        #: The floating-point outputs without their memory, once there has been one.
        self._outputs: list[torch.Tensor] = []
        self._precise_model: torch.nn.Module | None = None
        self._has_precise = True
        self.timed = self._called(self._model)
        self._entry_point = spec.entry_point

    def know(self, buffers: Sequence[str]) -> None:
        self.buffers[:] = buffers
        self._knows_state = True

    def make_ready(self, form: TimedForm) -> None:
        if form.baseline_code:
            self.timed = self._called(self._library_model(form.baseline_code))
            return
        compiled = torch.compile(self._model, mode=_COMPILE_MODES[form.backend]) if form.is_compiled else None
        self.timed = self._called(self._model, compiled)

    def _made(self, constructor: Callable[..., Any]) -> torch.nn.Module:
        """Construct a module as the candidate's is constructed. Its arguments stay as they are."""
        seeding.seed(self._device, self.init_seed)
        with torch.no_grad(), filling.by_device(self._device):
            made = constructor(*copy.deepcopy(list(self.init_args)), **copy.deepcopy(self.init_kwargs))
            placed = modules.placed(made, self._device, self.precision, self._blank)
        module: torch.nn.Module = in_mode(placed, self.training)
        return module

    def _blank(self) -> Sequence[Any]:
        """Return arguments of zeros for a call that materialises lazy modules, and seed the generators for it."""
        structure, tensors = tree.flatten(list(self._drawn(self.init_seed)))
        blank = modules.blank(structure, [tree.describe(tensor) for tensor in tensors], self._device)
        seeding.seed(self._device, self.init_seed)
        return blank

    def _library_model(self, source: str) -> Any:
        """Return the module of a library baseline, made as the reference is, with the reference's values by name."""
        module = run_source(source)
        unload_with(self, module)
        if not hasattr(module, self._entry_point):
            raise AttributeError(f"the library baseline defines no {self._entry_point}")
        model = self._made(getattr(module, self._entry_point))
        with torch.no_grad():
            ours = tree.dense_state(self._model)
            for name, tensor in tree.dense_state(model).items():
                if name in ours and (ours[name].shape, ours[name].dtype) == (tensor.shape, tensor.dtype):
                    small_floats.raw(tensor).copy_(small_floats.raw(ours[name]))
        return model

    def _called(self, model: torch.nn.Module, compiled: Any = None) -> Callable[..., Any]:
        """Return what is called: a model or its compiled form, with gradients and buffers if they are compared."""
        buffers = None if self._knows_state and not self.buffers else self.buffers
        return whole_call(model, self.gradients, buffers, compiled)

    def _gradients(self, spec: ProblemSpec) -> Gradients | None:
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
        drawn = self._drawn(seed)
        if self.gradients is not None:
            drawn = detached(drawn)
        if not (self._knows_state and self._knows_outputs):
            self._look(drawn, seed)
        return drawn if self.gradients is None else (*drawn, *self._cotangents(seed))

    def _drawn(self, seed: int) -> tuple[Any, ...]:
        made = self._draw(seed)
        if not isinstance(made, list | tuple):
            raise TypeError(f"get_inputs() returned a {type(made).__name__}, not a list")
        return tuple(cast(to_device(value, self._device), self.precision) for value in made)

    def _look(self, drawn: tuple[Any, ...], seed: int) -> None:
        """Call the reference, to see the form of its outputs, and on which state that calls change answers depend.

        Raises ReferenceFailure.
        """
        structure, tensors = tree.flatten(list(drawn))

        def call(other: bool = False) -> Any:
            copies = [small_floats.cloned(tensor.detach()) for tensor in tensors]
            arguments = tree.rebuild(structure, copies, self._device)
            if other:
                arguments = detached(self._drawn(seed ^ _OTHER_SEED))
            seeding.seed(self._device, seed ^ _OTHER_SEED if other else seed)
            with torch.no_grad():
                return self._model(*arguments)

        try:
            snapshot = None if self._knows_state else Snapshot(self._model, self._file)
            found = call()
            if self.gradients is not None:
                self._outputs = [output.to("meta") for output in floating(found)]
                self.gradients.outputs = len(self._outputs)
            del found
            if snapshot is not None:
                self.know(self._names_of_state(snapshot, call))
        except BaseException as error:
            raise ReferenceFailure("reference", error) from error
        self._knows_outputs = True

    def _names_of_state(self, snapshot: Snapshot, call: Callable[[bool], Any]) -> list[str]:
        """Return the names of the tensors that every call must find as they were first. Raises StatefulReferenceError."""
        changed = snapshot.changed()
        if lost := [place for place in changed if not place.can_be_restored]:
            raise StatefulReferenceError(lost)
        own = [name for name, _ in self._model.named_buffers()] if self.training else []
        always = [place for place in changed if place.name in own]
        culprits: list[Place] = []
        if len(always) < len(changed):
            culprits = Dependence(snapshot, call, [place.key for place in always]).culprits()
        snapshot.restore()
        if unnamed := [place for place in culprits if not place.name]:
            raise StatefulReferenceError(unnamed)
        return list(dict.fromkeys(place.name for place in (*always, *culprits)))

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
                or small_floats.is_coded(tensor.dtype)
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


def _to_double(value: Any) -> Any:
    return tree.mapped(value, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


class KernelBenchToolkit(Toolkit):
    """Builds problems from KernelBench files."""

    name = "kernelbench"

    def build(self, spec: ProblemSpec, device: torch.device, seed: int) -> Problem:
        try:
            return _KernelBenchProblem(spec, device, seed)
        except BaseException as error:
            raise ReferenceFailure("build", error) from error

    def sketch(self, spec: ProblemSpec) -> Sketch | None:
        module = run_source(spec.reference_code)
        get_inputs, get_init_inputs = _functions(module, workloads.of_module(module, spec), spec.workload)
        with torch.device("meta"):
            args, kwargs = constructor_arguments.split(get_init_inputs(), getattr(module, spec.entry_point))
            return Sketch(args, kwargs, cast(get_inputs(), spec.precision), spec.precision, spec.training)


TOOLKIT = KernelBenchToolkit()
