"""The ways in which a candidate can end, with a real judge, a real sandbox and real processes.

Each way has one outcome, and the next request is judged as if nothing had happened. Tests that depend on other work of
the machine are in `test_judge_resources.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format

from kerneldyno.evaluator.shared import wire
from kerneldyno.v1 import evaluation_pb2
from tests.evaluator.judge_harness import REFERENCE, Judge, candidate, limits, request

pytestmark = pytest.mark.slow


def parse(result: dict[str, Any]) -> evaluation_pb2.EvalResult:
    """Parse a result. It must be the proto-JSON of an EvalResult."""
    return json_format.ParseDict(result, evaluation_pb2.EvalResult())


CASES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "right": (candidate(), {}, "CORRECT", "all outputs of 2 trials are right"),
    "wrong values": (candidate(floor="0.01"), {}, "INCORRECT", "out of tolerance"),
    "wrong shape": (candidate(end="y = y.t().contiguous()"), {}, "INCORRECT", "shape"),
    "wrong dtype": (candidate(end="y = y.half()"), {}, "INCORRECT", "dtype"),
    "wrong structure": (candidate(end="y = (y, y)"), {}, "INCORRECT", "structure|tuple"),
    "not a number": (candidate(end="y[0, 0] = float('nan')"), {}, "INCORRECT", "not finite"),
    "changes its input": (candidate(end="x.zero_()"), {}, "INCORRECT", "inputs differ from what"),
    "syntax error": ("def f(:\n", {}, "COMPILE_ERROR", "SyntaxError"),
    "import error": ("import no_such_module\n", {}, "COMPILE_ERROR", "no_such_module"),
    "no class": ("x = 1\n", {}, "INVALID", "kernel_code: defines no ModelNew"),
    "raises": (candidate(body="raise ValueError('boom')"), {}, "RUNTIME_ERROR", "ValueError: boom"),
    "raises SystemExit": (candidate(body="raise SystemExit(0)"), {}, "RUNTIME_ERROR", "SystemExit"),
    "raises MemoryError": (candidate(body="raise MemoryError()"), {}, "OUT_OF_MEMORY", "host memory"),
    "segfault": (candidate(body="import ctypes; ctypes.string_at(0)"), {}, "RUNTIME_ERROR", "SIGSEGV"),
    "abort": (candidate(body="import os; os.abort()"), {}, "RUNTIME_ERROR", "SIGABRT"),
    "kills itself": (candidate(body="import os; os.kill(os.getpid(), 9)"), {}, "RUNTIME_ERROR", "SIGKILL"),
    "exits": (candidate(body="import os; os._exit(0)"), {}, "RUNTIME_ERROR", "exited with status 0"),
    "hangs in load": ("import time\ntime.sleep(999)\n", limits(load=1), "TIMEOUT", "load took longer than 1 s"),
    "hangs in first call": (candidate(body="while True: pass"), limits(compile=1), "TIMEOUT", "compile took longer"),
    "hangs later": (
        candidate(body="while self.calls > 1: pass"),
        limits(correctness=1),
        "TIMEOUT",
        "correctness took longer",
    ),
    "decoy": (candidate(body="return torch.relu(self.linear(x)) * self.scale"), {}, "REJECTED", "no triton kernel"),
    "caches its first answer": (
        candidate(body="if self.calls > 1: return self.kept", end="self.kept = y"),
        {},
        "INCORRECT",
        "out of tolerance",
    ),
    "closes every descriptor": (
        candidate(body="import os, time; os.closerange(3, 64); time.sleep(99)"),
        {},
        "REJECTED",
        "closed the channel",
    ),
    "raises what cannot be encoded": (
        candidate(body="raise ValueError(chr(0xD800) + chr(27) + 'x')"),
        {},
        "RUNTIME_ERROR",
        "ValueError: ?x",
    ),
    "raises what cannot be printed": (
        candidate(prologue="class Bad(Exception):\n    __str__ = None\n", body="raise Bad()"),
        {},
        "RUNTIME_ERROR",
        "Bad",
    ),
    "writes to every descriptor": (
        candidate(
            prologue="import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'x' * 1000)\n    except OSError: pass\n"
        ),
        {},
        "REJECTED",
        "channel",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_outcome(judge: Judge, name: str) -> None:
    source, changes, outcome, message = CASES[name]
    result = judge.evaluate(request(source, **changes))
    parsed = parse(result)
    assert result["outcome"] == outcome, result["message"]
    assert any(part in result["message"] for part in message.split("|")), result["message"]
    assert parsed.correct == (outcome == "CORRECT")
    assert parsed.HasField("speedup")
    # In `evidence`, each outcome except CORRECT has a field with its name.
    assert (parsed.WhichOneof("evidence") or "correct") == outcome.lower()
    after = judge.evaluate(request(candidate()))
    assert after["outcome"] == "CORRECT", after["message"]


def test_tracebacks_show_the_candidates_own_lines_and_nothing_of_ours(judge: Judge) -> None:
    result = judge.evaluate(request(candidate(body="self.helper()", prologue="\n")))
    trace = result["runtime_error"]["exception"]["traceback"]
    assert "self.helper()" in trace
    assert 'File "candidate.py", line' in trace
    assert "harness" not in trace
    assert "torch/nn" not in trace


def test_triton_errors_show_the_line_inside_the_kernel(judge: Judge) -> None:
    result = judge.evaluate(request(candidate(floor="no_such_name")))
    # On a GPU Triton's compiler refuses the name; the interpreter fails when it runs the line.
    assert result["outcome"] in ("COMPILE_ERROR", "RUNTIME_ERROR")
    assert "no_such_name" in str(result)


def test_a_memory_bomb_is_out_of_memory() -> None:
    with Judge("--memory-bytes", str(512 << 20)) as small:
        body = "hoard = [bytearray(1 << 24) for _ in range(100_000)]"
        result = small.evaluate(request(candidate(body=body)))
        assert result["outcome"] == "OUT_OF_MEMORY", result["message"]
        assert result["out_of_memory"]["memory"] == "host"
        assert small.evaluate(request(candidate()))["outcome"] == "CORRECT"


def test_logs_are_captured_capped_and_cleaned(judge: Judge) -> None:
    result = judge.evaluate(
        request(candidate(prologue="print('begin\\x1b[31m' + 'y' * 1_000_000 + 'end', flush=True)"))
    )
    assert result["outcome"] == "CORRECT"
    assert result["logs"].startswith("begin[31my")
    assert result["logs"].rstrip().endswith("end")
    assert "bytes left out" in result["logs"]
    assert len(result["logs"]) < 17_000


def test_logs_of_a_crash_show_the_candidates_line_and_no_path_of_the_host(judge: Judge) -> None:
    logs = judge.evaluate(request(candidate(body="import ctypes; ctypes.string_at(0)")))["logs"]
    assert "Segmentation fault" in logs
    assert "candidate.py" in logs
    assert "harness.py" not in logs
    assert "site-packages" not in logs


LARGE = """
import torch

