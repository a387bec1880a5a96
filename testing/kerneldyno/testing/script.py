"""Read what should become of a candidate from its source, and make the result.

A candidate's source is its script: words of the form NAME=VALUE, anywhere in its first 1000 characters, so they may stand
in a comment. The fake scheduler and scripted nodes read these words:

    sleep=0.2               the evaluation takes so many seconds
    outcome=INCORRECT       its outcome; CORRECT otherwise
    cause=JUDGE_DIED        cause of an INFRASTRUCTURE_ERROR; `retryable=no` makes it final
    speedup=2.5             speedup of a CORRECT candidate, with times to match; 0 for none
    end_to_end=1.5          its end-to-end speedup, `none` for none; otherwise the same as `speedup`
    queued=0.001            seconds of the reference when its calls are queued ahead
    coverage=0.4            coverage in its profile, by every definition, if the request asks for a profile
    findings=S19,B01        findings of a REJECTED candidate
    field=entry_point       field of an INVALID request; kernel_code otherwise
    memory=host             memory that is too small, of PROBLEM_TOO_LARGE; device otherwise
    size=1000               length of the message, in characters
    compiles=FAILED         state of a Compilation, without STATE_; COMPILED otherwise
    prints=no_such_name     what the compilers say if it is FAILED
    again.speedup=2         (or any other word) replaces `speedup` in the second measurement of an anomalous speedup

scripted_node.py lists the words that only nodes know. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from kerneldyno.rpc.profiles import asks_for_profile
from kerneldyno.rpc.turns import AGAIN
from kerneldyno.testing import results
from kerneldyno.v1.evaluation_pb2 import Compilation, EvalRequest, EvalResult

Script = Mapping[str, str]

#: Characters of a source that are searched for words.
_READ_CHARS = 1000
#: Begins words for the second measurement.
_AGAIN_PREFIX = "again."


def read(request: EvalRequest) -> dict[str, str]:
    """Return the words of the candidate's source that hold for `request`, by name."""
    script = dict(word.split("=", 1) for word in request.kernel_code[:_READ_CHARS].split() if "=" in word)
    if request.salt.endswith(AGAIN):
        again = {word: value for word, value in script.items() if word.startswith(_AGAIN_PREFIX)}
        script |= {word.removeprefix(_AGAIN_PREFIX): value for word, value in again.items()}
    if not asks_for_profile(request):
        script.pop("coverage", None)
    return script


def outcome_of(script: Script) -> EvalResult.Outcome.ValueType:
    """Return the outcome that a script asks for.

    Raises:
        ValueError: there is no such outcome.
    """
    return EvalResult.Outcome.Value(script.get("outcome", "CORRECT"))


def result(script: Script, outcome: EvalResult.Outcome.ValueType, speedup: float) -> EvalResult:
    """Return the result that a script asks for.

    Args:
        script: the words, as `read` returns them.
        outcome: the outcome; a node may decide against the script's.
        speedup: of a CORRECT candidate whose script does not say; 0 for none.
    """
    made = _result(script, outcome, speedup)
    made.message = "x" * int(script.get("size", "0")) or made.message
    return made


def _result(script: Script, outcome: EvalResult.Outcome.ValueType, speedup: float) -> EvalResult:
    match outcome:
        case EvalResult.CORRECT:
            return _correct(script, float(script.get("speedup", speedup)))
        case EvalResult.INCORRECT:
            return results.incorrect()
        case EvalResult.COMPILE_ERROR:
            return results.compile_error()
        case EvalResult.RUNTIME_ERROR:
            return results.runtime_error()
        case EvalResult.TIMEOUT:
            return results.timeout()
        case EvalResult.OUT_OF_MEMORY:
            return results.out_of_memory()
        case EvalResult.REJECTED:
            return results.rejected(*filter(None, script.get("findings", "").split(",")))
        case EvalResult.INVALID:
            return results.invalid(script.get("field", "kernel_code"))
        case EvalResult.REFERENCE_ERROR:
            return results.reference_error()
        case EvalResult.PROBLEM_TOO_LARGE:
            return results.problem_too_large(script.get("memory", "device"))
        case EvalResult.INFRASTRUCTURE_ERROR:
            retryable = script.get("retryable", "yes") == "yes"
            return results.infrastructure_error(script.get("cause", "JUDGE_DIED"), retryable=retryable)
        case _:
            raise ValueError(f"no result has the outcome {EvalResult.Outcome.Name(outcome)}")


def _correct(script: Script, speedup: float) -> EvalResult:
    coverage = float(script["coverage"]) if "coverage" in script else None
    end_to_end = script.get("end_to_end", "")
    made = results.correct(speedup, coverage=coverage)
    if speedup:
        made.reference_timing.queued_seconds = float(script.get("queued", "0"))
    if speedup and end_to_end == "none":  # as an evaluator of an earlier release
        for name in ("speedup", "speedup_interval"):
            made.ClearField(f"end_to_end_{name}")  # type: ignore[arg-type]
        made.ClearField("reference_end_to_end")
        made.ClearField("candidate_end_to_end")
    elif speedup and end_to_end:
        results.add_end_to_end(made, float(end_to_end))
    return made


def compilation(script: Script) -> Compilation:
    """Return what a script says about its native code.

    Raises:
        ValueError: there is no such state.
    """
    state = Compilation.State.Value(f"STATE_{script.get('compiles', 'COMPILED')}")
    found = Compilation(state=state, seconds=0.5, node_id="scripted")
    if state == Compilation.STATE_COMPILED:
        found.builds.add(name="native", headers="HEADERS_FULL", seconds=0.5)
    elif state == Compilation.STATE_FAILED:
        found.builds.add(name="native", failed=True)
        found.error.stage, found.error.type, found.error.message = (
            "load",
            "RuntimeError",
            script.get("prints", "scripted"),
        )
    elif state == Compilation.STATE_NOT_COMPILED:
        found.reason, found.detail = Compilation.REASON_NO_BUILDER, "scripted"
    return found
