"""The texts that benchmarks/feedback.py compares: different feedback on the same result.

Most are the project's feedback, shortened to some length, or made from a result without one part, so that the row shows
the value of that part. `none` and `outcome` are lower bounds, `json` is the usual form.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from kerneldyno.client import EvalResult
from kerneldyno.rewards.counters import MEMORY_FINDINGS
from kerneldyno.rewards.feedback import feedback
from kerneldyno.v1.reward_service_pb2 import Extraction

DEFAULT_CHARS = 2_000

Variant = Callable[[EvalResult, Extraction], str]


def _default(result: EvalResult, extraction: Extraction) -> str:
    return feedback(result, limit=DEFAULT_CHARS, extraction=extraction)


def _short(limit: int) -> Variant:
    return lambda result, extraction: feedback(result, limit=limit, extraction=extraction)


def _nothing(_: EvalResult, __: Extraction) -> str:
    return ""


def _outcome(result: EvalResult, _: Extraction) -> str:
    return EvalResult.Outcome.Name(result.outcome)


def _json(result: EvalResult, _: Extraction) -> str:
    """Return status, correctness, speedup, message and traceback as JSON, the usual answer of evaluators."""
    error = result.compile_error if result.HasField("compile_error") else result.runtime_error.exception
    told = {
        "status": EvalResult.Outcome.Name(result.outcome),
        "compiled": result.compiled,
        "correct": result.correct,
        "speedup": round(result.speedup, 3),
        "message": result.message,
        "traceback": error.traceback,
    }
    return json.dumps(told, indent=1)[:DEFAULT_CHARS]


def _without(take: Callable[[EvalResult], None]) -> Variant:
    def told(result: EvalResult, extraction: Extraction) -> str:
        less = EvalResult()
        less.CopyFrom(result)
        take(less)
        return _default(less, extraction)

    return told


def _take_places(result: EvalResult) -> None:
    """Remove lines, frames, and source quoted by compilers."""
    for error in (result.compile_error, result.runtime_error.exception):
        if error.type:
            error.traceback = ""
            error.message = re.sub(r"\(candidate\.py, line \d+\)", "", error.message)


def _take_numbers(result: EvalResult) -> None:
    """Remove how much is wrong, where, and by how much."""
    if result.HasField("incorrect"):
        wrong = result.incorrect
        wrong.detail = re.sub(r"\d+ of \d+ elements", "elements", wrong.detail)
        wrong.ClearField("worst_index")
        wrong.max_error_ratio = wrong.max_abs_error = 0.0
    result.ClearField("correctness")


def _take_stress(result: EvalResult) -> None:
    """Remove the kind of inputs on which it was wrong."""
    if result.HasField("incorrect"):
        result.incorrect.detail = re.sub(r" on stress inputs \(\w+\)", "", result.incorrect.detail)
        result.incorrect.ClearField("stress")


def _take_findings(result: EvalResult) -> None:
    del result.findings[:]


def _take_profile(result: EvalResult) -> None:
    result.ClearField("profile")
    result.ClearField("roofline")


def _take_counters(result: EvalResult) -> None:
    result.ClearField("counters")


def _take_memory(result: EvalResult) -> None:
    """Remove which error of memory there is, and where; a right candidate was refused all the same."""
    result.ClearField("sanitizer")
    kept = [finding for finding in result.findings if finding.id not in MEMORY_FINDINGS]
    del result.findings[:]
    result.findings.extend(kept)
    if result.incorrect.kind == "memory":
        result.incorrect.detail = "the outputs are right, and a rule of memory is broken"


def _take_call(result: EvalResult) -> None:
    """Remove which call was wrong, if it was no trial."""
    if result.HasField("incorrect"):
        result.incorrect.ClearField("trial")


#: By name. For `oracle` there is no text: the benchmark submits the right program.
VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "none": _nothing,
        "outcome": _outcome,
        "json": _json,
        "without places": _without(_take_places),
        "without numbers": _without(_take_numbers),
        "without stress": _without(_take_stress),
        "without findings": _without(_take_findings),
        "without profile": _without(_take_profile),
        "without counters": _without(_take_counters),
        "without memory": _without(_take_memory),
        "without call": _without(_take_call),
        "80 characters": _short(80),
        "256 characters": _short(256),
        "default": _default,
    }
)
ORACLE = "oracle"


def of_file(path: Path) -> dict[str, Variant]:
    """Return variants with the `feedback` function of another file: the default length and a short one.

    Raises:
        OSError, ImportError: there is no such file, or it is not a module of this kind.
    """
    spec = importlib.util.spec_from_file_location("other_feedback", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def told(limit: int) -> Variant:
        return lambda result, extraction: str(module.feedback(result, limit=limit, extraction=extraction))

    return {"other, 256 characters": told(256), "other": told(DEFAULT_CHARS)}