class Model(torch.nn.Module):
    def forward(self, ballast, x):
        return x + 1

def get_inputs():
    return [torch.zeros(34 << 20, dtype=torch.uint8), torch.randn(64)]
"""


def test_a_stale_answer_is_found_out_for_inputs_larger_than_the_budget_of_an_arena(judge: Judge) -> None:
    source = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, ballast, x):
        self.calls += 1
        if self.calls > 4:
            return self.kept
        self.kept = x + 1
        return self.kept
"""
    result = judge.evaluate(request(source, reference_code=LARGE, backend="torch", run_performance=True))
    assert result["outcome"] == "INCORRECT", result["message"]
    assert result["incorrect"]["trial"] == -1


def test_reference_that_raises_is_not_the_candidates_fault(judge: Judge) -> None:
    broken = REFERENCE.replace("torch.relu", "torch.no_such_function")
    result = judge.evaluate(request(candidate(), reference_code=broken))
    assert result["outcome"] == "REFERENCE_ERROR"
    assert "torch.no_such_function" in result["reference_error"]["traceback"]
    assert 'File "reference.py"' in result["reference_error"]["traceback"]


def test_what_is_no_python_costs_no_process(judge: Judge) -> None:
    result = judge.evaluate(request("x = 1\ndef f(:\n"))
    assert result["outcome"] == "COMPILE_ERROR"
    assert result["compile_error"]["stage"] == "load"
    assert "line 2" in result["compile_error"]["traceback"]
    assert [span["stage"] for span in result["stages"]] == ["STAGE_PREPARING"]


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("(" * 5000 + ")" * 5000, "COMPILE_ERROR"),
        ("x = 0" + "+0" * 100_000, "COMPILE_ERROR"),
        ("x = '\0'", "COMPILE_ERROR"),
        ("-" * 100_000 + "1", "OUT_OF_MEMORY"),  # the parser's stack is full, and Python raises MemoryError
    ],
)
def test_sources_that_are_hard_on_a_parser_harm_only_themselves(judge: Judge, source: str, outcome: str) -> None:
    assert judge.evaluate(request(source))["outcome"] == outcome
    assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("x = 1\n", "defines no Model"),
        ("def f(:\n", "SyntaxError"),
        (REFERENCE.replace("return [torch.randn(32, 128)]", "return [object()]"), "type object"),
        (REFERENCE.replace("def get_inputs", "def no_inputs"), "defines no get_inputs"),
        (
            "from no_such_package.layers import mix\n" + REFERENCE,
            "imports no_such_package, which is not installed where the evaluator runs: install it in the evaluator's",
        ),
        ("import torch.no_such_part\n" + REFERENCE, "imports torch.no_such_part, which the torch that is installed"),
        (REFERENCE + "\nraise ModuleNotFoundError('no dice')\n", "the reference failed: ModuleNotFoundError: no dice"),
        # Text that no protobuf message can contain.
        (REFERENCE + "\nraise ValueError('odd \\udc80')\n", "the reference failed: ValueError: odd ?"),
    ],
)
def test_reference_that_cannot_be_used(judge: Judge, reference: str, message: str) -> None:
    result = judge.evaluate(request(candidate(), reference_code=reference))
    assert result["outcome"] == "REFERENCE_ERROR"
    assert message in result["message"]


