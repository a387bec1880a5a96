"""The generator of adversaries: what it draws is what it says, and runs."""

from __future__ import annotations

import random

import pytest
import torch

from benchmarks import adversary as benchmark
from corpus.adversary import draw as drawing
from corpus.adversary import guards, shortcuts
from corpus.adversary.draw import draw, is_off, proof
from corpus.adversary.problems import PROBLEMS, Problem
from kerneldyno.client import LocalServices
from tests import sampling

#: Shortcuts that are right unless something is drawn that makes them wrong.
_SOMETIMES = {"early stop", "last column"}


@pytest.mark.pure
def test_a_seed_decides_everything_and_another_draws_others() -> None:
    first, again, other = ([each.source for each in draw(seed, 30)] for seed in (1, 1, 2))
    assert first == again
    pairs = list(zip(draw(1, 60), draw(1, 60, "cuda"), strict=True))
    other_size = [each for each in pairs if each[0].shortcut == each[1].shortcut]
    assert len(other_size) > 50  # the others are no shortcuts there
    assert not any(each.problem == "convolution" and each.shortcut == "tf32 inputs" for _, each in pairs)
    assert len({*first, *other}) == 60  # no two are the same


@pytest.mark.pure
def test_what_is_drawn_is_off_and_honest_twins_are_not() -> None:
    drawn = list(draw(3, sampling.count(120, 40)))
    assert all(is_off(each) for each in drawn if not each.is_honest)
    for honest in (each for each in drawn if each.is_honest):
        off, own = next(iter(proof(honest)))
        assert off <= 8 * own, honest.name
    assert 0.1 < sum(each.is_honest for each in drawn) / len(drawn) < 0.35


@pytest.mark.pure
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_each_shortcut_of_each_problem_can_be_wrong(problem: Problem) -> None:
    for shortcut in shortcuts.of(problem):
        tries = [drawing.made(random.Random(at), problem, ["nothing"], shortcut, "cpu", "it") for at in range(4)]
        assert any(map(is_off, tries)), shortcut
        assert shortcut in _SOMETIMES or all(map(is_off, tries)), shortcut


@pytest.mark.pure
def test_what_is_right_on_all_inputs_that_pass_is_no_shortcut() -> None:
    """Cumulative products of numbers below 1 vanish, so leaving out their end is right wherever all are below 1."""
    (problem,) = (each for each in PROBLEMS if each.name == "cumulative_product")

    def off(looks: list[str]) -> list[bool]:
        return [is_off(drawing.made(random.Random(at), problem, looks, "last column", "cpu", "it")) for at in range(4)]

    assert any(off(["grid"]))
    assert not any(off(["extremes"]) + off(["grid", "all"]))


@pytest.mark.pure
@pytest.mark.parametrize("guard", [*guards.VALUES, *guards.REST])
def test_each_guard_runs_and_those_of_values_let_nominal_inputs_pass(guard: str) -> None:
    for problem in PROBLEMS[1:4]:
        made = drawing.made(random.Random(1), problem, [guard], "scale", "cpu", "it")
        reference, candidate = drawing.executed(made.reference), drawing.executed(made.source)
        torch.manual_seed(1)
        model = candidate["ModelNew"]()
        inputs = reference["get_inputs"]()
        with torch.no_grad():
            answers = [model(*inputs) for _ in range(3)]
            if guard in guards.VALUES:
                assert torch.equal(answers[0], model.shortcut(*inputs)), problem.name
        assert all(answer.shape == answers[0].shape for answer in answers)


@pytest.mark.pure
def test_shares_and_their_intervals() -> None:
    assert benchmark.interval(0, 2000)[1] < 0.002 < benchmark.interval(10, 2000)[0]
    low, high = benchmark.interval(50, 100)
    assert low < 0.5 < high < low + 0.2
    assert benchmark.interval(0, 0) == (0.0, 1.0)


@pytest.mark.pure
@pytest.mark.parametrize("count", ["0", "-3", "x"])
def test_a_count_of_nothing_is_refused(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        benchmark._options(["--count", count])
    assert f"--count{': invalid int' if count == 'x' else f' {count}: at least 1'}" in capsys.readouterr().err


async def test_drawn_candidates_are_judged() -> None:
    """Whatever their verdict is, it is one of values: they run. Honest ones are right."""
    options = benchmark._options(["--count", "8", "--seed", "5", "--devices", "cpu"])
    with LocalServices(devices="cpu", lanes=2) as services:
        measured = await benchmark._measure(services, options)
    rows = measured["rows"]
    assert len(rows) == 8
    assert {row["outcome"] for row in rows} <= {"CORRECT", "INCORRECT", "REJECTED"}, rows
    assert [row["outcome"] for row in rows if not row["shortcut"]] == ["CORRECT"] * sum(not r["shortcut"] for r in rows)
