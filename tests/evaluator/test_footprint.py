"""The memory plan: what an evaluation needs for a problem's sizes, and how arenas shrink if it would not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerneldyno.evaluator.devices.base import Device
from kerneldyno.evaluator.judge.memory import footprint
from kerneldyno.evaluator.judge.memory.footprint import Footprint, HostNeed, constructing
from kerneldyno.evaluator.judge.memory.together import most_passing, most_prepared, trials_together
from kerneldyno.evaluator.judge.runners.side import Sizes

pytestmark = pytest.mark.pure

MIB, GIB = 1 << 20, 1 << 30
H200 = 140 * GIB


def gpu(memory: int = H200, kind: str = "cuda") -> Device:
    return cast(Device, SimpleNamespace(kind=kind, at_most=lambda nbytes, share: min(nbytes, int(memory * share))))


def problem(inputs: int, outputs: int, working: int | None = None, **more: Any) -> Footprint:
    fields: dict[str, Any] = {"parameters": 0, "ahead": GIB, **more}
    return Footprint(inputs, outputs, outputs if working is None else working, **fields)


def shape(found: Footprint, capacity: int = H200, *, timed: bool = True) -> tuple[int, int]:
    sizes = found.sizes(gpu(), capacity, timed=timed)
    return sizes.sets, sizes.slots


@pytest.mark.parametrize(
    ("inputs", "outputs", "sets", "slots"),
    [
        (MIB, MIB, 40, 40),
        (64 * MIB, 64 * MIB, 8, 8),
        (64 * MIB, 512 * MIB, 3, 3),
        (512 * MIB, MIB, 3, 3),
        (GIB, 512 * MIB, 3, 3),
        (2 * GIB, 512 * MIB, 1, 3),  # three sets would take more than a thirty-second of the device's memory
        (2 * GIB, 2 * GIB, 1, 2),
    ],
)
def test_arenas_hold_what_timing_likes_where_there_is_room(inputs: int, outputs: int, sets: int, slots: int) -> None:
    assert shape(problem(inputs, outputs)) == (sets, slots)


def test_trials_are_prepared_together_as_far_as_a_share_of_the_memory_goes() -> None:
    sizes = [1024, 8 * MIB, 32 * MIB, 64 * MIB, 256 * MIB]
    assert [trials_together(gpu(), size, size) for size in sizes] == [8, 8, 7, 3, 0]
    assert [trials_together(gpu(8 * GIB), size, size) for size in sizes] == [8, 1, 0, 0, 0]
    # Three sets of inputs go in for each, and three answers of twice their bytes come out.
    assert most_passing(gpu(), 64 * MIB, 64 * MIB) == 3 * (3 * 64 + 6 * 64) * MIB
    assert most_passing(gpu(), 256 * MIB, MIB) == 2 * (3 * 256 + 6) * MIB
    assert most_passing(gpu(), 256 * MIB, 256 * MIB) == (256 + 512) * MIB
    # The next trials are prepared while these are tried: each takes its inputs twice and its outputs four times.
    assert most_prepared(gpu(), 64 * MIB, 64 * MIB) == 2 * 3 * 6 * 64 * MIB
    assert most_prepared(gpu(), 256 * MIB, 256 * MIB) == 2 * 6 * 256 * MIB


def test_what_passes_is_in_the_plan_of_small_problems() -> None:
    small, large = problem(8 * MIB, 8 * MIB), problem(GIB, MIB)
    assert problem(8 * MIB, 8 * MIB, passing=GIB).judged == small.judged + GIB
    assert problem(GIB, MIB, passing=GIB).judged == large.judged


def test_prepared_trials_are_gone_before_anything_is_drawn_for_timing() -> None:
    sizes = Sizes(None, [], sets=1, slots=1, slot_bytes=MIB)
    few, many = (problem(MIB, MIB, ahead=2 * GIB, prepared=prepared * GIB) for prepared in (1, 3))
    assert few.needed(sizes, timed=True) == problem(MIB, MIB, ahead=2 * GIB).needed(sizes, timed=True)
    assert many.needed(sizes, timed=True) == few.needed(sizes, timed=True) + GIB
    assert many.needed(sizes, timed=False) == few.needed(sizes, timed=False) + 2 * GIB


def test_large_trials_are_prepared_one_by_one() -> None:
    sizes = Sizes(None, [], sets=1, slots=1, slot_bytes=GIB)
    one_by_one, ahead = (problem(GIB, GIB, prepared=prepared * GIB) for prepared in (0, 12))
    assert one_by_one.is_large
    assert ahead.needed(sizes, timed=True) == one_by_one.needed(sizes, timed=True)
    assert ahead.judged_at_most == one_by_one.judged_at_most


def test_inputs_that_are_spared_are_there_once_less() -> None:
    assert problem(GIB, GIB, spares_inputs=True).judged == problem(GIB, GIB).judged - GIB


def test_a_candidate_that_is_not_timed_needs_one_set() -> None:
    assert shape(problem(MIB, MIB), timed=False) == (1, 3)


def test_arenas_shrink_step_by_step_where_the_evaluation_would_not_fit() -> None:
    large = problem(GIB, 8 * GIB, 16 * GIB)
    seen = [shape(large, capacity * GIB) for capacity in (200, 140, 130, 90, 1)]
    assert seen == [(3, 3), (2, 2), (1, 2), (1, 1), (1, 1)]


def test_the_need_grows_with_everything_that_is_there_at_once() -> None:
    sizes = Sizes(None, [], sets=1, slots=1, slot_bytes=GIB)
    least = problem(GIB, GIB).needed(sizes, timed=True)
    assert least > problem(GIB, GIB).needed(sizes, timed=False)
    more = [
        problem(2 * GIB, GIB).needed(sizes, timed=True),
        problem(GIB, 2 * GIB).needed(sizes, timed=True),
        problem(GIB, GIB, 3 * GIB).needed(sizes, timed=True),
        problem(GIB, GIB, parameters=GIB).needed(sizes, timed=True),
        problem(GIB, GIB, ahead=2 * GIB).needed(sizes, timed=True),
        problem(GIB, GIB).needed(Sizes(None, [], 2, 2, GIB), timed=True),
    ]
    assert all(need >= least + GIB for need in more)


def test_eight_gibibytes_of_an_elementwise_operation_fit_an_h200() -> None:
    found = problem(8 * GIB, 8 * GIB, 16 * GIB, ahead=0, spares_inputs=True)  # x * sigmoid(x)
    sizes = found.sizes(gpu(), 134 * GIB, timed=True)
    assert (sizes.sets, sizes.slots) == (1, 1)
    assert 100 * GIB < found.needed(sizes, timed=True) < 138 * GIB


def test_a_pooling_of_sixteen_gibibytes_fits_beside_contexts() -> None:
    # When inputs are drawn, the problem holds them, they are on their way, and the judge keeps them.
    found = problem(16 * GIB, GIB // 8, GIB // 4, ahead=0, spares_inputs=True)
    assert 3 * 16 * GIB < found.judged < 51 * GIB
    assert found.needed(found.sizes(gpu(), 120 * GIB, timed=True), timed=True) < 120 * GIB


@pytest.mark.parametrize(
    ("found", "large"),
    [
        (problem(100 * MIB, 100 * MIB), False),
        (problem(200 * MIB, 100 * MIB), True),
        (problem(MIB, MIB, 300 * MIB), True),
        (problem(MIB, MIB, flops=10**11), False),
        (problem(MIB, MIB, flops=10**12), True),
    ],
)
def test_what_is_large(found: Footprint, large: bool) -> None:
    assert found.is_large is large
    assert found.judged_at_most > found.judged


def test_twins_of_all_of_it_are_planned_for_where_they_are_made() -> None:
    small, large = problem(100 * MIB, 100 * MIB), problem(200 * MIB, 100 * MIB)
    assert small.judged > large.judged


def test_the_candidates_limit_is_twice_its_reference_and_four_gibibytes() -> None:
    assert problem(GIB, GIB, 3 * GIB, parameters=2 * GIB).candidate_limit == 2 * 6 * GIB + 4 * GIB


def test_a_reference_may_hold_the_answer_of_a_call_that_does_nothing_as_well() -> None:
    # While one output is made, the memory of another lies in the allocator's cache, cut up by smaller tensors.
    found = problem(GIB, 9 * GIB, 9 * GIB)
    sizes = Sizes(None, [], sets=1, slots=1, slot_bytes=9 * GIB)
    assert found.reference_limit(sizes) - found.candidate_limit == 9 * GIB
    assert found.reference_runner(sizes) == (1 + 9) * GIB + (1 + 9) * GIB + 9 * GIB


def test_a_large_answer_of_a_call_that_does_nothing_takes_no_memory_where_it_fits_over_the_inputs() -> None:
    found = problem(8 * GIB, 8 * GIB)
    sizes = Sizes(None, [], sets=1, slots=1, slot_bytes=8 * GIB)
    assert found.reference_limit(sizes) == found.candidate_limit
    assert found.reference_runner(sizes) == (8 + 8) * GIB + (8 + 8) * GIB


def test_what_an_evaluation_takes_is_the_candidates_and_what_is_beside_it() -> None:
    found = problem(GIB, GIB, 3 * GIB, parameters=2 * GIB)
    sizes = Sizes(None, [], sets=2, slots=3, slot_bytes=GIB)
    assert found.kept(sizes) == 2 * GIB
    assert found.needed(sizes, timed=True) - found.beside(sizes, timed=True) == found.alone + 2 * GIB


@pytest.mark.parametrize(("timed", "reference"), [(True, 18 * GIB), (False, 0)])
def test_beside_a_gpu_modules_are_constructed_on_the_host(timed: bool, reference: int) -> None:
    sizes = Sizes(None, [], sets=3, slots=3, slot_bytes=GIB)
    found = problem(GIB, GIB, parameters=15 * GIB, construction=16 * GIB, drawing=2 * GIB, secret=GIB)
    assert found.host_need(gpu(), sizes, timed=timed) == HostNeed(16 * GIB, reference)


def test_on_the_cpu_everything_is_on_the_host() -> None:
    sizes = Sizes(None, [], sets=2, slots=3, slot_bytes=MIB)
    found = problem(MIB, MIB, 3 * MIB, parameters=10 * MIB, construction=25 * MIB, drawing=7 * MIB, secret=2 * MIB)
    need = found.host_need(gpu(kind="cpu"), sizes, timed=True)
    arenas, kept, two_instances, secret, passing = (2 + 3) * MIB, 2 * MIB, (1 + 3 + 2 * 10) * MIB, 2 * 2 * MIB, 15 * MIB
    assert need.candidate == arenas + kept + two_instances + secret + passing
    assert need.reference == found.reference_runner(sizes) + passing
    assert found.host_need(gpu(kind="cpu"), sizes, timed=False).reference == 0


@pytest.mark.parametrize(
    ("parameters", "measured", "takes"),
    [(4, 6, 6), (4, 3, 4), (4, 20, 20), (4, None, 8), (0, None, 0)],
)
def test_constructing_takes_what_was_measured_and_at_least_the_parameters(
    parameters: int, measured: int | None, takes: int
) -> None:
    assert constructing(parameters, measured) == takes


def test_an_unknown_problem_gets_a_quarter() -> None:
    assert footprint.unknown(H200) == 35 * GIB