def test_inputs_that_change_their_shape_are_the_references_fault(judge: Judge) -> None:
    rows = "import itertools\nrows = itertools.count({}, {})\n"
    for first, step in ((8, 8), (4096, -8)):
        changing = rows.format(first, step) + REFERENCE.replace("torch.randn(32, 128)", "torch.randn(next(rows), 128)")
        result = judge.evaluate(request(candidate(), reference_code=changing, run_performance=True))
        assert result["outcome"] == "REFERENCE_ERROR", result["message"]
        assert "get_inputs()" in result["message"]


def test_reference_that_fails_only_when_timed(judge: Judge) -> None:
    count = "        self.calls = getattr(self, 'calls', 0) + 1\n        assert self.calls < 9, 'enough'\n"
    fickle = REFERENCE.replace("        return torch.relu", f"{count}        return torch.relu")
    result = judge.evaluate(request(candidate(), reference_code=fickle, run_performance=True))
    assert result["outcome"] == "REFERENCE_ERROR"
    assert "enough" in result["message"]


def test_work_that_is_skipped_once_timed_is_found_out(judge: Judge) -> None:
    # The first call, two trials and the warm-up come first. All timed calls return a stale answer.
    cheat = candidate(body="if self.calls > 5: return self.kept", end="self.kept = y")
    result = judge.evaluate(request(cheat, run_performance=True))
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["trial"] == -1


TAKE_OVER = """
import sys
from kerneldyno.evaluator.shared import wire
real = wire.send
def forged(sock, frame, fds=()):
    answer = frame.get("ok")
    if {answer}:
        {lie}
    real(sock, frame, fds)
sys.modules["kerneldyno.evaluator.runner.harness"].wire.send = forged
"""
CALL, BURST = "isinstance(answer, dict) and 'specs' in answer", "isinstance(answer, list)"
PROFILE = "isinstance(answer, dict) and 'averages' in answer"
CODE = "isinstance(answer, dict) and 'kernels' in answer and 'averages' not in answer"
MINE = "answer.update(kernels=[['mine', {launches}, 1.0]], own=['mine'])"


