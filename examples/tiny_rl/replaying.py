"""Pay turns by the verdicts of an earlier survey, without services: a GPU's curves can be computed on any machine.

With services a training sees the same verdicts: the scheduler answers work that it has judged before from its store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grammar
import programs
import trusting
from judging import BEYOND_BELIEF, COVERAGE_WEIGHT, Key, Paid, Written, paid_by_claim, reward_spec
from problem import Problem

from kerneldyno.client import EvalResult
from kerneldyno.rewards.scoring import score


class RecordError(ValueError):
    """The file is no result of train.py, or a verdict that is needed is missing."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A payer with the verdicts of a survey, by the name of its checks, and claims of the trusting evaluator."""

    verdicts: Mapping[str, Mapping[Key, Paid]]
    claims: Mapping[Key, trusting.Claim]

    async def pay(self, turns: Sequence[Written], checks: str = "on", *, pr: bool = False) -> list[Paid]:
        """Return the reward of each turn, in order. Raises RecordError for a program without a verdict."""
        return [self._paid(turn, checks, pr) for turn in turns]

    def _paid(self, turn: Written, checks: str, pr: bool) -> Paid:
        spec = reward_spec()
        if (plan := turn.plan) is None:
            reward = score(EvalResult(outcome=EvalResult.INVALID), spec)[0] or 0.0
            return Paid("INVALID", reward, correct=False, speedup=0.0, coverage=0.0)
        key = (turn.problem.name, plan.name)
        if checks == "trusting" and plan.kind in BEYOND_BELIEF and key in self.claims:
            return paid_by_claim(self.claims[key], spec)
        try:
            found = self.verdicts["on" if checks == "on" else "off"][key]
        except KeyError as error:
            raise RecordError(f"no verdict of {'/'.join(key)} with the checks {checks}: survey it again") from error
        return replace(found, reward=found.reward + COVERAGE_WEIGHT * found.coverage) if pr else found


def fingerprint(problems: Sequence[Problem]) -> str:
    """Return a digest of all references and programs. Recorded verdicts are valid only for the same digest."""
    sources = [each.reference + programs.write(each, plan) for each in problems for plan in grammar.plans()]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def read(path: Path, preset: str, problems: Sequence[Problem]) -> tuple[Recorded, dict[str, Any]]:
    """Return the verdicts in a results.json of train.py, and all its content.

    Raises:
        OSError: The file cannot be read.
        RecordError: It is no results.json, or its verdicts are of another preset, other programs or other references.
    """
    try:
        results: dict[str, Any] = json.loads(path.read_text())
        verdicts = {
            checks: {_key(name): _read_paid(fields) for name, fields in table.items()}
            for checks, table in results["verdicts"].items()
        }
        verdicts["on"]  # needed: figures are computed from these verdicts
        claims = {_key(name): trusting.Claim(**fields) for name, fields in results.get("claims", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path} is no results.json of train.py: {error}") from error
    if results.get("preset") != preset:
        raise RecordError(f"{path} has verdicts of --preset {results.get('preset')}")
    if results.get("sources") != fingerprint(problems):
        raise RecordError(f"{path} has verdicts of other programs or references than today's: survey again")
    return Recorded(verdicts, claims), results


def _key(name: str) -> Key:
    problem, _, program = name.rpartition("/")
    return problem, program


def _read_paid(fields: Mapping[str, Any]) -> Paid:
    return Paid(**{**fields, "findings": tuple(fields["findings"]), "interval": tuple(fields["interval"])})
