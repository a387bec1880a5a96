"""Find the problem of a trainer's label. A label is a column of the data set beside each prompt.

"softmax"                          id of a problem in --problems
"import torch ... class Model..."  source of a reference
{"problem": "softmax", ...}        JSON, as text or as an object: an id,
{"reference_code": "...", ...}     or a row that kerneldyno.rollout.problems reads (verl's too), with `entry_point` and
                                   `options` (fields of EvalRequest)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kerneldyno.gateway.refusals import Refusal, bad_request
from kerneldyno.rollout.problems import Problem, ProblemError, from_row

_FORMS = (
    "a label is the id of a problem in --problems, the source of a reference, or JSON with problem or reference_code"
)


class Labels:
    """Find the problem of a label."""

    def __init__(self, problems: Mapping[str, Problem]) -> None:
        self._problems = problems

    def problem(self, label: Any, where: str = "label") -> Problem:
        """Return the problem of a label.

        Args:
            label: see above.
            where: place of the label, for error messages.

        Raises:
            Refusal: 400 if there is no such problem; the sentence starts with `where`.
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
            raise bad_request(f"{where}: {_FORMS}; this one is {type(label).__name__}")
        known = label.get("problem")
        if known is not None and "reference_code" not in label:
            if not isinstance(known, str) or known not in self._problems:
                raise self._unknown(str(known), where)
            return self._problems[known]
        try:
            return from_row(label, where)
        except ProblemError as error:
            raise bad_request(f"{error} ({_FORMS})") from error

    def _unknown(self, text: str, where: str) -> Refusal:
        count = len(self._problems)
        have = f"{count} problems are loaded, for example {next(iter(self._problems))!r}" if count else "none is loaded"
        return bad_request(f"{where}: {text[:60]!r} is not the id of a problem ({have}); {_FORMS}")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"{where}: not JSON: {error}") from error
