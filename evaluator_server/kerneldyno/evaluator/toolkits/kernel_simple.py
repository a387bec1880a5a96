"""A candidate with fixed cases: a function (or a class without arguments), and what it must return for which inputs.

Cases come from `cases_code`, whose `get_cases()` returns [{"inputs": [...], "expected": ...}, ...], or inline as JSON.
They may differ in everything. All are checked in every process; if there are several, each is timed in one of its own.
There is no reference to time, so a correct candidate has times but no speedup.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..shared.spec import ProblemSpec
from .base import Problem, ReferenceFailure, Toolkit, run_source, to_device, unload_with
from .workloads import MOST, NAME_CHARS


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    inputs: list[Any]
    expected: Any


class _SimpleProblem(Problem):
    """Its number 0 is the case that is timed; the others follow in their order, and then those before it."""

    instantiate = False  # the harness instantiates the symbol if it turns out to be a class

    def __init__(self, spec: ProblemSpec, device: torch.device) -> None:
        self.symbol = spec.entry_point
        self.init_kwargs = {}
        cases = self._from_code(spec.cases_code) if spec.cases_code else _from_json(spec.cases)
        if not cases:
            raise ValueError("there are no cases; get_cases() returned an empty list")
        if len(cases) > MOST:
            raise ValueError(f"there are {len(cases)} cases; at most {MOST} are allowed")
        if spec.workload >= len(cases):
            raise ValueError(f"case {spec.workload + 1} is to be timed, and there are {len(cases)} cases this time")
        self.cases = len(cases)
        if len(cases) > 1:
            self.workloads = [(_name(case.name) or f"case {number}", "") for number, case in enumerate(cases, 1)]
        self._cases = [
            (to_device(case.inputs, device), to_device(case.expected, device))
            for case in (*cases[spec.workload :], *cases[: spec.workload])
        ]

    def _from_code(self, source: str) -> list[_Case]:
        module, cases = run_source(source), []
        unload_with(self, module)
        for number, case in enumerate(module.get_cases()):
            if not isinstance(case, dict) or not {"inputs", "expected"} <= case.keys():
                raise TypeError(f'get_cases()[{number}] is not {{"inputs": [...], "expected": ...}}')
            cases.append(_Case(str(case.get("name") or ""), list(case["inputs"]), case["expected"]))
        return cases

    def inputs(self, trial: int, seed: int) -> tuple[Any, ...]:
        return tuple(copy.deepcopy(self._cases[trial % len(self._cases)][0]))

    def expected(self, trial: int, arguments: Sequence[Any], seed: int) -> Any:
        return self._cases[trial % len(self._cases)][1]


def _name(given: str) -> str:
    """Return a name in one line, without what cannot be printed, and not too long."""
    return " ".join("".join(each if each.isprintable() else " " for each in given).split())[:NAME_CHARS]


def _from_json(cases: Sequence[tuple[str, str, str]]) -> list[_Case]:
    return [_Case(name, _revive(json.loads(inputs)), _revive(json.loads(wanted))) for name, inputs, wanted in cases]


def _revive(value: Any) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        dtype = getattr(torch, str(value.get("dtype", "float32")), None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"unknown dtype {value.get('dtype')!r}")
        return torch.tensor(value["tensor"], dtype=dtype)
    if isinstance(value, list):
        return [_revive(part) for part in value]
    if isinstance(value, dict):
        return {key: _revive(part) for key, part in value.items()}
    return value


class KernelSimpleToolkit(Toolkit):
    """Builds problems from cases."""

    name = "kernel_simple"

    def build(self, spec: ProblemSpec, device: torch.device, seed: int) -> Problem:
        try:
            return _SimpleProblem(spec, device)
        except BaseException as error:
            raise ReferenceFailure("cases", error) from error


TOOLKIT = KernelSimpleToolkit()
