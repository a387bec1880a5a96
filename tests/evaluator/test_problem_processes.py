"""Problems in processes of their own: references cannot touch each other, and none can end the judge."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.problems import process, told
from kerneldyno.evaluator.judge.problems.boxes import Boxes
from kerneldyno.evaluator.judge.problems.process import Bounds, Lives, ProblemProcess
from kerneldyno.evaluator.judge.problems.turn import Turn
from kerneldyno.evaluator.judge.runners import work
from kerneldyno.evaluator.judge.runners.lease import Lease
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.shared.reference_failure import ReferenceFailure
from kerneldyno.evaluator.shared.running_problem import INBOX, OUTBOX
from tests.evaluator.judge_harness import Judge, limits, request

CPU = open_device("cpu:0")

REFERENCE = """
import torch
{before}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(16))
        self.gain = torch.nn.Parameter(torch.ones(16))

    def forward(self, x):
        {body}
        return {returned}

def get_inputs():
    return [torch.randn(8, 16)]
"""
CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(16))
        self.gain = torch.nn.Parameter(torch.ones(16))

    def forward(self, x):
        return {returned}
"""
OPERATOR = """
@torch.library.custom_op("kdseq::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * {factor}
"""
RIGHT, WRONG = "torch.relu(x) * self.weight", "torch.relu(x) * self.weight + 1"

#: What one reference does to its whole process, which must not reach another's.
DISTURBANCES = {
    "an operator": OPERATOR.format(factor=7),
    "hooks of all modules": "torch.nn.modules.module.register_module_forward_hook(lambda *_: torch.zeros(8, 16))",
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "warnings as errors": "import warnings\nwarnings.simplefilter('error')",
    "environment": "import os\nos.environ.clear()",
    "modules": "import sys\nfor name in [n for n in sys.modules if n.startswith('torch.nn')]: sys.modules[name] = None",
    "a thread": (
        "import threading, time\ndef work():\n    while True: torch.rand(64) @ torch.rand(64, 64); time.sleep(0.001)\n"
        "threading.Thread(target=work, daemon=True).start()"
    ),
    "deterministic algorithms": "torch.use_deterministic_algorithms(True)",
    "random state": "torch.manual_seed = lambda seed: None\ntorch.random.manual_seed = torch.manual_seed",
    "a patched function": "torch.relu = lambda x: x\ntorch.Tensor.__mul__ = torch.Tensor.__add__",
}
#: How a reference ends or spoils its process, by what it does in a call, and what the message must say.
DEATHS = {
    "exits": ("import os; os._exit(3)", "ended its process: status 3"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "ended its process: signal 11"),
    "kills itself": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended its process"),
    "raises SystemExit": ("raise SystemExit(1)", "SystemExit"),
    "kills its parent": ("import os, signal; os.kill(os.getppid(), signal.SIGKILL); 1 / 0", "the reference failed"),
    "hangs": ("while True: pass", "took longer than"),
    "writes to every descriptor": (
        "import os\n        for fd in range(3, 64):\n            try: os.write(fd, b'\\x00\\x00\\x00\\x02{}' * 9)\n"
        "            except OSError: pass",
        "the reference failed",
    ),
}
#: Answers that the program of a problem never gives.
LIES = {
    "a structure without its tensor": "{**said, 'structure': 5}",
    "a tensor that is not there": "{**said, 'structure': {'tensor': 7}}",
    "huge tensors": "{**said, 'tensors': [['float32', [1 << 40, 1 << 20], [1 << 20, 1], False]]}",
    "an unknown dtype": "{**said, 'tensors': [['load', [8, 16], [16, 1], False]]}",
    "gaps": "{**said, 'tensors': [['float32', [8, 16], [1600, 100], False]]}",
    "negative sizes": "{**said, 'tensors': [['float32', [-8, 16], [16, 1], False]]}",
    "no flag": "{**said, 'mutates': 'perhaps'}",
    "what counts": "self.do_count(order)",
    "parameters": "self.do_parameters(order)",
    "text": "'x' * 500000",
    "nothing": "None",
}
TAKE_OVER = """
import sys
program = sys.modules["kerneldyno.evaluator.runner.problem"]
honest = program._Server.do_answer
def do_answer(self, order):
    said = honest(self, order)
    return {lie}
program._Server.do_answer = do_answer
"""


@pytest.fixture(scope="module")
def own_judge() -> Iterator[Judge]:
    with Judge("--reference-seconds", "8") as judge:  # a busy machine takes three for the first call
        yield judge