@pytest.mark.parametrize(
    ("answer", "lie", "outcomes"),
    [
        (CALL, "answer['specs'] = []", {"INCORRECT"}),
        (CALL, "answer['specs'] = 7", {"REJECTED"}),
        (CALL, "answer['specs'][0][0] = chr(0xD800)", {"INCORRECT"}),
        (CALL, "answer['structure'] = {'tuple': []}", {"INCORRECT"}),
        (CALL, "answer['launches'] = 'many'", {"REJECTED"}),
        (CALL, "frame.clear()", {"RUNTIME_ERROR"}),
        (BURST, "frame['ok'] = [float('inf')] * len(answer)", {"REJECTED"}),
        (BURST, "frame['ok'] = [float('nan')] * len(answer)", {"REJECTED"}),
        (BURST, "frame['ok'] = []", {"REJECTED"}),
        (BURST, "frame['ok'] = [1e-9] * len(answer)", {"CORRECT"}),
        (PROFILE, MINE.format(launches=1), {"CORRECT"}),
        (PROFILE, MINE.format(launches=0), {"REJECTED"}),
        (PROFILE, "answer['failed'] = chr(0xD800) + chr(27)", {"CORRECT"}),
        (CODE, "answer['failed'] = chr(0xD800) + chr(27)", {"CORRECT"}),
        (CODE, "answer['kernels'] = [{}]", {"REJECTED"}),
    ],
)
def test_a_harness_that_was_taken_over_fools_nobody(judge: Judge, answer: str, lie: str, outcomes: set[str]) -> None:
    cheat = candidate(prologue=TAKE_OVER.format(answer=answer, lie=lie))
    result = judge.evaluate(request(cheat, run_performance=True, enable_profiling=answer == PROFILE))
    parse(result)
    assert result["outcome"] in outcomes, result["message"]
    if result["outcome"] == "CORRECT":
        # The judge does not believe invented times: its own clock counts.
        assert result["candidate_timing"]["median_seconds"] > 1e-6
        assert answer != BURST or result["candidate_timing"]["clock"] == "CLOCK_JUDGE"


def test_hang_while_timed_is_killed_and_the_lease_is_free_again(judge: Judge) -> None:
    hang = candidate(body="while self.calls > 5: pass")
    result = judge.evaluate(request(hang, run_performance=True, **limits(timing=1)))
    assert result["outcome"] == "TIMEOUT"
    assert result["timeout"]["stage"] == "timing"
    assert judge.evaluate(request(candidate(), run_performance=True))["outcome"] == "CORRECT"


def test_cancelled_attempts_answer_and_free_their_lane(judge: Judge) -> None:
    token = judge.submit(request(candidate(body="import time; time.sleep(60)")))
    while judge.wait_for(token, "stage")["stage"] != "STAGE_COMPILING":
        pass
    judge.cancel(token)
    result = judge.wait_for(token, "result")["result"]
    assert result["outcome"] == "INFRASTRUCTURE_ERROR"
    assert result["infrastructure_error"]["cause"] == "CANCELLED"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"entry_point": "", "timeouts": {"load_timeout": "9s"}}, "it has no entry_point, timeouts.compile_timeout, "),
        *(({field: 77}, "77") for field in ("sanitize", "launch_mode", "profile_level", "allowed_precision")),
        ({"stress_kinds": [77]}, "77"),
    ],
)
def test_outcome_of_a_request_of_another_version_says_nothing_about_the_candidate(
    judge: Judge, changes: dict[str, Any], text: str
) -> None:
    result = judge.evaluate(request(candidate(), **changes))
    failure = result["infrastructure_error"]
    assert (result["outcome"], failure["cause"]) == ("INFRASTRUCTURE_ERROR", "REQUEST_UNREADABLE")
    assert failure["retryable"]
    assert text in failure["detail"]
    assert "has another version than this evaluator" in failure["detail"]


