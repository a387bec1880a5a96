"""What the benchmarks send: the kinds and numbers that they claim, from the seed alone, and no source twice."""

from __future__ import annotations

from collections import Counter

from benchmarks import batches, kernels
from benchmarks.service import device_list, percentile
from benchmarks.violent import violent
from kerneldyno.client import EvalResult
from kerneldyno.v1.evaluation_pb2 import Finding


def test_mixed_batch_is_what_it_says() -> None:
    made = batches.mixed(0, tiny=False)
    kinds = Counter(candidate.kind for candidate in made)
    assert kinds == {
        "right": 64, "wrong": 32, "compile_error": 8, "runtime_error": 8, "illegal_access": 8, "decoy": 8
    }  # fmt: skip
    assert set(Counter(candidate.problem for candidate in made).values()) == {16}
    assert len({candidate.source for candidate in made}) == 128
    assert len({candidate.reference for candidate in made}) == 8
    assert batches.mixed(0, tiny=False) == made
    assert {candidate.source for candidate in batches.mixed(1, tiny=False)}.isdisjoint(row.source for row in made)


def test_a_larger_batch_is_more_of_the_same_and_nothing_twice() -> None:
    made = batches.mixed(0, tiny=True, per_problem=40)
    assert len(made) == len({row.name for row in made}) == len({row.source for row in made}) == 320
    kinds = Counter(row.kind for row in made)
    assert (kinds["right"], kinds["wrong"]) == (160, 80)


def test_every_source_but_the_syntax_errors_is_python() -> None:
    broken = 0
    for candidate in batches.mixed(0, tiny=True):
        try:
            compile(candidate.source, candidate.name, "exec")
        except SyntaxError:
            broken += 1
            assert candidate.kind == "compile_error"
    assert broken == 4  # Triton refuses the other four


def test_a_part_of_the_batch_keeps_right_and_wrong() -> None:
    assert {row.kind for row in batches.mixed(0, tiny=True, per_problem=4)} >= {"right", "wrong", "compile_error"}


def test_turns_get_better_and_are_near_identical() -> None:
    trajectories = batches.turns(0, tiny=True)
    assert {len(steps) for steps in trajectories} == {3}
    wrong = [sum(not steps[turn].right for steps in trajectories) for turn in range(3)]
    assert wrong == [32, 8, 0]
    assert len({step.source for steps in trajectories for step in steps}) == 384


def test_a_mismatch_is_an_outcome_or_a_finding() -> None:
    decoy = next(row for row in violent(40, 0, tiny=True) if row.findings)
    assert decoy.outcomes == ("REJECTED",)
    finding = Finding(id=min(decoy.findings))
    assert decoy.mismatch(EvalResult(outcome=EvalResult.REJECTED, findings=[finding])) == ""
    assert "expected REJECTED" in decoy.mismatch(EvalResult(outcome=EvalResult.CORRECT, findings=[finding]))
    assert "S19" in decoy.mismatch(EvalResult(outcome=EvalResult.REJECTED))


def test_a_fifth_of_the_violent_batch_is_violent() -> None:
    made = violent(50, 0, tiny=True)
    assert Counter(row.kind for row in made)["violent"] == 10
    assert any(row.timeouts and row.request(1, 1).HasField("timeouts") for row in made)


def test_twins_are_twins() -> None:
    for kind in ("cpu", "cuda"):
        for twin in kernels.twins(kind):
            assert twin.candidate.replace("ModelNew", "Model") == twin.reference
        assert kernels.spins(kind)[0].seconds == 0


def test_percentiles_and_devices() -> None:
    assert (percentile([3, 1, 2, 4], 50), percentile([1, 2, 3, 4], 95), percentile([7], 95)) == (2, 4, 7)
    assert device_list("0,1") == ["cuda:0", "cuda:1"]
    assert device_list("cpu") == ["cpu"]


def test_half_of_the_early_batch_fails_before_it_needs_a_device() -> None:
    made = batches.early(0, tiny=False)
    kinds = Counter(candidate.kind for candidate in made)
    early = {"compile_error": 16, "refused": 16, "missing_name": 16, "missing_module": 16}
    assert kinds == {"right": 48, "wrong": 8, "decoy": 8, **early}
    assert {row.kind for row in made if row.outcomes == batches.COMPILE_ERRORS} == set(early)
    assert len({candidate.source for candidate in made}) == 128
