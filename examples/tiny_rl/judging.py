"""Score the policy's programs: turns go through the real reward stream, with the checks on or off.

Three ways to judge:
    on        the request's defaults: stress inputs, secret parameters, calibrated tolerance, decoys are rejected
    off       everything is off that public fields of a request can switch off: decoys are only labelled, no stress
              inputs, allclose at 1e-2
    trusting  as off. But no field makes the judge believe a candidate's clock, or skip the check of timed outputs. For
              programs that exploit these two, the reward is computed from the claim of trusting.py.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import grammar
import programs
import trusting
from grammar import Plan
from problem import Problem

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, RewardSpec, StreamRewardsResponse, Tolerance, Turn
from kerneldyno.rewards.scoring import score
from kerneldyno.rewards.trajectories import TrajectoryWriter, TurnRecord
from kerneldyno.v1.evaluation_pb2 import PROVENANCE_POLICY_LABEL, Stage

CHECKS = ("on", "off", "trusting")
#: Programs that need an evaluator that believes the candidate's clock or does not check timed outputs. Ours is not one.
BEYOND_BELIEF = frozenset({"stale", "forged_clock"})
#: Few trials: interpreted calls take milliseconds. The judge adds stress trials, and times at least eight calls.
_CORRECT_TRIALS, _PERF_TRIALS = 1, 10

#: Weight of coverage in the rewards of settings with PR.
COVERAGE_WEIGHT = 0.5

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Written:
    """One turn as the policy wrote it."""

    problem: Problem
    words: tuple[str, ...]
    #: Names the turn: group, sample, turn index.
    group: str
    sample: int
    turn: int
    #: The prompt, as text; for the record.
    told: str = ""

    @property
    def plan(self) -> Plan | None:
        """Plan of the program; None if it is ill-formed."""
        return grammar.parse(self.words)


@dataclass(frozen=True, slots=True)
class Paid:
    """Reward and verdict of a turn."""

    outcome: str
    reward: float
    correct: bool
    speedup: float
    coverage: float
    findings: tuple[str, ...] = ()
    interval: tuple[float, float] = (0.0, 0.0)
    message: str = ""


class Payer(Protocol):
    """Interface of the classes that pay turns: `Judging`, and `Recorded` of replaying.py."""

    async def pay(self, turns: Sequence[Written], checks: str = "on", *, pr: bool = False) -> list[Paid]:
        """Return the reward and verdict of each turn, in the order of `turns`."""


@dataclass
class Judging:
    """A payer that has turns judged through a scheduler.

    Args:
        profiled: whether the node can profile. If not (the CPU device), coverage comes from `claims`.
        claims: results of the trusting evaluator, by problem and program.
        salt: makes all work new to the scheduler, so that it uses no stored verdict.
        anew: judge every turn, as if the policy never wrote the same program twice.
    """

    client: AsyncClient
    profiled: bool = False
    claims: Mapping[Key, trusting.Claim] = field(default_factory=dict)
    salt: str = ""
    anew: bool = False
    #: Records the turns of episodes that were judged with the checks on, if given; and a unique name of this run.
    recorder: TrajectoryWriter | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    #: Turns sent so far, and seconds spent waiting for their rewards.
    sent: int = 0
    waited: float = 0.0
    #: Turns that were judged, not answered from the store: their number, and the seconds of their stages by name.
    judged: int = 0
    stage_seconds: dict[str, float] = field(default_factory=dict)

    async def pay(self, turns: Sequence[Written], checks: str = "on", *, pr: bool = False) -> list[Paid]:
        """Send turns to the reward stream; return the reward of each, in the order of `turns`."""
        began = time.monotonic()
        reward = reward_spec(coverage_weight=COVERAGE_WEIGHT if pr and self.profiled else 0.0)
        messages = [self._message(turn, checks) for turn in turns]
        places = {message.request.id: index for index, message in enumerate(messages)}
        paid: list[Paid | None] = [None] * len(turns)
        async for answer in self.client.rewards(messages, reward):
            turn = turns[places[answer.id]]
            if self.recorder is not None and checks == "on" and turn.told:  # without the checks, cheats pass as well
                self.recorder.write(record(turn, answer, self.run))
            self._count(answer.result)
            paid[places[answer.id]] = self._paid(turn, answer.result, answer.reward, checks, reward, pr)
        self.sent += len(turns)
        self.waited += time.monotonic() - began
        return [each for each in paid if each is not None]

    def _count(self, result: EvalResult) -> None:
        if result.cached or not result.stages:
            return
        self.judged += 1
        for span in result.stages:
            name = Stage.Name(span.stage)
            self.stage_seconds[name] = self.stage_seconds.get(name, 0.0) + span.duration.ToNanoseconds() / 1e9

    def _message(self, turn: Written, checks: str) -> Turn:
        name = f"{turn.group}/{turn.sample}/{turn.turn}"
        salt = f"{self.run}/{self.sent}/{name}" if self.anew else self.salt
        request = EvalRequest(id=name, reference_code=turn.problem.reference, salt=salt)
        request.num_correct_trials, request.num_perf_trials, request.num_warmup = _CORRECT_TRIALS, _PERF_TRIALS, 0
        request.enable_profiling = self.profiled  # also without PR, so that settings with and without it share verdicts
        if checks != "on":
            request.provenance_policy = PROVENANCE_POLICY_LABEL
            request.stress_inputs = False
            request.tolerance.CopyFrom(Tolerance(preset=Tolerance.PRESET_LOOSE))
        return Turn(
            group=turn.group, sample=turn.sample, turn_index=turn.turn, request=request, response_text=respond(turn)
        )

    def _paid(self, turn: Written, result: EvalResult, reward: float, checks: str, spec: RewardSpec, pr: bool) -> Paid:
        plan = turn.plan
        claim = self.claims.get((turn.problem.name, plan.name)) if plan else None
        if checks == "trusting" and plan is not None and claim is not None and plan.kind in BEYOND_BELIEF:
            return paid_by_claim(claim, spec)
        correct = result.outcome == EvalResult.CORRECT
        coverage = 0.0
        if correct:
            coverage = result.coverage if self.profiled else (claim.coverage if claim else 0.0)
            reward += COVERAGE_WEIGHT * coverage if pr and not self.profiled else 0.0
        return Paid(
            outcome=EvalResult.Outcome.Name(result.outcome),
            reward=reward,
            correct=correct,
            speedup=result.speedup,
            coverage=coverage,
            findings=tuple(sorted(finding.id for finding in result.findings)),
            interval=(result.speedup_interval.low, result.speedup_interval.high),
            message=result.message,
        )


def reward_spec(*, coverage_weight: float = 0.0) -> RewardSpec:
    """Return the specification of the Dr. Kernel release's reward, without second measurements: verdicts are cached."""
    return RewardSpec(preset="drkernel", coverage_weight=coverage_weight, remeasure_above=math.inf, feedback_chars=0)


