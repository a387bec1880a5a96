"""Large problems: the judge examines some of their rows, and still compares every element of an answer.

These tests lower the size from which a problem is large.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.comparison import structures
from kerneldyno.evaluator.judge.memory import footprint
from kerneldyno.evaluator.judge.problems import excerpt as excerpt_module
from kerneldyno.evaluator.judge.problems import trial
from kerneldyno.evaluator.judge.problems.cache import BuiltProblem, NeedsMoreError, Problems
from kerneldyno.evaluator.judge.problems.excerpt import Excerpt, Excerpted
from kerneldyno.evaluator.judge.problems.trial import Trial
from kerneldyno.evaluator.judge.runners.lease import Lease
from kerneldyno.evaluator.shared.spec import EvalSpec, ProblemSpec
from kerneldyno.evaluator.toolkits import toolkits, torch_settings
from kerneldyno.evaluator.toolkits.local import LocalProblem, build_local
from tests.evaluator import judge_harness

pytestmark = pytest.mark.alone

CPU = open_device("cpu:0")

#: What forward returns, given x (96 x 40, positive), w (40 x 24) and a counter of calls.
SEPARABLE = {
    "element by element": "torch.relu(x - 0.5)",
    "a product": "x @ self.w",
    "rows": "torch.softmax(4 * x, dim=1)",
    "a sum of each row": "x.sum(dim=1)",
    "several outputs": "(x.max(dim=1).values, x.argmax(dim=1))",
    "whole numbers": "(x * 10).long()",
}
WHOLE = {
    "statistics of the batch": "(x - x.mean(0)) / x.std(0)",
    "one number": "(x @ self.w).square().mean()",
    "a scan along the batch": "torch.cumsum(x, dim=0)",
    "neighbours": "x + x.roll(1, 0)",
    "the other way round": "x.T.contiguous()",
}
#: Outputs that are not only tensors, or have no elements, and whether rows of them depend on their own rows only.
OTHERS = {
    "a number": ("int((x > 0.5).sum())", False),
    "a number beside rows": ("(x * 2, int((x > 0.5).sum()))", False),
    "a float beside rows": ("{'sum': float(x.sum()), 'rows': x @ self.w}", False),
    "a constant beside rows": ("(x * 2, 3)", True),
    "nothing": ("None", False),
    "rows without elements": ("x[:, :0]", True),
    "complex halves": ("torch.complex(x, -x).to(torch.complex32)", True),
    "as many rows as there are": ("x[x[:, 0] > 0.5]", False),
    "a mean without a row of its own": ("(x.square().mean(), float(x.mean()))", False),
}

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(40, 24))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return {body}

def get_inputs():
    return [torch.rand(96, 40)]
"""


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "_LARGE_BYTES", 1 << 10)
    monkeypatch.setattr(excerpt_module, "_BYTES", 4 << 10)


def spec_for(body: str, **changes: Any) -> EvalSpec:
    reference = changes.pop("reference", REFERENCE.format(body=body))
    return judge_harness.spec("", reference_code=reference, stress_inputs=True, **changes)


class Resting(LocalProblem):
    """A problem in this process that notes whether it was told to rest."""

    awake = True

    @property
    def is_alive(self) -> bool:
        return self.awake

    async def rest(self) -> None:
        self.awake = False


def known(device: CpuDevice) -> Problems:
    """Return problems whose references run in this process."""

    async def begin(spec: ProblemSpec, seed: int, within: int | None) -> LocalProblem:
        before = device.allocated_bytes()
        return Resting(torch_settings.build(toolkits()[spec.toolkit], spec, CPU.torch_device, seed), device, before)

    return Problems(device, Lease(set()), begin)


async def meet(spec: EvalSpec, within: int | None = None) -> BuiltProblem:
    return await known(CPU).get(spec, within)


def answer_of(current: Trial) -> torch.Tensor:
    """Return what an honest candidate leaves in a slot; here, the reference's own bytes."""
    slot = torch.zeros(current.slot_bytes, dtype=torch.uint8)
    for view, leaf in zip(_views(current, slot), current.expected.leaves, strict=True):
        view.copy_(leaf.value)
    return slot


