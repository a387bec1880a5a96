"""What verdicts say, where no process is needed to find out."""

from __future__ import annotations

import pytest

from kerneldyno.evaluator.judge.results import verdict

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("stopped", "message"),
    [
        (0.0, "compile took longer than 60 s"),
        (0.04, "compile took longer than 60 s"),
        (12.34, "compile took longer than 60 s, without the 12.3 s for which it was stopped"),
    ],
)
def test_who_was_late_is_told_what_did_not_count(stopped: float, message: str) -> None:
    result = verdict.late("compile", 60.0, stopped)
    assert result["message"] == message
    assert result["timeout"] == {"stage": "compile", "limit_seconds": 60.0}