def paid_by_claim(claim: trusting.Claim, spec: RewardSpec) -> Paid:
    """Return the pay of a trainer that believes the trusting evaluator."""
    result = EvalResult(outcome=EvalResult.CORRECT if claim.correct else EvalResult.INCORRECT, speedup=claim.speedup)
    return Paid(
        outcome=EvalResult.Outcome.Name(result.outcome),
        reward=score(result, spec)[0] or 0.0,
        correct=claim.correct,
        speedup=claim.speedup,
        coverage=claim.coverage if claim.correct else 0.0,
    )


def record(turn: Written, answer: StreamRewardsResponse, run: str) -> TurnRecord:
    """Return the record of a turn, in the form of a language model's rollout."""
    return TurnRecord.from_answer(
        answer,
        group=f"{run}/{answer.group}",
        problem_id=turn.problem.name,
        messages=[{"role": "user", "content": turn.told}],
        response=respond(turn),
        model="tiny_rl",
    )


def respond(turn: Written) -> str:
    """Return the answer in the form of a language model's: a code block, which is cut off for an ill-formed program."""
    plan = turn.plan
    if plan is None:
        return f"This plan: {' '.join(turn.words)}.\n\n```python\nimport torch\n"
    return f"This plan: {plan.name}.\n\n```python\n{programs.write(turn.problem, plan)}```\n"


async def survey(
    judging: Judging, problems: Sequence[Problem], checks: str, progress: Callable[[int, int], None]
) -> dict[Key, Paid]:
    """Judge every program of the grammar once, so that training gets all verdicts from the scheduler's store."""
    turns = [
        Written(problem, plan.words, f"survey-{checks}{judging.salt}/{problem.name}", index, 0)
        for problem in problems
        for index, plan in enumerate(grammar.plans())
    ]
    found: dict[Key, Paid] = {}
    for start in range(0, len(turns), 44):
        part = turns[start : start + 44]
        for turn, paid in zip(part, await judging.pay(part, checks), strict=True):
            assert turn.plan is not None
            found[turn.problem.name, turn.plan.name] = paid
        progress(len(found), len(turns))
    return found


def believed(problems: Sequence[Problem], device: str = "cpu") -> dict[Key, trusting.Claim]:
    """Return the trusting evaluator's claims about programs without a mistake.

    On the CPU, where claims also give the coverage, these are all such programs. On a GPU the profiler measures
    coverage, so only programs of the kinds in `BEYOND_BELIEF` need a claim.
    """
    pairs = [
        (problem, plan)
        for problem in problems
        for plan in grammar.plans()
        if plan.edge == "masked" and (device == "cpu" or plan.kind in BEYOND_BELIEF)
    ]
    claims = trusting.believe(((problem.reference, programs.write(problem, plan)) for problem, plan in pairs), device)
    return {(problem.name, plan.name): claim for (problem, plan), claim in zip(pairs, claims, strict=True)}
