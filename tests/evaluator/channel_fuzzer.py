"""A fuzzer of the channel between judge and runner: a real judge, real sockets, the real harness, and mutated answers.

`python -m tests.evaluator.channel_fuzzer --frames 600 [--seed 0]` exits with 1 if the judge died, hung, blamed itself
or accepted a wrong candidate. The zygote is a stand-in that forks nothing. Each of its runners consists of threads. One
serves the control socket as a warden does. One forwards the judge's orders to the harness and returns the harness's
answers, mutated where the evaluation's plan says so. The harness has a thread of its own, uses the memory files and
computes as usual. Answers before `load` are never mutated, because no candidate is there yet. `--plan N` runs one
evaluation again; times differ from run to run, and with them some bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from kerneldyno.evaluator.runner import harness, profiler
from kerneldyno.evaluator.shared import wire
from tests.evaluator.frame_mutations import After, mutate
from tests.evaluator.judge_harness import limits, pack_request, request, unpacked

#: Outcomes that blame the candidate or nobody.
_ALLOWED = {"CORRECT", "INCORRECT", "REJECTED", "RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY", "COMPILE_ERROR", "INVALID"}
#: Limit of each stage in seconds: the test waits this long for an answer that never comes.
_LIMIT_SECONDS = 1.5
#: Number of evaluations that run at the same time. They mostly wait.
_AT_ONCE = 8
#: Runners that wait for a candidate.
_SPARES = 4
#: An evaluation that has no result after this many seconds counts as hanging.
_HANG_SECONDS = 60.0
#: How proto-JSON writes numbers that are not finite.
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
#: Probability that an answer after the first mutated one is mutated, too.
_AGAIN = 0.25

_REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return y, {"scale": 0.5, "parts": [y * 0.5, 3]}, "text"

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return [8]
"""

_CANDIDATE = _REFERENCE.replace("class Model(", "class ModelNew(").replace(
    "y = torch.tanh(self.linear(x))",
    "self.calls = getattr(self, 'calls', 0) + 1\n        y = torch.tanh(self.linear(x)) * (1.0 + {error})",
)
#: Relative error of each candidate's outputs. The last candidate is correct at first and wrong later.
_ERRORS = {"right": "0.0", "wrong": "0.01", "wrong later": "0.01 * (self.calls > 6)"}
#: Candidate, and whether it is timed: only timed candidates get enough calls to become wrong later.
_KINDS = (("right", False), ("right", True), ("wrong", False), ("wrong later", True))


@dataclass(slots=True)
class Plan:
    """One evaluation: its candidate, and the answers that are mutated."""

    number: int
    kind: str
    timed: bool
    first: int
    rng: random.Random
    answers: int = 0
    sent: list[str] = field(default_factory=list)

    def request(self) -> dict[str, Any]:
        """Return the request of this evaluation.

        Its source contains the plan's number, so that the runner finds the plan.
        """
        seconds = 30.0 if self.first == sys.maxsize else _LIMIT_SECONDS
        return request(
            _CANDIDATE.replace("{error}", _ERRORS[self.kind]) + f"\n# plan-{self.number}.\n",
            reference_code=_REFERENCE,
            # A timed candidate is also profiled. Others are surveyed, except those of backend `torch`.
            backend="torch" if self.timed else "triton",
            provenance_policy="PROVENANCE_POLICY_LABEL",
            enable_profiling=self.timed,
            run_performance=self.timed,
            num_perf_trials=8,
            **limits(**dict.fromkeys(("load", "compile", "correctness", "timing"), seconds)),
        )

    def due(self) -> bool:
        """Count one more answer, and return True if it must be mutated."""
        self.answers += 1
        return self.answers > self.first and (not self.sent or self.rng.random() < _AGAIN)


@dataclass(slots=True)
class Report:
    """What happened in a run of the fuzzer."""

    evaluations: int = 0
    frames: int = 0
    untouched: int = 0
    mutations: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    largest_speedup: float = 0.0
    seconds: float = 0.0
    descriptors_left: int = 0
    memory_growth_bytes: int = 0


def _profile(*_: Any) -> profiler.Ran:
    """Return an invented profile: without a GPU a real one contains no kernels."""
    return profiler.Ran([["mine", 5, 3e-4], ["ampere_sgemm", 5, 1e-4]], [["aten::mm", 1e-4, 2e-4], ["mine", 3e-4, 0.0]])


