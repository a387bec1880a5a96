"""One candidate's way through the judge: load, compile, check, time, verdict. The only caller of everything beside it.

Each stage asks the runner and waits no longer than its limit; whatever the runner does instead of answering becomes an
outcome. The runner is killed at the end in every case, and what it printed is attached to the result.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import tree, wire
from ..backends import backends
from ..burst import Station, run_burst
from ..devices.base import Arena, Device
from ..spec import EvalSpec
from ..toolkits import Problem, ReferenceFailure
from . import timing, trial, verdict
from .answers import read_burst, read_call
from .compare import Comparison
from .handle import Runner, RunnerGarbled, RunnerGone, RunnerLate, RunnerStartError
from .pool import Pool
from .problems import Announce, Problems
from .stages import Stages

#: Memory of one arena beyond what one input set or output slot needs, in bytes: more sets mean more different values
#: among the timed calls.
_ARENA_BUDGET = {"cuda": 2 << 30, "cpu": 64 << 20}
_MAX_SETS = 4
_MAX_SLOTS = 8
#: Share of the timing limit that planned calls may take.
_TIMING_SHARE = 0.3
#: How many times more calls are made when the clocks disagree or are too noisy to tell.
_CONFIRMING_CALLS = 4
#: And for at least this long, in seconds: hundreds of calls of a small kernel bring the noise down to a microsecond.
_CONFIRMING_SECONDS = 0.25
#: Longest stretch of reference bursts in one timing, in seconds.
_MAX_REFERENCE_SECONDS = 20.0


class _Finished(Exception):  # noqa: N818
    """Carries a verdict out of the stages."""

    def __init__(self, result: verdict.Result) -> None:
        super().__init__(result["outcome"])
        self.result = result


@dataclass(slots=True)
class _Rounds:
    """Bursts of each kind in one timing."""

    candidate: list[timing.Burst] = field(default_factory=list)
    reference: list[timing.Burst] = field(default_factory=list)
    empty: list[timing.Burst] = field(default_factory=list)

    @property
    def seconds_per_call(self) -> float:
        bursts = [*self.candidate, *self.empty]
        return max(1e-6, sum(burst.wall_seconds for burst in bursts) / sum(burst.calls for burst in bursts))

    @property
    def reference_seconds(self) -> float:
        return sum(burst.wall_seconds for burst in self.reference)


@dataclass(slots=True)
class Bench:
    """What lanes of one device share."""

    device: Device
    pool: Pool
    problems: Problems
    memory_bytes: int
    busy_seconds: float = 0.0


class Lane:
    """Evaluates one candidate."""

    def __init__(self, bench: Bench, spec: EvalSpec, tell: Callable[[str], None], announce: Announce) -> None:
        self._bench = bench
        self._device = bench.device
        self._lease = bench.pool.lease
        self._spec = spec
        self._announce = announce
        self._stages = Stages(tell)
        self._stage = "load"
        self._runner: Runner | None = None
        self._arenas: list[Arena] = []
        self._findings: list[verdict.Result] = []
        self._passed = 0
        self._trials = 0
        self._worst = Comparison()
        self._timed_checks = 0
        self._overdue = False

    async def evaluate(self) -> verdict.Result:
        """Return the verdict as the proto-JSON of EvalResult. Raises only what is a bug, or cancellation."""
        result: verdict.Result
        logs = ""
        try:
            try:
                result = await self._run()
            except _Finished as finished:
                result = finished.result
            except ReferenceFailure as failure:
                result = verdict.reference_failed(failure.detail)
            except RunnerStartError as error:
                result = verdict.infrastructure("RUNNER_START_FAILED", str(error), retryable=True)
            except RunnerGone:
                assert self._runner is not None
                report = await self._runner.gone()
                if report.killed:
                    result = self._broke_out("the candidate closed the channel of its runner and went on")
                elif report.lost:
                    result = verdict.infrastructure("RUNNER_LOST", "the runner's warden ended", retryable=True)
                else:
                    result = verdict.ended(self._stage, report, self._bench.memory_bytes)
            except RunnerGarbled as error:
                result = self._broke_out(f"the candidate wrote to the channel of its runner ({error})")
            except asyncio.CancelledError:
                self._overdue = True
                raise
        finally:
            if self._runner is not None:
                logs = (await self._bench.pool.discard(self._runner, overdue=self._overdue)).logs
            for arena in self._arenas:
                arena.close()
        self._stages.close()
        result["stages"] = self._stages.spans
        result.setdefault("findings", self._findings)
        return verdict.with_logs(result, logs)

    def _broke_out(self, evidence: str) -> verdict.Result:
        found = [*self._findings, verdict.finding("E03", "SEVERITY_REJECT", evidence)]
        return verdict.rejected(found, None, compiled=self._stage not in ("load", "compile"))

    async def _run(self) -> verdict.Result:
        spec = self._spec
        self._stages.enter("STAGE_PREPARING")
        problem = await self._bench.problems.get(spec, self._announce)
        # Fixed cases are no secret, and may differ in size; random ones are drawn when they are needed.
        first, *more = [await self._prepare(problem, number) for number in range(problem.cases or 1)]
        self._runner = await self._bench.pool.take()
        station = await self._open_arenas(first, more)
        await self._load(problem)
        await self._compile(problem, first, station)
        await self._check(problem, station)
        result = verdict.correct(self._report(), self._passed)
        if spec.run_performance:
            result.update(await self._time(problem, station))
        return result

    async def _prepare(self, problem: Problem, number: int) -> trial.Trial:
        """Draw inputs and answers from entropy that did not exist before now."""
        async with self._bench.problems.executing(self._announce):
            return trial.prepare(problem, self._spec, self._device, number, secrets.randbits(31))

    async def _open_arenas(self, first: trial.Trial, more: Sequence[trial.Trial]) -> Station:
        """Allocate the shared memory and have the runner reach it. What fails here is not the candidate's doing."""
        assert self._runner is not None
        budget = _ARENA_BUDGET[self._device.kind] if self._spec.run_performance else 0
        slot_bytes = max(each.slot_bytes for each in (first, *more))
        # Two at the least: with one, an old answer would be as right as a new one.
        fewest = 2 if self._spec.run_performance else 1
        sets = max(fewest, min(_MAX_SETS, budget // first.set_bytes))
        slots = max(fewest, min(_MAX_SLOTS, budget // slot_bytes))
        sizes = (max(sets * first.set_bytes, *(each.set_bytes for each in (first, *more))), slots * slot_bytes)
        descriptors: list[int | None] = [*self._runner.descriptors] or [None, None]
        async with self._lease.work():
            for size, descriptor in zip(sizes, descriptors, strict=True):
                self._arenas.append(self._device.new_arena(size, descriptor))
        arena_in, arena_out = self._arenas
        order = {
            "op": "arenas",
            "tickets": [arena_in.ticket(), arena_out.ticket()],
            "structure": first.structure,
            "specs": [spec.to_json() for spec in first.specs],
            "slot_bytes": slot_bytes,
        }
        try:
            answer = await self._runner.ask(order, 60)
        except (RunnerGone, RunnerLate) as error:
            raise RunnerStartError(f"the runner could not reach the arenas: {type(error).__name__}") from None
        if "error" in answer:
            raise RunnerStartError(f"the runner could not reach the arenas: {answer['error']}")
        return Station.over(self._device, first.structure, first.specs, arena_in.data, arena_out.data, slot_bytes)

    async def _load(self, problem: Problem) -> None:
        self._enter("load", "STAGE_LOADING")
        order = {
            "op": "load",
            "source": self._spec.kernel_code,
            "backend": self._spec.backend,
            "symbol": problem.symbol,
        }
        answer = await self._ask(order, self._spec.limits.load)
        if not (isinstance(answer, dict) and answer.get("defines") is True):
            raise _Finished(verdict.invalid("kernel_code", f"defines no {problem.symbol}"))

    async def _compile(self, problem: Problem, first: trial.Trial, station: Station) -> None:
        """Construct the candidate and call it once, unjudged: kernels are compiled and tuned here."""
        self._enter("compile", "STAGE_COMPILING")
        begin = time.monotonic()
        try:
            arguments, tensors = tree.flatten(list(problem.init_args))
            keywords, more = tree.flatten(problem.init_kwargs)
            if tensors or more:
                raise tree.UnsupportedValueError("a tensor; pass shapes and build tensors in the constructor")
        except tree.UnsupportedValueError as error:
            raise ReferenceFailure("build", TypeError(f"get_init_inputs() returned {error}")) from error
        order = {
            "op": "construct",
            "symbol": problem.symbol,
            "instantiate": problem.instantiate,
            "args": arguments,
            "kwargs": keywords,
            "seed": problem.init_seed,
        }
        await self._ask(order, self._spec.limits.compile)
        await self._put(first, station)
        limit = self._spec.limits.compile
        await self._ask(self._call_order(first), limit, spent=time.monotonic() - begin)

    async def _check(self, problem: Problem, station: Station) -> None:
        self._enter("correctness", "STAGE_CHECKING")
        assert self._runner is not None
        spec = self._spec
        trials = spec.correct_trials if problem.cases is None else max(problem.cases, spec.correct_trials)
        spent = 0.0
        launches: list[int] = []
        for number in range(trials):
            current = await self._prepare(problem, number)
            if current.set_bytes > station.arena.numel() or current.slot_bytes > station.outputs[0].numel():
                raise ReferenceFailure("inputs", ValueError("get_inputs() returned larger inputs than the first time"))
            await self._put(current, station)
            begin, stopped = time.monotonic(), self._runner.stopped_seconds
            answer = await self._ask(self._call_order(current), spec.limits.correctness, spent=spent)
            spent += time.monotonic() - begin - (self._runner.stopped_seconds - stopped)
            structure, specs, count = read_call(answer)
            if count is not None:
                launches.append(count)
            async with self._lease.work():
                comparison = trial.judge(current, spec, structure, specs, station.outputs[0])
                if comparison.mismatch is None and not trial.inputs_intact(current, self._arenas[0].data):
                    comparison.mismatch = {
                        "output": "inputs",
                        "kind": "input mutated",
                        "detail": "after the call the inputs are not what the reference leaves",
                    }
            self._note(comparison)
            self._trials += 1
            if comparison.mismatch is not None:
                raise _Finished(verdict.incorrect(comparison, number, self._report()))
            self._passed += 1
        if backends()[spec.backend].must_launch and launches and not any(launches):
            evidence = f"no {spec.backend} kernel was launched in {trials} calls; the outputs come from elsewhere"
            self._findings.append(verdict.finding("S19", "SEVERITY_REJECT", evidence))
            raise _Finished(verdict.rejected(self._findings, self._report(), compiled=True))

    async def _time(self, problem: Problem, station: Station) -> verdict.Result:
        """Time candidate and reference in turn while the device is ours alone; check outputs of timed calls."""
        self._enter("timing", "STAGE_AWAITING_LEASE")
        # Of fixed cases the first one is timed.
        numbers = range(len(station.inputs)) if problem.cases is None else [0] * len(station.inputs)
        prepared = [await self._prepare(problem, number) for number in numbers]
        if any(each.specs != prepared[0].specs or each.set_bytes > station.set_bytes for each in prepared):
            raise ReferenceFailure(
                "inputs", ValueError("get_inputs() must return the same shapes each time to be timed")
            )
        async with self._lease.exclusive(self._runner):
            self._stages.enter("STAGE_TIMING")
            begin = time.monotonic()
            try:
                return await self._timed_bursts(problem, station, prepared)
            finally:
                self._bench.busy_seconds += time.monotonic() - begin

    async def _timed_bursts(self, problem: Problem, station: Station, prepared: list[trial.Trial]) -> verdict.Result:
        assert self._runner is not None
        rng = random.Random(secrets.randbits(64))
        for region, ready in zip(_regions(self._arenas[0], prepared[0].set_bytes), prepared, strict=False):
            region.copy_(ready.master)
        self._device.synchronize()
        own = Station(
            self._device,
            prepared[0].master,
            prepared[0].structure,
            [tree.views(ready.master, ready.specs) for ready in prepared],
            [torch.empty_like(station.outputs[0])],
        )
        answer_of_nothing = tree.rebuild(
            prepared[0].expected.structure,
            [leaf.value for leaf in prepared[0].expected.leaves],
            self._device.torch_device,
        )
        warm = await self._candidate_burst(max(1, self._spec.warmup), station, prepared, rng, check=False)
        per_call = warm.wall_seconds / warm.calls
        affordable = int(_TIMING_SHARE * self._spec.limits.timing / max(per_call, 1e-7))
        calls = max(1, min(self._spec.perf_trials, affordable))
        if problem.timed is not None:
            await self._reference_burst(problem.timed, max(1, self._spec.warmup), own, rng)
        self._own_burst(lambda *_: answer_of_nothing, 2, own, rng)
        rounds = _Rounds()
        spent = warm.wall_seconds
        for length in timing.burst_lengths(calls, rng):
            await self._runner.stop()  # whatever it left running must not slow the reference down (T26)
            if problem.timed is not None and rounds.reference_seconds < _MAX_REFERENCE_SECONDS:
                rounds.reference.append(await self._reference_burst(problem.timed, length, own, rng))
            rounds.empty.append(self._own_burst(lambda *_: answer_of_nothing, length, own, rng))
            rounds.candidate.append(
                await self._candidate_burst(length, station, prepared, rng, check=True, spent=spent)
            )
            spent += rounds.candidate[-1].wall_seconds
        candidate = timing.conclude(rounds.candidate, rounds.empty, self._device.kind)
        if not candidate.agrees or not candidate.sharp:
            # Either something is hidden, or these few bursts were too noisy to tell: longer ones can.
            longer = max(_CONFIRMING_CALLS * calls, int(_CONFIRMING_SECONDS / rounds.seconds_per_call))
            rounds.candidate.clear()
            rounds.empty.clear()
            for length in timing.burst_lengths(max(8, min(longer, affordable)), rng):
                await self._runner.stop()
                rounds.empty.append(self._own_burst(lambda *_: answer_of_nothing, length, own, rng))
                rounds.candidate.append(
                    await self._candidate_burst(length, station, prepared, rng, check=True, spent=spent)
                )
                spent += rounds.candidate[-1].wall_seconds
            candidate = timing.conclude(rounds.candidate, rounds.empty, self._device.kind)
        return self._conclude(candidate, rounds, rng)

    async def _reference_burst(
        self, call: Callable[..., Any], length: int, station: Station, rng: random.Random
    ) -> timing.Burst:
        await self._announce("begin")
        try:
            return self._own_burst(call, length, station, rng)
        except BaseException as error:
            raise ReferenceFailure("timing", error) from error
        finally:
            await self._announce("end")

    def _own_burst(self, call: Callable[..., Any], length: int, station: Station, rng: random.Random) -> timing.Burst:
        order = [rng.randrange(len(station.inputs)) for _ in range(length)]
        with torch.no_grad():
            return timing.timed(lambda: run_burst(call, station, order, [0] * length, flush=True), length)

    async def _candidate_burst(
        self,
        length: int,
        station: Station,
        prepared: list[trial.Trial],
        rng: random.Random,
        *,
        check: bool,
        spent: float = 0.0,
    ) -> timing.Burst:
        """Run one burst in the runner by the judge's clock, and compare what it left in every slot."""
        order = [rng.randrange(len(station.inputs)) for _ in range(length)]
        slots = [step % len(station.outputs) for step in range(length)]
        self._arenas[1].data.fill_(0xA5)  # no earlier answer may be taken for one of this burst
        self._device.synchronize()
        assert self._runner is not None
        self._runner.resume()
        begin = time.perf_counter()
        answer = await self._ask(
            {"op": "burst", "seed": prepared[0].seed, "order": order, "slots": slots, "flush": True},
            self._spec.limits.timing,
            spent=spent,
        )
        wall = time.perf_counter() - begin
        device_seconds = read_burst(answer, length)
        if check:
            # What is there now counts: comparing takes time, in which late work could still arrive (E19).
            outputs = self._arenas[1].data.clone()
            self._check_slots(outputs, station, prepared, dict(zip(slots, order, strict=True)))
        return timing.Burst(length, wall, device_seconds)

    def _check_slots(
        self, outputs: torch.Tensor, station: Station, prepared: list[trial.Trial], contents: dict[int, int]
    ) -> None:
        """Compare what a burst left: `contents` says which input set each slot must hold the answer to."""
        size = station.outputs[0].numel()
        for slot, index in contents.items():
            leaves = [leaf.spec for leaf in prepared[index].expected.leaves]
            comparison = trial.judge(
                prepared[index],
                self._spec,
                prepared[index].expected.structure,
                leaves,
                outputs[slot * size : (slot + 1) * size],
            )
            self._note(comparison)
            if comparison.mismatch is not None:
                raise _Finished(verdict.incorrect(comparison, -1, self._report()))
            self._timed_checks += 1

    def _conclude(self, candidate: timing.Timing, rounds: _Rounds, rng: random.Random) -> verdict.Result:
        result: verdict.Result = {"candidate_timing": candidate.to_json(), "correctness": self._report()}
        if not candidate.agrees:
            evidence = (
                f"device times say {candidate.device_median * 1e6:.1f} us a call, the judge's clock"
                f" {candidate.judge_seconds * 1e6:.1f} us; the slower one counts"
            )
            self._findings.append(verdict.finding("T01", "SEVERITY_WARNING", evidence))
        if rounds.reference:
            baseline = timing.conclude_trusted(rounds.reference, rounds.empty)
            low, high = timing.ratio_interval(baseline, candidate, rng)
            result["reference_timing"] = baseline.to_json()
            result["speedup"] = baseline.median / candidate.median
            result["speedup_interval"] = {"low": low, "high": high}
        return result

    async def _put(self, current: trial.Trial, station: Station) -> None:
        """Write a trial's inputs where the runner sees them, and make sure that no old answer is left."""
        async with self._lease.work():
            self._arenas[0].data[: current.set_bytes].copy_(current.master)
            station.outputs[0].fill_(0xA5)
            self._device.synchronize()

    def _call_order(self, current: trial.Trial) -> wire.Frame:
        specs = [spec.to_json() for spec in current.specs]
        return {"op": "call", "seed": current.seed, "structure": current.structure, "specs": specs}

    def _enter(self, stage: str, name: str) -> None:
        self._stage = stage
        self._stages.enter(name)

    async def _ask(self, order: wire.Frame, limit: float, *, spent: float = 0.0) -> Any:
        """Ask the runner within what is left of the stage's limit; every way of not answering ends the evaluation."""
        assert self._runner is not None
        try:
            answer = await self._runner.ask(order, max(0.0, limit - spent))
        except RunnerLate:
            self._overdue = True
            raise _Finished(verdict.late(self._stage, limit)) from None
        if "ok" in answer:
            return answer["ok"]
        raise _Finished(verdict.raised(self._stage, answer.get("error"), self._bench.memory_bytes))

    def _note(self, comparison: Comparison) -> None:
        self._worst.max_abs_error = max(self._worst.max_abs_error, comparison.max_abs_error)
        self._worst.max_error_ratio = max(self._worst.max_error_ratio, comparison.max_error_ratio)

    def _report(self) -> verdict.Result:
        return {
            "passed_trials": self._passed,
            "total_trials": self._trials,
            "max_abs_error": self._worst.max_abs_error,
            "max_error_ratio": self._worst.max_error_ratio,
            "timed_outputs_checked": self._timed_checks,
        }


def _regions(arena: Arena, size: int) -> list[torch.Tensor]:
    return [arena.data[at : at + size] for at in range(0, arena.data.numel() - size + 1, size)]
