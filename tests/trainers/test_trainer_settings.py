"""Tests of the settings that choose which speedup counts: in the reward, or in fields of every request."""

from __future__ import annotations

import pytest

from kerneldyno.rollout.problems import Problem
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.trainers.settings import load
from kerneldyno.trainers.turns import make_turn
from kerneldyno.v1.evaluation_pb2 import (
    PROFILE_LEVEL_COUNTERS,
    PROFILE_LEVEL_UNSPECIFIED,
    SPEEDUP_KIND_END_TO_END,
    SPEEDUP_KIND_UNSPECIFIED,
)

KIND = "SPEEDUP_KIND_END_TO_END"


def test_a_kind_that_is_not_known_is_refused() -> None:
    for reward in ({"speedup_kind": "SPEEDUP_KIND_WALL"}, {"speedup_kind": 7}):
        with pytest.raises(SettingsError, match=r"kerneldyno\.reward.*speedup_kind"):
            load({"reward": reward})


def test_the_reward_may_say_which_speedup_is_paid() -> None:
    assert load({"reward": {"preset": "kevin", "speedup_kind": KIND}}).reward_spec().speedup_kind == (
        SPEEDUP_KIND_END_TO_END
    )
    assert load({"reward": "kevin"}).reward_spec().speedup_kind == SPEEDUP_KIND_UNSPECIFIED


def test_requests_may_say_it_and_how_precisely_it_is_measured() -> None:
    settings = load({"request": {"speedup_kind": "end-to-end", "timing_precision": 0.05}})
    problem = Problem(id="p", reference_code="class Model: ...")
    request = make_turn(problem, settings, "class ModelNew: ...", group="g", sample=0, turn_index=0).request
    assert (request.speedup_kind, request.timing_precision) == (SPEEDUP_KIND_END_TO_END, 0.05)
    with pytest.raises(SettingsError, match="SPEEDUP_KIND_WALL"):
        make_turn(problem, load({"request": {"speedup_kind": "wall"}}), "x", group="g", sample=0, turn_index=0)


def test_ranking_by_coverage_needs_profiles_whatever_a_problem_says() -> None:
    ranked = {"strategy": "top", "rank_by": "coverage"}
    for request in ({"enable_profiling": False}, {"profile_level": "none"}):
        with pytest.raises(SettingsError, match="needs profiles"):
            load({**ranked, "request": request})
    declines = Problem(id="p", reference_code="class Model: ...", options={"profile_level": "none"})
    asked = make_turn(declines, load(ranked), "x", group="g", sample=0, turn_index=0).request
    assert (asked.enable_profiling, asked.profile_level) == (True, PROFILE_LEVEL_UNSPECIFIED)
    plain = Problem(id="p", reference_code="class Model: ...")
    settings = load({**ranked, "request": {"profile_level": "counters"}})
    asked = make_turn(plain, settings, "x", group="g", sample=0, turn_index=0).request
    assert (asked.HasField("enable_profiling"), asked.profile_level) == (False, PROFILE_LEVEL_COUNTERS)
