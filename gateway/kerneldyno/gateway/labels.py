"""Which problem a trainer's label means. A label is what the data set has beside each prompt.

"softmax"                          the id of a problem of --problems
"import torch ... class Model..."  a reference's source
{"problem": "softmax", ...}        JSON, as text or as an object: an id, or a row as kerneldyno.rollout.problems reads
{"reference_code": "...", ...}     it (verl's too), with `entry_point` and `options` (fields of EvalRequest)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kerneldyno.gateway.refusals import Refusal, bad
from kerneldyno.rollout.problems import Problem, ProblemError, from_row

_FORMS = "a label is the id of a problem of --problems, a reference's source, or JSON with problem or reference_code"


class Labels:
    """Finds the problem of a label."""

    def __init__(self, problems: Mapping[str, Problem]) -> None:
        self._problems = problems

    def problem(self, label: Any, where: str = "label") -> Problem:
        """Return the problem.

        Raises:
            Refusal: 400; the sentence starts with `where`.
        """
        if isinstance(label, str):
            text = label.strip()
            if text in self._problems:
                return self._problems[text]
            if text.startswith("{"):
                label = _parsed(text, where)
            elif "def " in label:
                label = {"reference_code": label}
            else:
                raise self._unknown(text, where)
        if not isinstance(label, Mapping):
            raise bad(f"{where}: {_FORMS}; this one is {type(label).__name__}")
        known = label.get("problem")
        if known is not None and "reference_code" not in label:
            if not isinstance(known, str) or known not in self._problems:
                raise self._unknown(str(known), where)
            return self._problems[known]
        try:
            return from_row(label, where)
        except ProblemError as error:
            raise bad(f"{error} ({_FORMS})") from error

    def _unknown(self, text: str, where: str) -> Refusal:
        count = len(self._problems)
        have = f"{count} problems are loaded, for example {next(iter(self._problems))!r}" if count else "none is loaded"
        return bad(f"{where}: {text[:60]!r} is no problem's id ({have}); {_FORMS}")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad(f"{where}: not JSON: {error}") from error