class _Runner:
    """A stand-in for a warden and its runner."""

    #: The harness expects its own process: random numbers and modules are global. So only one order runs at a time.
    _turn = threading.Lock()

    def __init__(self, frame: wire.Frame, fds: list[int], plans: dict[int, Plan]) -> None:
        channel, control, *self._arenas = fds
        self._frame = frame
        self._channel = socket.socket(fileno=channel)
        self._control = socket.socket(fileno=control)
        self._plans = plans
        self._plan: Plan | None = None
        self._over = threading.Event()
        self._exit_code = 0
        for target in (self._watch, self._relay):
            threading.Thread(target=target, daemon=True).start()

    def _watch(self) -> None:
        """Act as the warden. Stopping needs no action, since this runner only acts on orders."""
        killed = False
        with self._control:
            while not self._over.is_set():
                if not select.select([self._control], [], [], 0.02)[0]:
                    continue
                received = wire.receive(self._control)
                order = None if received is None else received[0].get("op")
                if order == "stop":
                    wire.send(self._control, {"op": "stopped"})
                elif order not in ("cont", "baseline"):
                    killed = True
                    break
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)
            report = {"signal": 9 if killed else 0, "exit_code": None if killed else self._exit_code, "killed": killed}
            more = {"out_of_memory": False, "peak_memory_bytes": 0, "logs": ""}
            with contextlib.suppress(OSError):
                wire.send(self._control, {"op": "exit", **report, **more})
                while self._control.recv(4096):
                    pass

    def _relay(self) -> None:
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as scratch, self._channel, ours, contextlib.suppress(OSError):
            serve = threading.Thread(target=self._serve, args=(theirs, scratch), daemon=True)
            with self._turn:
                serve.start()
                greeting = wire.receive(ours)
            assert greeting is not None
            wire.send(self._channel, greeting[0])
            while (received := wire.receive(self._channel)) is not None and self._answer(received[0], ours):
                pass
            ours.shutdown(socket.SHUT_RDWR)
            serve.join()
        for descriptor in self._arenas:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._over.set()

    def _serve(self, theirs: socket.socket, scratch: str) -> None:
        with theirs, contextlib.suppress(OSError):
            # The harness closes the memory files after it has mapped them.
            arenas, self._arenas = self._arenas, []
            harness.run(theirs, arenas, self._frame, scratch)

    def _answer(self, order: wire.Frame, ours: socket.socket) -> bool:
        """Execute one order of the judge. Return False if the channel is closed."""
        if order["op"] == "probe":  # this process is not a sandbox, so there is nothing to probe
            wire.send(self._channel, {"ok": []})
            return True
        if order["op"] == "run_problem":  # the only order without an answer
            wire.send(ours, order)
            return True
        with self._turn:
            wire.send(ours, order)
            answers = [wire.receive(ours)]
            if answers[0] is not None and answers[0][0].get("ok") == "queued":  # a burst has a second answer
                answers.append(wire.receive(ours))
        if self._plan is None and (found := re.search(r"plan-(\d+)\.", json.dumps(order))):
            self._plan = self._plans[int(found[1])]
        for received in answers:
            assert received is not None
            if not self._forward(order, received[0]):
                return False
        return True

    def _forward(self, order: wire.Frame, answer: wire.Frame) -> bool:
        """Send one answer to the judge, mutated if the plan says so. Return False if the channel is closed."""
        if self._plan is None or not self._plan.due():
            wire.send(self._channel, answer)
            return True
        mutation = mutate(self._plan.rng, answer)
        self._plan.sent.append(f"{order['op']}: {mutation.name}: {mutation.data[:160]!r}")
        self._channel.sendall(mutation.data)
        if mutation.after is After.GO_ON:
            return True
        if mutation.after is After.CLOSE:
            self._exit_code = self._plan.rng.choice([0, 1])
            return False
        if mutation.after is After.HALF_CLOSE:
            self._channel.shutdown(socket.SHUT_WR)
        while self._channel.recv(4096):  # until the judge tells the warden to end the runner
            pass
        return False


