"""Changes of torch's settings by a reference apply whenever this reference executes, and to no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kerneldyno.evaluator.toolkits import toolkits
from kerneldyno.evaluator.toolkits.torch_settings import _SETTINGS, TorchSettings, build
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, candidate, request

CPU = torch.device("cpu")


def everything() -> list[Any]:
    """Return all settings and the modes that are entered."""
    modes = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    return [*(setting.read() for setting in _SETTINGS), *modes]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that a test leaves all settings as they were."""
    before = everything()
    yield
    assert everything() == before


class Function(TorchFunctionMode):
    """A mode for torch's functions."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        return function(*arguments, **(keywords or {}))


class Dispatch(TorchDispatchMode):
    """A mode for torch's operators."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        return function(*arguments, **(keywords or {}))


def enable(owner: Any, name: str, value: Any = True) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


BACKENDS = torch.backends
CHANGES: dict[str, Callable[[], Any]] = {
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "no gradients": lambda: torch.set_grad_enabled(False),
    "determinism": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "TF32, the old way": enable(BACKENDS.cuda.matmul, "allow_tf32"),
    "TF32, by precision": lambda: torch.set_float32_matmul_precision("high"),
    "TF32, the new way": enable(BACKENDS.cuda.matmul, "fp32_precision", "tf32"),
    "no TF32 in convolutions": enable(BACKENDS.cudnn, "allow_tf32", False),
    "no TF32 in convolutions, the new way": enable(BACKENDS.cudnn.conv, "fp32_precision", "ieee"),  # type: ignore[attr-defined]
    "autotuning": enable(BACKENDS.cudnn, "benchmark"),
    "reduction in half": enable(BACKENDS.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
    "no flash attention": lambda: BACKENDS.cuda.enable_flash_sdp(False),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16).__enter__(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_set_holds_inside_and_again_the_next_time(name: str) -> None:
    before, settings = everything(), TorchSettings()
    with settings.in_force():
        CHANGES[name]()
        own = everything()
        assert own != before
    assert everything() == before
    for _ in range(2):
        with settings.in_force():
            assert everything() == own
        assert everything() == before


@pytest.mark.parametrize("name", ["TF32, the old way", "TF32, by precision", "TF32, the new way"])
def test_older_and_newer_names_of_the_same_agree_afterwards(name: str) -> None:
    with TorchSettings().in_force():
        CHANGES[name]()
    assert BACKENDS.cuda.matmul.allow_tf32 is False  # torch raises here if the two settings contradict
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    "enter",
    [
        lambda: Function().__enter__(),
        lambda: Dispatch().__enter__(),
        lambda: (Dispatch().__enter__(), Function().__enter__(), Dispatch().__enter__()),
        lambda: torch.device("meta").__enter__(),
        lambda: (torch.set_default_device("cpu"), Function().__enter__()),
        lambda: (torch.set_default_device("meta"), torch.device("cpu").__enter__()),
        lambda: torch._subclasses.FakeTensorMode().__enter__(),
    ],
)
def test_a_mode_that_is_not_left_ends_with_the_call(enter: Callable[[], Any]) -> None:
    settings = TorchSettings()
    with settings.in_force():
        enter()
    assert type(torch.zeros(2) + 1) is torch.Tensor
    assert (torch.zeros(2) + 1).device == CPU


def test_modes_that_were_there_before_stay() -> None:
    with Dispatch() as outer, Function():
        with TorchSettings().in_force():
            Dispatch().__enter__()
            Function().__enter__()
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is outer
        assert torch._C._len_torch_function_stack() == 1


def test_what_raises_leaves_nothing() -> None:
    settings = TorchSettings()

    def fail() -> None:
        with settings.in_force():
            torch.set_default_dtype(torch.float16)
            Dispatch().__enter__()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.get_default_dtype() == torch.float32
    with settings.in_force():
        assert torch.get_default_dtype() == torch.float16


def test_one_inside_the_other_is_one() -> None:
    settings = TorchSettings()
    with settings.in_force():
        with settings.in_force():
            torch.set_default_dtype(torch.float64)
        assert torch.get_default_dtype() == torch.float64
    with settings.in_force():
        assert torch.get_default_dtype() == torch.float64


def test_what_is_set_back_is_forgotten() -> None:
    settings = TorchSettings()
    with settings.in_force():
        torch.set_default_dtype(torch.float64)
    with settings.in_force():
        torch.set_default_dtype(torch.float32)
    with settings.in_force():
        assert torch.get_default_dtype() == torch.float32


SELFISH = """
import torch
{top}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(8))

    def forward(self, x):
        {call}
        return x * self.weight

def get_inputs():
    return [torch.rand(4, 8)]
"""


def test_problems_do_not_see_each_others_settings() -> None:
    def built(top: str) -> Any:
        spec = judge_harness.spec("", reference_code=SELFISH.format(top=top, call="pass"))
        return build(toolkits()["kernelbench"], spec.problem, CPU, 5)

    double, single = built("torch.set_default_dtype(torch.float64)"), built("")
    for _ in range(2):
        for problem, dtype in ((double, torch.float64), (single, torch.float32)):
            (x,) = problem.inputs(0, 1)
            assert x.dtype == problem.expected(0, [x], 1).dtype == dtype
            assert problem.precise([x], 1).dtype == torch.float64


@pytest.mark.parametrize(
    ("top", "call"),
    [
        ("torch.set_default_dtype(torch.float64)", "pass"),
        ("torch.set_default_device('meta' if torch.rand(1) > 2 else 'cpu')", "torch.set_grad_enabled(False)"),
        (
            "from torch.utils._python_dispatch import TorchDispatchMode\n"
            "class Slow(TorchDispatchMode):\n"
            "    def __torch_dispatch__(self, f, t, a=(), k=None):\n"
            "        import time; time.sleep(0.01)\n"
            "        return f(*a, **(k or {}))",
            "Slow().__enter__()",
        ),
    ],
)
def test_a_selfish_reference_harms_nobody(judge: Judge, top: str, call: str) -> None:
    source = SELFISH.format(top=top, call=call)
    mine = SELFISH.format(top=top, call="pass").replace("Model", "ModelNew")
    own = judge.evaluate(
        request(mine, reference_code=source, run_performance=True, provenance_policy="PROVENANCE_POLICY_LABEL")
    )
    assert own["outcome"] == "CORRECT", own
    other = judge.evaluate(request(candidate(), run_performance=True))
    assert other["outcome"] == "CORRECT", other
    # A reference that sleeps in each of its operations would take a hundred times as long as this candidate.
    assert other["speedup"] < 10, other