def asked(before: str = "", returned: str = RIGHT, answer: str = RIGHT, body: str = "pass") -> dict[str, Any]:
    return request(
        CANDIDATE.format(returned=answer),
        reference_code=REFERENCE.format(before=before, body=body, returned=returned),
        backend="torch",
        provenance_policy="PROVENANCE_POLICY_LABEL",
        **limits(),
    )


def outcome(judge: Judge, **changes: str) -> str:
    result = judge.evaluate(asked(**changes))
    return str(result["outcome"])


def test_operators_of_the_same_name_do_not_meet(own_judge: Judge) -> None:
    doubles, triples = (OPERATOR.format(factor=factor) for factor in (2, 3))
    call = "torch.ops.kdseq.scale(x)"
    assert outcome(own_judge, before=doubles, returned=call, answer="x * 2") == "CORRECT"
    assert outcome(own_judge, before=triples, returned=call, answer="x * 3") == "CORRECT"
    assert outcome(own_judge, before=doubles, returned=call, answer="x + x") == "CORRECT"
    assert outcome(own_judge, before=doubles, returned=call, answer="x * 3") == "INCORRECT"


def test_lanes_of_one_problem_ask_it_one_after_the_other(own_judge: Judge) -> None:
    many = [asked("# many lanes\n", answer=WRONG if number % 3 == 2 else RIGHT) for number in range(9)]
    for each in many:
        each["run_performance"] = True
    outcomes = [each["outcome"] for each in own_judge.evaluate_together(*many)]
    assert outcomes == ["CORRECT", "CORRECT", "INCORRECT"] * 3


@pytest.mark.parametrize("name", DISTURBANCES)
def test_references_cannot_disturb_each_other(own_judge: Judge, name: str) -> None:
    disturbing = asked(f"# {name}\n{DISTURBANCES[name]}\n")
    quiet = f"# beside {name}\n"
    verdicts = {"right": "CORRECT", "wrong": "INCORRECT"}
    plain = {"right": asked(quiet), "wrong": asked(quiet, answer=WRONG)}
    own_judge.evaluate(disturbing)  # what it says of itself is its own affair
    assert {kind: own_judge.evaluate(each)["outcome"] for kind, each in plain.items()} == verdicts, "after it"
    _, *together = own_judge.evaluate_together(disturbing, *plain.values(), asked(quiet + "# anew\n"))
    assert [each["outcome"] for each in together] == ["CORRECT", "INCORRECT", "CORRECT"], "beside it"


@pytest.mark.parametrize("name", DEATHS)
def test_a_reference_that_ends_its_process_costs_only_itself(own_judge: Judge, name: str) -> None:
    body, said = DEATHS[name]
    pid = own_judge.process.pid
    result = own_judge.evaluate(asked(f"# {name}\n", body=body))
    assert result["outcome"] == "REFERENCE_ERROR", result["message"]
    assert said in result["message"]
    assert outcome(own_judge, before=f"# after one that {name}\n") == "CORRECT"
    assert outcome(own_judge, before=f"# after one that {name}\n", answer=WRONG) == "INCORRECT"
    assert own_judge.process.poll() is None
    assert own_judge.process.pid == pid


@pytest.mark.parametrize(("times", "expected"), [(1, "CORRECT"), (2, "REFERENCE_ERROR")])
def test_a_reference_that_is_killed_from_outside_is_asked_once_more(
    own_judge: Judge, times: int, expected: str
) -> None:
    name = f"kdvictim{times}"
    body = f"import ctypes, time; ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0); time.sleep(0.2)"
    attempt = own_judge.submit(asked(f"# killed {times} times\n", body=body))
    for _ in range(times):
        os.kill(found := _named(name), signal.SIGKILL)
        while Path(f"/proc/{found}").exists():
            time.sleep(0.01)
    assert own_judge.wait_for(attempt, "result")["result"]["outcome"] == expected