class Fuzzer:
    """Context manager that runs a judge process and a stand-in for its zygote, which is a thread of this process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._plans: dict[int, Plan] = {}
        #: Number of answers in an evaluation without mutations, by candidate and whether it is timed.
        self._usual: dict[tuple[str, bool], int] = {}

    def __enter__(self) -> Fuzzer:
        profiler.profile = _profile  # type: ignore[assignment]  # it takes the same arguments and ignores them
        os.environ["KINETO_LOG_LEVEL"] = "6"  # as in a sandbox: otherwise the profiler logs
        self._server, control = socket.socketpair()
        ours, self._zygote = socket.socketpair()
        sockets = ["--control-fd", str(control.fileno()), "--zygote-fd", str(ours.fileno())]
        # Nothing here enforces a runner's memory limit, and the harness would limit this process.
        size = ["--spares", str(_SPARES), "--memory-bytes", str(1 << 44)]
        life = ["--exit-with-parent", str(os.getpid()), "--device", "cpu:0", "--sandbox", "off"]
        self.judge = subprocess.Popen(
            [sys.executable, "-P", "-m", "kerneldyno.evaluator.judge", *sockets, *size, *life],
            pass_fds=[control.fileno(), ours.fileno()],
        )
        control.close()
        ours.close()
        wire.send(self._zygote, {"op": "zygote_ready"})
        threading.Thread(target=self._fork_nothing, daemon=True).start()
        self._server.settimeout(_HANG_SECONDS)
        greeting = self._next()
        assert greeting["op"] == "ready", greeting
        for number, (kind, timed) in enumerate(_KINDS, start=1):
            plan = self._plan_of(-number, kind=kind, timed=timed, first=sys.maxsize)
            result = self._judged(plan)
            assert result["outcome"] == ("CORRECT" if kind == "right" else "INCORRECT"), result
            self._usual[kind, timed] = plan.answers
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        try:
            self.judge.wait(30)
        finally:
            self.judge.kill()
            self._zygote.close()

    def _fork_nothing(self) -> None:
        with contextlib.suppress(OSError):
            while (received := wire.receive(self._zygote)) is not None:
                _Runner(*received, self._plans)

    def _next(self) -> wire.Frame:
        received = wire.receive(self._server)
        if received is None:
            raise ConnectionError("the judge is gone")
        return unpacked(received[0])

    def _plan_of(self, number: int, **given: Any) -> Plan:
        rng = random.Random(f"{self._seed}/{number}")
        kind, timed = rng.choice(_KINDS)
        drawn = {"kind": kind, "timed": timed, "first": rng.randrange(self._usual.get((kind, timed), 1)), **given}
        plan = Plan(abs(number) * 2 + (number < 0), rng=rng, **drawn)
        self._plans[plan.number] = plan
        return plan

    def _submit(self, plan: Plan) -> None:
        wire.send(
            self._server, {"op": "evaluate", "attempt": str(plan.number), "request": pack_request(plan.request())}
        )

    def _judged(self, plan: Plan) -> dict[str, Any]:
        self._submit(plan)
        while (frame := self._next())["op"] != "result":
            pass
        result: dict[str, Any] = frame["result"]
        return result

    def _await_spares(self) -> None:
        """Wait until nothing runs and all spares are there, so that their descriptors are counted each time."""
        while (frame := self._next())["op"] != "stats" or frame["taken"] or frame["spares"] < _SPARES:
            pass

    def run(self, frames: int, only: int | None = None) -> Report:
        """Run evaluations until `frames` mutated frames were sent, or run only the plan with the number `only`."""
        report = Report()
        begin = time.monotonic()
        process = psutil.Process(self.judge.pid)
        # What stays for later (a problem's process, memory for as many as run at once) is there before anything is counted.
        for early in range(-98, -98 + _AT_ONCE):
            self._submit(self._plan_of(early, kind="right", timed=True, first=sys.maxsize))
        for _ in range(_AT_ONCE):
            while self._next()["op"] != "result":
                pass
        self._await_spares()
        descriptors, memory = process.num_fds(), process.memory_info().rss
        numbers: Iterator[int] = itertools.count() if only is None else iter([only])
        waiting: dict[str, tuple[Plan, float]] = {}
        try:
            while True:
                while len(waiting) < _AT_ONCE and report.frames < frames:
                    number = next(numbers, None)
                    if number is None:
                        break
                    plan = self._plan_of(number)
                    waiting[str(plan.number)] = (plan, time.monotonic())
                    self._submit(plan)
                if not waiting:
                    break
                frame = self._next()
                if frame["op"] == "result":
                    plan, _ = waiting.pop(frame["attempt"])
                    self._note(report, plan, frame["result"])
                for plan, since in waiting.values():
                    if time.monotonic() - since > _HANG_SECONDS:
                        raise TimeoutError(f"plan {plan.number // 2} hangs: {plan.sent}")
            self._await_spares()  # the last runner may end after its result has arrived
            report.descriptors_left = max(0, process.num_fds() - descriptors)
            report.memory_growth_bytes = process.memory_info().rss - memory
            epilogue = self._plan_of(-99, kind="right", timed=True, first=sys.maxsize)
            result = self._judged(epilogue)
            if result["outcome"] != "CORRECT":
                report.failures.append(f"afterwards an honest candidate was judged {result}")
        except (OSError, TimeoutError, wire.ProtocolError) as error:  # the last: a result that is no message
            under_way = "\n  ".join(f"plan {plan.number // 2}: {plan.sent}" for plan, _ in waiting.values())
            status = self.judge.poll()
            report.failures.append(
                f"{type(error).__name__}: {error} (judge's status {status}); under way:\n  {under_way}"
            )
        report.seconds = time.monotonic() - begin
        return report

    def _note(self, report: Report, plan: Plan, result: dict[str, Any]) -> None:
        """Count one result, and record what is wrong with it."""
        outcome = result["outcome"]
        report.evaluations += 1
        report.frames += len(plan.sent)
        report.untouched += not plan.sent
        report.mutations.update(line.split(": ")[1] for line in plan.sent)
        report.outcomes[f"{plan.kind}: {outcome}"] += 1
        report.largest_speedup = max(report.largest_speedup, result.get("speedup", 0.0))
        complaints = []
        if outcome not in _ALLOWED:
            complaints.append("blames itself")
        if outcome == "CORRECT" and plan.kind != "right":
            complaints.append("takes wrong for right")
        if not plan.sent and outcome not in (
            ("CORRECT", "TIMEOUT") if plan.kind == "right" else ("INCORRECT", "TIMEOUT")
        ):
            complaints.append("though nothing was mutated")
        times = [result.get(name) for name in ("speedup", "candidate_timing", "reference_timing")]
        if not all(math.isfinite(number) and number >= 0 for number in _numbers(times)):
            complaints.append(f"times {times}")
        if complaints:
            sent = "\n  ".join(plan.sent)
            report.failures.append(
                f"plan {plan.number // 2} ({plan.kind}, {'timed' if plan.timed else 'untimed'}): {', '.join(complaints)}:"
                f" {outcome}: {result.get('message')}\n  {sent}"
            )


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)
    elif type(value) in (int, float) or value in _NOT_FINITE:
        yield float(value)


def main(frames: int = 600) -> int:
    """Fuzz the judge, print what happened, and return the exit status."""
    parser = argparse.ArgumentParser(description="Lie to a judge, and see whether it notices.")
    parser.add_argument("--frames", type=int, default=frames)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plan", type=int, help="run one evaluation only")
    options = parser.parse_args()
    with Fuzzer(options.seed) as fuzzer:
        report = fuzzer.run(options.frames, options.plan)
    print("| what | seen |\n| --- | --- |")
    print(f"| mutated frames | {report.frames}, seed {options.seed} |")
    print(f"| evaluations | {report.evaluations}, {report.untouched} of them over before a frame was to be mutated |")
    for title, counts in (("mutations", report.mutations), ("verdicts", report.outcomes)):
        print(f"| {title} | {', '.join(f'{count} {name}' for name, count in counts.most_common())} |")
    print(f"| largest claimed speedup of an equal candidate | {report.largest_speedup:.2f} |")
    print(f"| judge's descriptors left open, growth of its memory | {report.descriptors_left}, "
          f"{report.memory_growth_bytes >> 20} MiB |")  # fmt: skip
    print(f"| time | {report.seconds:.1f} s |")
    print(f"| failures | {len(report.failures)} |")
    for failure in report.failures:
        print(failure, file=sys.stderr)
    sys.stdout.flush()
    return 1 if report.failures else 0


if __name__ == "__main__":
    # Runners' threads may still execute torch code; do not wait for them.
    os._exit(main())