def _views(current: Trial, slot: torch.Tensor) -> list[torch.Tensor]:
    from kerneldyno.evaluator.shared import tree

    return tree.views(slot, [leaf.spec for leaf in current.expected.leaves])


def is_right(current: Trial, spec: EvalSpec, slot: torch.Tensor) -> bool:
    return trial.judge_bytes(current, spec, slot).mismatch is None


@pytest.mark.parametrize("name", SEPARABLE)
async def test_rows_that_depend_on_their_own_rows_only_are_told_by_some(name: str) -> None:
    built = await meet(spec_for(SEPARABLE[name]))
    assert built.footprint.is_large
    assert built.method.excerpt is not None
    assert built.method.excerpt.separable
    assert 2 <= built.method.excerpt.rows <= 48


@pytest.mark.parametrize("name", WHOLE)
async def test_others_are_never_taken_for_such(name: str) -> None:
    built = await meet(spec_for(WHOLE[name]))
    assert built.method.excerpt is None or not built.method.excerpt.separable


@pytest.mark.parametrize("name", OTHERS)
async def test_outputs_that_are_not_only_tensors(name: str) -> None:
    body, separable = OTHERS[name]
    spec = spec_for(body)
    built = await meet(spec)
    assert built.footprint.is_large
    assert built.method.excerpt is not None
    assert built.method.excerpt.separable is separable
    for kind in (None, *built.examination.held):
        current = built.prepare(spec, CPU, 0, kind)
        assert is_right(current, spec, answer_of(current))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex32, torch.int8, torch.bool])
async def test_square_inputs_of_formats_that_torch_cannot_compare(dtype: torch.dtype) -> None:
    reference = REFERENCE.format(body="x.float() * 2" if not dtype.is_complex else "x.to(torch.complex64) * 2")
    reference = reference.replace("torch.rand(96, 40)", f"torch.rand(96, 96).mul(9).sub(4).relu().to({dtype})")
    built = await meet(spec_for("", reference=reference))
    assert built.method.excerpt is not None
    assert built.method.excerpt.separable


async def test_a_float_of_a_large_problem_may_be_off_by_rounding() -> None:
    """There is no float64 run of all of it. Another run on moved inputs shows the noise."""
    spec = spec_for("(x.cumsum(0), float(x[0].prod()))")
    current = (await meet(spec)).prepare(spec, CPU, 0)
    (value,) = structures.floats(current.expected.structure)
    assert 0 < current.expected.number_noise[0] < 1e-4 * abs(value)


@pytest.mark.parametrize("name", [*SEPARABLE, *WHOLE])
async def test_every_element_is_compared(name: str) -> None:
    spec = spec_for({**SEPARABLE, **WHOLE}[name])
    built = await meet(spec)
    for kind in (None, *built.examination.held):
        current = built.prepare(spec, CPU, 0, kind)
        assert is_right(current, spec, answer_of(current)), kind
        for at in range(len(current.expected.leaves)):
            for wrong in (_spoilt(current, at, "one"), _spoilt(current, at, "coarse")):
                assert wrong is None or not is_right(current, spec, wrong), (kind, at)


def _spoilt(current: Trial, at: int, how: str) -> torch.Tensor | None:
    """Return the right answer with an error in leaf `at`, or None if it cannot have that error.

    Either one element is off by a twentieth of the largest (whole numbers: by 1), or all are rounded to bfloat16.
    """
    slot = answer_of(current)
    leaf = _views(current, slot)[at]
    if how == "one":
        flat = leaf.view(-1)
        where = int(torch.randint(len(flat), ()))
        flat[where] += 1 if not leaf.is_floating_point() else 0.05 * float(leaf.abs().max())
        return slot
    if not leaf.is_floating_point() or torch.equal(leaf, leaf.bfloat16().float()) or leaf.numel() == 1:
        return None
    leaf.copy_(leaf.bfloat16())
    return slot


