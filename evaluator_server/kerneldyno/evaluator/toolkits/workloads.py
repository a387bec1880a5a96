"""The workloads of a reference in KernelBench form: values that its `get_inputs` is called with.

A reference whose `get_inputs` has a parameter has a list `cases` beside it, or a dict of names and values, unless the
request gives workloads.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..shared.spec import ProblemSpec

#: The contract's limits (kerneldyno.rpc.validation, which runners do not load): number of workloads, characters of a
#: name, bytes of a value.
MOST, NAME_CHARS, VALUE_BYTES = 100, 100, 4096


@dataclass(frozen=True, slots=True)
class Workload:
    """One of several inputs that a problem is judged on."""

    name: str
    value: Any

    @property
    def value_json(self) -> str:
        """Return the value as JSON for people; what JSON cannot hold is written as a string."""
        return json.dumps(self.value, default=str)[:VALUE_BYTES]

    def applied(self, function: Callable[..., Any]) -> Callable[[], Any]:
        """Return `function` with the value as its argument if it has a parameter. Each call gets a copy of the value."""
        if not takes_a_value(function):
            return function
        return functools.partial(_call_with_copy, function, self.value)


def of_module(module: ModuleType, spec: ProblemSpec) -> list[Workload]:
    """Return the workloads of a reference; none if it has no use for them.

    Raises:
        TypeError, ValueError: They are not what the reference needs; the message says what to do.
    """
    if not takes_a_value(module.get_inputs):
        if spec.workloads:
            raise TypeError("the request has workloads, but get_inputs() has no parameter for them")
        return []
    if spec.workloads:
        return [Workload(name, json.loads(value)) for name, value in spec.workloads]
    cases = getattr(module, "cases", None)
    if not isinstance(cases, list | tuple | dict) or not cases:
        raise TypeError("get_inputs() has a parameter: give a list `cases` beside it, or workloads in the request")
    if len(cases) > MOST:
        raise ValueError(f"there are {len(cases)} cases; at most {MOST} are allowed")
    if isinstance(cases, dict):
        return [Workload(str(name)[:NAME_CHARS], value) for name, value in cases.items()]
    return [Workload("", value) for value in cases]


def takes_a_value(function: Callable[..., Any]) -> bool:
    """Return True if a function cannot be called without an argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


def _call_with_copy(function: Callable[..., Any], value: Any) -> Any:
    return function(copy.deepcopy(value))