def _named(name: str) -> int:
    """Wait for a process of this name, and return its number."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for each in Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(OSError):
                if each.read_text().strip() == name:
                    return int(each.parent.name)
        time.sleep(0.01)
    raise TimeoutError(name)


@pytest.mark.parametrize("bound", [30, 12, 6])  # nominal draws are below; of some kinds chance decides
def test_a_reference_that_dies_under_stress_is_judged_without_it(own_judge: Judge, bound: int) -> None:
    body = f"import os\n        if float(x.abs().max()) > {bound}: os._exit(9)"
    before = f"# dies of numbers above {bound}\n"
    right, wrong = (asked(before, body=body, answer=answer) for answer in (RIGHT, WRONG))
    for each in (right, wrong):
        each["stress_inputs"] = True
    assert own_judge.evaluate(right)["outcome"] == "CORRECT"
    assert own_judge.evaluate(wrong)["outcome"] == "INCORRECT"


@pytest.mark.parametrize("name", LIES)
def test_a_process_that_was_taken_over_spoils_its_own_problem_only(own_judge: Judge, name: str) -> None:
    result = own_judge.evaluate(asked(f"# {name}\n" + TAKE_OVER.format(lie=LIES[name])))
    assert result["outcome"] == "REFERENCE_ERROR", result["message"]
    assert own_judge.process.poll() is None


@pytest.mark.long
def test_a_process_that_nobody_asks_ends_and_is_made_again(own_judge: Judge) -> None:
    """The problem and its secret seed stay: a right candidate is right as before, and the same constants are secret."""
    known = {"before": "# known", "returned": f"{RIGHT} * self.gain"}

    def judged(answer: str) -> str:
        result = own_judge.evaluate({**asked(**known, answer=answer), "stress_inputs": True})
        return str(result["outcome"])

    assert judged(f"{RIGHT} * self.gain") == "CORRECT"
    births = own_judge.next_stats()["problem_births"]
    while (stats := own_judge.next_stats())["problem_processes"]:
        assert stats["reference_cache_problems"]
    assert stats["problem_process_bytes"] == 0
    assert [judged(answer) for answer in (f"{RIGHT} * self.gain", RIGHT)] == ["CORRECT", "INCORRECT"]
    again = own_judge.next_stats()
    assert (again["problem_births"], again["problem_ends"]["died"]) == (births + 1, stats["problem_ends"]["died"])


def test_no_reference_is_a_module_of_the_judge_and_none_sees_a_candidate(own_judge: Judge) -> None:
    looks = (
        "import gc, os, sys\n"
        "seen = repr(sys.argv) + repr(dict(os.environ)) + open('/proc/self/cmdline').read()\n"
        "seen += ''.join(each for each in gc.get_objects() if isinstance(each, str) and len(each) < 1 << 16)\n"
        "assert 'MARK' + 'ER' not in seen\n"
    )
    wanted = asked(looks)
    wanted["kernel_code"] += "\n# MARKER of the candidate\n"
    assert own_judge.evaluate(wanted)["outcome"] == "CORRECT"
    with open(f"/proc/{own_judge.process.pid}/maps") as maps:
        assert "reference.py" not in maps.read()


def test_a_problems_process_has_imported_what_it_needs(own_judge: Judge) -> None:
    """Each process would import it anew: sympy, which torch wants for the sizes of inputs, takes a quarter of a second."""
    before = "import sys\nknown = set(sys.modules)"
    count = "assert len(set(sys.modules) - known) <= 3, sorted(set(sys.modules) - known)[:20]"
    result = own_judge.evaluate(asked(before=before, body=count))
    assert result["outcome"] == "CORRECT", result["message"]


async def test_problems_fetch_their_constants_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    both = asyncio.Barrier(2)

    def fetch(self: ProblemProcess) -> dict[str, torch.Tensor]:
        work.wait(both.wait())
        return {name: torch.ones(1) for name in self.constant_names}

    monkeypatch.setattr(ProblemProcess, "_fetch_constants", fetch)
    problems = [object.__new__(ProblemProcess) for _ in range(2)]
    for problem in problems:
        problem.constant_names, problem._constants = ["weight"], None
    async with asyncio.timeout(10):
        found = await asyncio.gather(*(work.run(functools.partial(getattr, each, "constants")) for each in problems))
    assert [list(each) for each in found] == [["weight"], ["weight"]]
    assert problems[0].constants is found[0]


async def test_who_asks_behind_a_lane_that_is_next_holds_no_timing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, order, problem = Lease([]), [], object.__new__(ProblemProcess)
    problem._turn = Turn(lease)
    problem._pool = SimpleNamespace(lease=lease)  # type: ignore[assignment]
    monkeypatch.setattr(ProblemProcess, "is_alive", True)

    async def is_to_be_timed() -> None:
        async with lease.exclusive(None, taking=problem.taken()):
            order.append("is timed")

    def asks() -> None:
        with problem._asking():
            order.append("asks")

    await problem._turn._lock.acquire()
    lane = asyncio.ensure_future(is_to_be_timed())
    await asyncio.sleep(0.01)  # it waits for the question now
    problem._turn._lock.release()  # it is next, and has not woken yet
    async with asyncio.timeout(5):
        await asyncio.gather(work.execute(lease, asks), lane)
    assert order == ["is timed", "asks"]


async def test_who_is_cancelled_leaves_no_answer_to_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, problem, said = Lease([]), object.__new__(ProblemProcess), asyncio.Queue[str]()

    class Process:
        """It answers its orders in turn, each after a while."""

        parked = is_asked = has_ended = False

        def send(self, order: dict[str, str]) -> None:
            said.put_nowait(order["op"])

        async def answer(self, seconds: float) -> dict[str, str]:
            await asyncio.sleep(0.04)
            return {"ok": await said.get()}

    problem._turn = Turn(lease)
    problem._pool = SimpleNamespace(lease=lease)  # type: ignore[assignment]
    problem._device, problem.bounds = CPU, Bounds(60.0, 1 << 30)
    problem._runner = Process()  # type: ignore[assignment]

    def asks(what: str) -> Any:
        with problem._asking():
            return problem._ask({"op": what}, "reference")

    first = asyncio.ensure_future(work.execute(lease, functools.partial(asks, "first")))
    await asyncio.sleep(0.02)
    first.cancel()
    async with asyncio.timeout(5):
        assert await work.execute(lease, functools.partial(asks, "second")) == "second"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_who_is_cancelled_while_somebody_is_timed_gives_its_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, problem, timed = Lease([]), object.__new__(ProblemProcess), asyncio.Event()
    problem._turn = Turn(lease)
    problem._pool = SimpleNamespace(lease=lease)  # type: ignore[assignment]
    monkeypatch.setattr(ProblemProcess, "is_alive", True)

    async def is_timed() -> None:
        async with lease.exclusive(None):
            await timed.wait()

    def asks() -> None:
        with problem._asking():
            pass

    await problem._turn._lock.acquire()
    asking = asyncio.ensure_future(work.execute(lease, asks))
    await asyncio.sleep(0.01)  # it waits for its turn
    timing = asyncio.ensure_future(is_timed())
    await asyncio.sleep(0.01)
    problem._turn._lock.release()
    await asyncio.sleep(0.01)  # its turn has come, and it waits for the timing
    asking.cancel()
    timed.set()
    async with asyncio.timeout(5):
        await timing
        with pytest.raises(asyncio.CancelledError):
            await asking
        await work.execute(lease, asks)


async def test_a_process_that_ends_takes_nothing_from_the_next_one() -> None:
    problem, ended = object.__new__(ProblemProcess), asyncio.Event()
    boxes = [Boxes(CPU, [], lambda *_: None) for _ in range(2)]
    closed: list[Boxes] = []
    for each in boxes:
        each.close = functools.partial(closed.append, each)  # type: ignore[method-assign]

    async def discard(_: Any) -> None:
        await ended.wait()

    problem._lives, problem._pool = Lives(), SimpleNamespace(discard=discard)  # type: ignore[assignment]
    problem._runner, problem._boxes = SimpleNamespace(has_ended=False), boxes[0]  # type: ignore[assignment]
    resting = asyncio.ensure_future(problem.rest())
    await asyncio.sleep(0.01)
    problem._runner, problem._boxes = None, boxes[1]  # somebody asks, and makes it again
    ended.set()
    await resting
    assert (problem._boxes, closed) == (boxes[1], [boxes[0]])


async def test_what_a_process_gave_is_not_kept_when_it_ends() -> None:
    """The judge knows thousands of problems, and no plan has the secret constants of those that rest."""

    async def end(runner: Any = None) -> SimpleNamespace:
        return SimpleNamespace(logs="")

    problem, given = object.__new__(ProblemProcess), torch.ones(3)
    problem._lives, problem._pool = Lives(), SimpleNamespace(discard=end)  # type: ignore[assignment]
    problem._runner, problem._boxes = SimpleNamespace(has_ended=False), None  # type: ignore[assignment]
    problem._constants = {"bias": given}
    kept = weakref.ref(given)
    del given
    await problem.rest()
    assert kept() is None


async def test_a_failure_that_is_kept_keeps_no_tensors() -> None:
    """One that was raised keeps the frames through which it passed."""
    problem = object.__new__(ProblemProcess)
    problem._lives, problem._pool = Lives(), SimpleNamespace()  # type: ignore[assignment]
    problem._runner = problem._boxes = problem._constants = None
    problem._deaths, kept = 0, list[weakref.ref[torch.Tensor]]()

    async def fail() -> None:
        held = torch.ones(3)
        kept.append(weakref.ref(held))
        raise await problem._dead(ReferenceFailure("reference", RuntimeError("ended")))

    for _ in range(2):
        with pytest.raises(ReferenceFailure, match="ended"):
            await fail()
    assert [each() for each in kept] == [None, None]
    assert problem._last_death is not None
    again = problem._last_death.again()
    assert (str(again), again.error.message) == ("reference: RuntimeError: ended", "ended")


@pytest.mark.pure
@pytest.mark.parametrize(
    ("most", "passing", "free", "cleared"),
    [
        (None, 5 << 30, 0, 0),
        (9 << 30, 1 << 30, 0, 0),
        (9 << 30, 5 << 30, 10 << 30, 0),
        (9 << 30, 5 << 30, 8 << 30, 1),
    ],
)
def test_the_judge_keeps_no_memory_that_a_large_problem_may_need(
    monkeypatch: pytest.MonkeyPatch, most: int | None, passing: int, free: int, cleared: int
) -> None:
    class Counting(CpuDevice):
        times = 0

        def lacks(self, nbytes: int) -> bool:
            return free < nbytes

        def clear(self) -> None:
            self.times += 1

    problem, device = object.__new__(ProblemProcess), Counting()
    problem._device, problem.bounds = device, Bounds(1.0, 1 << 30, most)
    problem._boxes = SimpleNamespace(nbytes=passing)  # type: ignore[assignment]
    seen: list[int] = []

    def answered(asked: Any) -> list[dict[str, Any]]:
        asked.close()
        seen.append(device.times)
        return [{"ok": 3}]

    monkeypatch.setattr(process, "wait", answered)
    assert problem._ask({"op": "held"}, "reference") == 3
    assert seen == [cleared], "before the process is asked"


@pytest.mark.pure
def test_boxes_that_are_put_away_take_no_memory_and_come_back() -> None:
    happened: list[Any] = []

    class Noting(CpuDevice):
        def new_arena(self, nbytes: int, shared_fds: Any, number: int, *, grows: bool = False) -> Any:
            data = torch.zeros(nbytes, dtype=torch.uint8)
            return SimpleNamespace(data=data, ticket=lambda: nbytes, close=lambda: happened.append(("freed", number)))

    boxes = Boxes(Noting(), [], lambda order, _: happened.append((order.get("number"), order.get("ticket"))))
    for box, nbytes in ((INBOX, 3 << 20), (OUTBOX, 2 << 20)):
        spec = tree.describe(torch.zeros(nbytes, dtype=torch.uint8)).to_json()
        ((values,),) = boxes.take([{"tensors": [spec], "stored": False}], 1 << 30, box)
        assert values.numel() == nbytes
    stored = (None, None)
    assert (boxes.nbytes, happened) == (5 << 20, [(INBOX, 3 << 20), stored, (OUTBOX, 2 << 20), stored])
    del happened[:]
    boxes.put_away()
    # The process leaves each before it is freed.
    assert happened == [(INBOX, None), ("freed", INBOX), (OUTBOX, None), ("freed", OUTBOX)]
    assert boxes.nbytes == 0
    assert boxes.places([4 << 20])[0].numel() == 4 << 20


@pytest.mark.pure
@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {},
        {"symbol": 3},
        {"symbol": "M", "instantiate": 1},
        {"symbol": "M", "instantiate": True, "init_args": {"load": 3}},
        {"symbol": "M", "instantiate": True, "init_args": [], "init_kwargs": {"dict": []}, "init_seed": -1},
        {"symbol": "M", "instantiate": True, "init_args": [], "init_kwargs": {"dict": []}, "init_seed": 10**400},
    ],
)
def test_a_malformed_description_is_refused(said: Any) -> None:
    with pytest.raises(told.MalformedError):
        told.read_about(said)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("said", "most"),
    [
        (3, 1 << 30),
        ([3], 1 << 30),
        ([["float32", [4], [2], False]], 1 << 30),
        ([["float32", [1 << 20], [1], False]], 1 << 20),
        ([["__builtins__", [4], [1], False]], 1 << 30),
        ([["float32", [4], [1], False]] * 20_000, 1 << 30),
    ],
)
def test_malformed_tensors_are_refused(said: Any, most: int) -> None:
    with pytest.raises(told.MalformedError):
        told.read_specs(said, most)