async def test_a_reference_that_differs_from_run_to_run_has_its_own_noise_allowed() -> None:
    # No snapshot of a reference's state sees this counter, so it is taken for noise.
    counted = REFERENCE.replace("import torch\n", "import itertools\nimport torch\ncalls = itertools.count()\n", 1)
    noisy = WHOLE["statistics of the batch"] + " + 1e-2 * (hash((next(calls), 7)) % 997 / 997)"
    spec = spec_for("", reference=counted.format(body=noisy))
    built = await meet(spec)
    current, other = built.prepare(spec, CPU, 0), built.prepare(spec, CPU, 0)
    again = trial.answer(built.problem, spec, CPU, 0, current.inputs, method=built.method)
    assert not torch.equal(again.expected.leaves[0].value, current.expected.leaves[0].value)
    assert is_right(current, spec, answer_of(again))
    assert not is_right(current, spec, answer_of(other))


async def test_what_is_not_compared_with_costs_no_second_run() -> None:
    spec = spec_for(SEPARABLE["a product"])
    built = await meet(spec)
    model: Any = built.problem
    while hasattr(model, "_problem"):
        model = model._problem
    before = model._model.calls
    built.prepare(spec, CPU, 0, rough=True)
    assert model._model.calls == before + 1


async def test_weakness_is_found_in_some_rows_too() -> None:
    weak = await meet(spec_for("torch.ones_like(x)"))
    assert "ones" in weak.examination.pass_nominal
    strong = await meet(spec_for(SEPARABLE["a product"]))
    assert not [name for name in strong.examination.pass_all if "operands" not in name]


def drawn_by(body: str, cut: tuple[bool, ...]) -> tuple[list[torch.Tensor], int]:
    """Draw ten of 40 rows seven times. Return the first tensor of each, and how often all rows were drawn."""
    source = f"import torch\ndraws = []\ndef get_inputs():\n    draws.append(1)\n    return {body}\n"
    source += "class Model(torch.nn.Module):\n    def forward(self, x, *more):\n        return x\n"
    problem: Any = build_local(spec_for("", reference=source).problem, CPU, 1)
    some = Excerpted(problem, Excerpt(10, 40, cut))
    made = problem._problem._problem

    def first(seed: int) -> torch.Tensor:
        with some.drawn(0, seed) as (_, tensors):
            return tensors[0]

    return [first(seed) for seed in range(7)], len(made._get_inputs.__globals__["draws"])


def test_rows_are_given_once_and_all_of_them_are_drawn_again_only_then() -> None:
    given, draws = drawn_by("[torch.rand(40, 3)]", (True,))
    assert draws == 2 + 1  # one by the build, which settles the state of the module
    assert len({float(tensor.sum()) for tensor in given}) == 7
    assert all(tensor.shape == (10, 3) for tensor in given)


def test_what_is_not_cut_is_another_each_time() -> None:
    assert drawn_by("[torch.rand(40, 3), torch.rand(5)]", (True, False))[1] == 7 + 1


# References that keep memory, and problems that are forgotten


class Counting(CpuDevice):
    """A CPU device that reports these numbers of allocated bytes in turn, and then repeats the last one."""

    def __init__(self, *allocated: int) -> None:
        super().__init__()
        self.allocated = list(allocated)

    def allocated_bytes(self) -> int:
        return self.allocated.pop(0) if len(self.allocated) > 1 else self.allocated[0]


@pytest.mark.parametrize(
    ("allocated", "hoards"),
    [((0, 4000), False), ((0, 2 << 30, 4000), False), ((0, 2 << 30, 2 << 30), True)],
    ids=["parameters", "cycles", "leaks"],
)
async def test_a_reference_that_keeps_memory_loses_its_process(allocated: tuple[int, ...], hoards: bool) -> None:
    spec = spec_for(SEPARABLE["a product"])
    problems = known(Counting(*allocated))
    built = await problems.get(spec, None)
    assert built.hoards is hoards
    with problems.used(spec, built), problems.used(spec, built):
        assert problems.idle_bytes == 0
    await asyncio.sleep(0)
    assert problems.find(spec) is built
    assert built.problem.is_alive is not hoards


