"""Tests of `kerneldyno profile` and of the lines on a card: what tools saw inside a candidate, and nothing hostile of it."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from kerneldyno.cli.cards import verdict_card
from kerneldyno.cli.kernel_view import kernel_view
from kerneldyno.report.wording import facts
from kerneldyno.rewards.counters import bound, occupancy_words, roof_words, slowest
from kerneldyno.testing import FakeScheduler
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import EvalResult
from tests.client.command import Ran, invoke
from tests.evaluator import recorded_inspections as recorded

HOSTILE = "k\x1b[31m\n```\n</think>\u202eDROP\x07" + "x" * 5000


def shown(card: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=250, color_system=None)
    console.print(card)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def correct(**fields: object) -> EvalResult:
    result = EvalResult(outcome=EvalResult.CORRECT, compiled=True, correct=True, speedup=1.5, message="all are right")
    result.speedup_interval.low, result.speedup_interval.high = 1.4, 1.6
    result.MergeFrom(EvalResult(**fields))  # type: ignore[arg-type]
    return result


class TestOneResult:
    pytestmark = pytest.mark.pure

    def test_each_kernel_has_its_limits_and_its_advice(self) -> None:
        result = correct(
            counters=recorded.counters(),
            energy=pb.Energy(joules_per_call=0.0123, watts=450),
            reference_energy=pb.Energy(joules_per_call=0.03, watts=400.4),
        )
        text = shown(kernel_view(result))
        for line in (
            "CORRECT  1.50x",
            "speedup      1.500 by device time (95 % between 1.400 and 1.600)",
            "energy       12.3 mJ a call at 450 W, the reference 30 mJ a call at 400 W",
            "softmax (launch 2 of 3)",
            "  duration      15.6 us",
            "  launch        4096 x 1 x 1 blocks of 128 x 1 x 1 threads",
            "  of peak       DRAM 56%, L2 86%, L1 34%, SM 29%, tensor cores 0%",
            "  roofline      0.894 FLOP a byte, 2.39 TFLOP/s: 56% of the roof, memory-bound;"
            " neither memory nor arithmetic is near its limit",
            "  occupancy     66%, at most 75%, limited by registers",
            "  resources     34 registers a thread, no spills, 1.02 KiB of shared memory a block",
            "  warps wait    54% long_scoreboard: waits for data from global or local memory",
            "  roofline      tensor cores busy 68% of the time, compute-bound",
        ):
            assert line in text
        assert "gain up to 25%, TheoreticalOccupancy: The 12.00 theoretical warps" in text
        assert "No counters" not in text

    def test_spills_and_bank_conflicts(self) -> None:
        kernel = pb.KernelCounters(
            name="k", spill_instructions=12, bank_conflicts=2048, bank_conflict_share=0.5, duration_seconds=1e-6
        )
        text = shown(kernel_view(correct(counters=pb.CounterProfile(kernels=[kernel]))))
        assert "12 spill instructions" in text
        assert "bank conflicts  2048 more passes over shared memory, 50% of all" in text
        assert "launch          ? blocks of ? threads" in text

    def test_only_own_kernels_are_shown_if_there_are_some(self) -> None:
        own = pb.KernelCounters(name="mine", owner=pb.KernelUse.OWNER_CANDIDATE, duration_seconds=1e-6)
        other = pb.KernelCounters(name="theirs", owner=pb.KernelUse.OWNER_TORCH, duration_seconds=1e-3)
        profile = pb.CounterProfile(kernels=[other, own])
        assert slowest(profile) == own
        assert "theirs" not in shown(kernel_view(correct(counters=profile)))
        alone = pb.CounterProfile(kernels=[other])
        assert slowest(alone) == other
        assert "theirs (launch 1 of 1, PyTorch's)" in shown(kernel_view(correct(counters=alone)))
        assert slowest(pb.CounterProfile()) is None

    @pytest.mark.parametrize(
        ("result", "why"),
        [
            (correct(counters=pb.CounterProfile(unavailable="ncu is not installed")), "ncu is not installed."),
            (correct(), "the evaluator may be older than counters."),
            (EvalResult(outcome=EvalResult.INCORRECT), "only a CORRECT candidate has counters."),
        ],
    )
    def test_without_counters_it_says_why(self, result: EvalResult, why: str) -> None:
        assert f"No counters: {'' if why.startswith(('ncu', 'only')) else 'the result has none: '}{why}" in shown(
            kernel_view(result)
        )

    @pytest.mark.parametrize(("tool", "what"), [
        ("memcheck", "Invalid __global__ write of size 16 bytes in my_kernel at candidate.py:9"),
        ("racecheck", "Error: Race reported between Write access"),
        ("initcheck", "Uninitialized __global__ memory read of size 4 bytes in my_kernel at candidate.py:9, 4 times"),
        ("synccheck", "Barrier error detected. Divergent thread(s) in warp. in my_kernel at candidate.py:9, 5 times"),
    ])  # fmt: skip
    def test_errors_of_memory_have_their_place(self, tool: str, what: str) -> None:
        result = recorded.refused(recorded.sanitizer(tool, "my_kernel", "candidate.py", 9))
        text = shown(kernel_view(result, verdict=False))
        assert what in text
        assert "Host Frame" not in text
        words = dict(facts(result))["sanitizer"]
        others = [name for name in recorded.TOOLS if name != tool]
        assert all(f"{name} ok" in words for name in others)
        assert f"{tool} {'1 error' if tool in ('memcheck', 'racecheck') else ''}" in words

    def test_tools_that_did_not_finish(self) -> None:
        runs = [pb.SanitizerRun(tool=tool, detail="it is not installed") for tool in recorded.TOOLS]
        result = correct(sanitizer=pb.SanitizerReport(runs=runs))
        assert dict(facts(result))["sanitizer"].endswith("synccheck not finished: it is not installed")
        assert "memcheck   not finished: it is not installed" in shown(kernel_view(result))
        runs[0].finished, runs[0].detail = True, ""
        half = correct(sanitizer=pb.SanitizerReport(runs=runs))
        assert dict(facts(half))["sanitizer"].startswith("memcheck ok, racecheck not finished")
        assert "installed" not in dict(facts(half))["sanitizer"]
        assert dict(facts(correct(sanitizer=pb.SanitizerReport())))["sanitizer"] == "no tool ran"

    def test_listings_are_shown_as_they_are(self) -> None:
        code = pb.KernelCode(name="k", ptx=".version 8.0\n\x1b[2J\tret;", truncated=True)
        text = shown(kernel_view(correct(kernel_code=[code])))
        assert "PTX of k, cut\n.version 8.0\n" in text
        assert "\x1b" not in text
        assert "SASS" not in text


class TestTheCard:
    pytestmark = pytest.mark.pure

    def test_each_kernel_has_a_line(self) -> None:
        text = shown(verdict_card(correct(counters=recorded.counters())))
        assert "counters  add: 44.5 us, DRAM 85%, SM 6%, occupancy 81%, at most 100%, 0.0925 FLOP a byte" in text
        assert "mm: 28.7 us, DRAM 12%, SM 68%, occupancy 24%, at most 25% (by registers, shared memory)" in text
        assert text.count("counters") == 3

    def test_sixteen_launches(self) -> None:
        kernels = list(recorded.counters("add").kernels) * 16
        result = correct(counters=pb.CounterProfile(kernels=kernels))
        assert shown(verdict_card(result)).count("add: 44.5 us") == 16
        assert "launch 16 of 16" in shown(kernel_view(result))

    def test_unavailable_counters_and_energy(self) -> None:
        result = correct(counters=pb.CounterProfile(unavailable="no\nncu"), energy=pb.Energy(joules_per_call=2.0))
        found = dict(facts(result))
        assert (found["counters"], found["energy"]) == ("none: no ncu", "2 J a call")
        assert not {"counters", "energy", "sanitizer", "deterministic"} & dict(facts(correct())).keys()

    def test_determinism_is_mentioned_only_where_it_is_missing(self) -> None:
        other = correct(correctness=pb.CorrectnessReport(deterministic=False))
        same = correct(correctness=pb.CorrectnessReport(deterministic=True))
        assert dict(facts(other))["deterministic"].startswith("no: ")
        assert "deterministic" not in dict(facts(same))
        assert "deterministic  no" in shown(kernel_view(other))


class TestNothingHostile:
    pytestmark = pytest.mark.pure

    def test_names_and_texts(self) -> None:
        kernel = pb.KernelCounters(
            name=HOSTILE,
            duration_seconds=1e-6,
            occupancy_limiter=HOSTILE,
            achieved_occupancy=0.5,
            stalls=[pb.StallReason(reason=HOSTILE, meaning=HOSTILE, share=0.5)],
            advice=[pb.Advice(rule=HOSTILE, text=HOSTILE, promise=0.5)],
        )
        error = pb.MemoryError(what=HOSTILE, kernel=HOSTILE, file=HOSTILE, line=3, detail=HOSTILE)
        run = pb.SanitizerRun(tool=HOSTILE, detail=HOSTILE, errors=1, reports=[error])
        result = correct(
            counters=pb.CounterProfile(kernels=[kernel], tool=HOSTILE),
            sanitizer=pb.SanitizerReport(runs=[run]),
            kernel_code=[pb.KernelCode(name=HOSTILE, sass=HOSTILE)],
        )
        for text in (shown(kernel_view(result)), shown(verdict_card(result))):
            assert not [c for c in text if c != "\n" and not c.isprintable() and c not in "╭"]
            assert "\n```\n" not in text.split("SASS of")[0], "a name is one line"
            assert len(text) < 12_000

    @pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -1.0, 7.0, 0.0])
    def test_numbers_that_make_no_sense(self, odd: float) -> None:
        kernel = pb.KernelCounters(name="k")
        for field in pb.KernelCounters.DESCRIPTOR.fields:
            if field.cpp_type == field.CPPTYPE_DOUBLE:
                setattr(kernel, field.name, odd)
        kernel.stalls.add(reason="wait", share=odd)
        kernel.advice.add(rule="r", text="t", promise=odd)
        energy = pb.Energy(joules_per_call=odd, watts=odd)
        result = correct(counters=pb.CounterProfile(kernels=[kernel], seconds=odd), energy=energy)
        text = shown(kernel_view(result)) + shown(verdict_card(result))
        assert "nan" not in text
        assert "inf" not in text
        assert bound(kernel) == ""
        if odd != 7.0:
            assert roof_words(kernel) == ""
            assert occupancy_words(kernel) in ("", "?, at most ?")


class TestTheCommand:
    pytestmark = pytest.mark.slow

    async def run(self, folder: Path, answer: EvalResult, *options: object) -> tuple[Ran, pb.EvalRequest]:
        asked = []

        async def judge(request: pb.EvalRequest) -> EvalResult:
            asked.append(request)
            return answer

        (folder / "reference.py").write_text("class Model: ...\n")
        (folder / "candidate.py").write_text("class ModelNew: ...\n")
        async with FakeScheduler(judge, checks=False, backends=["triton", "cuda"]) as scheduler:
            command = ["profile", folder / "reference.py", folder / "candidate.py", "--address", scheduler.address]
            return await invoke(*command, *options), asked[0]

    async def test_it_asks_for_counters(self, tmp_path: Path) -> None:
        answer = correct(counters=recorded.counters("softmax"))
        options = ["--sanitize", "all", "--listing", "sass", "--backend", "cuda", "--trials", 2]
        ran, request = await self.run(tmp_path, answer, *options)
        assert ran.status == 0
        assert "softmax (launch 1 of 1)" in ran.out
        assert "\x1b" not in ran.out
        assert request.profile_level == pb.PROFILE_LEVEL_COUNTERS
        assert (request.sanitize, request.code_listing) == (pb.SANITIZE_ALL, pb.CODE_LISTING_SASS)
        assert (request.backend, request.num_correct_trials) == ("cuda", 2)

    async def test_json_is_the_result(self, tmp_path: Path) -> None:
        ran, request = await self.run(tmp_path, correct(counters=recorded.counters("add")), "--json")
        assert ran.json["counters"]["kernels"][0]["name"] == "add"
        assert request.sanitize == pb.SANITIZE_UNSPECIFIED

    async def test_a_file_of_fields_does_not_take_the_counters_away(self, tmp_path: Path) -> None:
        (tmp_path / "fields.json").write_text('{"enable_profiling": false, "num_correct_trials": 3}')
        _, request = await self.run(tmp_path, correct(), "--request", tmp_path / "fields.json")
        assert request.profile_level == pb.PROFILE_LEVEL_COUNTERS
        assert not request.HasField("enable_profiling")
        assert request.num_correct_trials == 3

    async def test_a_wrong_candidate_has_its_card(self, tmp_path: Path) -> None:
        wrong = recorded.refused(recorded.sanitizer("memcheck"))
        ran, _ = await self.run(tmp_path, wrong, "--sanitize", "all")
        assert ran.status == 0
        assert "INCORRECT\nwrites outside its tensors" in ran.out
        assert "No counters: only a CORRECT candidate has counters." in ran.out
        assert "Invalid __global__ write of size 16 bytes in scaled_relu at candidate.py:27" in " ".join(
            ran.out.split()
        )

    async def test_without_a_verdict(self, tmp_path: Path) -> None:
        lost = EvalResult(outcome=EvalResult.INFRASTRUCTURE_ERROR, message="NODE_LOST")
        ran, _ = await self.run(tmp_path, lost)
        assert ran.status == 1

    @pytest.mark.parametrize(
        ("options", "said"), [(["--profile", "none"], "No such option"), (["--sanitize", "some"], "some")]
    )
    async def test_options_that_cannot_be(self, tmp_path: Path, options: list[str], said: str) -> None:
        (tmp_path / "a.py").write_text("x = 1\n")
        ran = await invoke("profile", tmp_path / "a.py", tmp_path / "a.py", *options)
        assert ran.status == 2
        assert said in ran.err