def test_outcome_of_a_frame_without_a_request_is_not_the_end_of_the_judge(judge: Judge) -> None:
    for number, said in enumerate((None, {"kernel_code": "x"}, "AAAA")):
        wire.send(judge._socket, {"op": "evaluate", "attempt": f"broken-{number}", "request": said})
        failure = judge.wait_for(f"broken-{number}", "result")["result"]["infrastructure_error"]
        assert (failure["cause"], failure["retryable"]) == ("JUDGE_ERROR", True)
        assert "packed EvalRequest" in failure["detail"]
    assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"


def test_torch_backend_needs_no_kernel(judge: Judge) -> None:
    plain = candidate(body="return torch.relu(self.linear(x)) * self.scale")
    assert judge.evaluate(request(plain, backend="torch"))["outcome"] == "CORRECT"


def test_loose_preset_accepts_what_the_calibrated_one_refuses(judge: Judge) -> None:
    slightly_off = candidate(floor="0.004")
    assert judge.evaluate(request(slightly_off))["outcome"] == "INCORRECT"
    loose = request(slightly_off, tolerance={"preset": "PRESET_LOOSE"})
    assert judge.evaluate(loose)["outcome"] == "CORRECT"


SIMPLE = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < count) * FACTOR, at < count)

def Model(x):
    y = torch.empty_like(x)
    double[(1,)](x, y, x.numel(), BLOCK=16)
    return y
"""
SIMPLE_CASES = """
import torch
def get_cases():
    return [{"inputs": [torch.arange(6.0)], "expected": 2 * torch.arange(6.0)},
            {"inputs": [torch.ones(4)], "expected": torch.full((4,), 2.0)}]
"""


@pytest.mark.parametrize("sizes", [(8, 4096), (4096, 8), (100_000, 16, 200_000)])
def test_cases_that_differ_in_size_are_timed_each(judge: Judge, sizes: tuple[int, ...]) -> None:
    cases = [f"{{'inputs': [torch.arange({size}.0)], 'expected': 2 * torch.arange({size}.0)}}" for size in sizes]
    code = f"import torch\ndef get_cases():\n    return [{', '.join(cases)}]\n"
    kernel = "def triton_double(x):\n    return 2 * x\n"
    asked = request(
        kernel,
        toolkit="kernel_simple",
        backend="torch",
        entry_point="triton_double",
        reference_code="",
        cases_code=code,
    )
    result = judge.evaluate({**asked, "run_performance": True})
    assert result["outcome"] == "CORRECT", result["message"]
    for each, size in zip(result["workloads"], sizes, strict=True):
        assert each["candidate_timing"]["median_seconds"] > 0
        assert int(each["roofline"]["bytes"]) == 2 * 4 * size


@pytest.mark.parametrize(("factor", "outcome"), [("2", "CORRECT"), ("3", "INCORRECT")])
@pytest.mark.parametrize("inline", [False, True])
def test_kernel_simple(judge: Judge, factor: str, outcome: str, inline: bool) -> None:
    inline_case = {
        "inputs_json": '[{"tensor": [0, 1, 2], "dtype": "float32"}]',
        "expected_json": '{"tensor": [0, 2, 4], "dtype": "float32"}',
    }
    cases: dict[str, Any] = {"cases": [inline_case]} if inline else {"cases_code": SIMPLE_CASES}
    asked = request(SIMPLE.replace("FACTOR", factor), toolkit="kernel_simple", reference_code="", **cases)
    result = judge.evaluate({**asked, "run_performance": True})
    assert result["outcome"] == outcome, result["message"]
    assert result["speedup"] == 0
    right = outcome == "CORRECT"
    if inline:  # one case
        assert ("candidate_timing" in result) == ("roofline" in result) == right
        return
    assert len(result["workloads"]) == (2 if right else 1)
    assert all(("candidate_timing" in each) == ("roofline" in each) == right for each in result["workloads"])