async def test_memory_of_a_process_that_is_being_ended_counts_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec, ended, rest = spec_for(SEPARABLE["a product"]), asyncio.Event(), Resting.rest
    problems = known(Counting(0, 2 << 30, 2 << 30))
    built = await problems.get(spec, None)

    async def slowly(problem: Resting) -> None:
        await rest(problem)
        await ended.wait()

    monkeypatch.setattr(Resting, "rest", slowly)
    with problems.used(spec, built):
        pass
    await asyncio.sleep(0)
    assert (built.nbytes, problems.idle_bytes > 2 << 30) == (0, True)
    waits = asyncio.ensure_future(problems.rest_one())
    await asyncio.sleep(0.01)
    assert not waits.done()
    ended.set()
    assert await waits
    assert (problems.idle_bytes, await problems.rest_one()) == (0, False)


async def test_a_problem_that_rests_takes_no_memory_and_stays_known() -> None:
    problems, spec = known(CPU), spec_for(SEPARABLE["a product"])
    built = await problems.get(spec, None)
    assert problems.idle_bytes == 3 * 40 * 24 * 4 + footprint.CONTEXT_BYTES
    with problems.used(spec, built):
        assert not await problems.rest_one(), "somebody uses it"
    assert await problems.rest_one()
    assert not await problems.rest_one()
    assert (problems.idle_bytes, problems.alive, len(problems)) == (0, 0, 1)
    assert problems.recall(spec) is built


async def test_a_problem_whose_lanes_all_wait_for_memory_may_lose_its_process() -> None:
    problems, spec, other = known(CPU), spec_for(SEPARABLE["a product"]), spec_for(SEPARABLE["a sum of each row"])
    awaited, unused = await problems.get(spec, None), await problems.get(other, None)
    with problems.used(spec, awaited), problems.used(spec, awaited):
        with awaited.awaiting_memory():
            assert problems.idle_bytes == unused.nbytes, "a lane was admitted and asks it"
            with awaited.awaiting_memory():
                # Contexts of lanes are set aside.
                assert problems.idle_bytes == unused.nbytes + awaited.nbytes - footprint.CONTEXT_BYTES
                assert await problems.rest_one()
                assert (unused.problem.is_alive, awaited.problem.is_alive) == (False, True)
                await problems.clear()
        assert (awaited.problem.is_alive, problems.idle_bytes) == (False, 0)
        assert problems.find(spec) is awaited


async def test_what_large_problems_share_with_the_judge_is_freed_once_they_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed: list[Resting] = []
    monkeypatch.setattr(Resting, "put_away", lambda problem: freed.append(problem))
    large = await meet(spec_for(SEPARABLE["a product"]))
    assert freed == [large.problem]
    monkeypatch.setattr(footprint, "_LARGE_BYTES", 1 << 40)
    assert not (await meet(spec_for(SEPARABLE["a product"]))).footprint.is_large
    assert freed == [large.problem]


def test_the_module_of_a_reference_goes_with_its_problem() -> None:
    before = {name for name in sys.modules if name.startswith("kerneldyno_reference")}
    problem = build_local(spec_for(SEPARABLE["a product"]).problem, CPU, 3)
    (name,) = {name for name in sys.modules if name.startswith("kerneldyno_reference")} - before
    del problem
    gc.collect()
    assert name not in sys.modules


# What the sizes of inputs show before they are drawn

HUGE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    {draw}
"""


async def test_inputs_that_cannot_fit_are_told_by_their_sizes_before_anything_is_allocated() -> None:
    spec = spec_for("", reference=HUGE.format(draw="return [torch.rand(1 << 20, 1 << 20)]"))  # 4 TiB
    with pytest.raises(NeedsMoreError) as more:
        await meet(spec, within=16 << 30)
    assert more.value.nbytes == 2 * (4 << 40)


@pytest.mark.parametrize(
    "draw",
    [
        "n = int(torch.rand(8).sum() > -1); return [torch.rand(n, 4)]",
        "import numpy; return [torch.from_numpy(numpy.random.rand(3, 4))]",
        "return [torch.rand(3, 4).numpy().tolist()]",
    ],
)
async def test_inputs_whose_sizes_cannot_be_told_are_just_drawn(draw: str) -> None:
    built = await meet(spec_for("", reference=HUGE.format(draw=draw)), within=1 << 30)
    assert built.footprint.inputs > 0
