"""Which side is to blame when the judge itself lacks memory, and which kept memory it frees to make room."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge import lane as lane_module
from kerneldyno.evaluator.judge.context import JudgeContext
from kerneldyno.evaluator.judge.lane import Lane, LeakError
from kerneldyno.evaluator.judge.memory.footprint import Footprint, HostNeed
from kerneldyno.evaluator.judge.memory.host import HostMemory
from kerneldyno.evaluator.judge.memory.ledger import Ledger
from kerneldyno.evaluator.judge.problems.cache import BuiltProblem
from kerneldyno.evaluator.judge.results.verdict import Limits
from kerneldyno.evaluator.judge.runners.handle import RunnerStartError
from kerneldyno.evaluator.shared.out_of_memory import asked_bytes, free_bytes, held_bytes, is_lack_of_memory
from kerneldyno.evaluator.shared.tracebacks import ErrorDescription
from kerneldyno.evaluator.toolkits import ReferenceFailure
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

GIB = 1 << 30
LACKED = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ...")
IN_RUNNER = ErrorDescription("ReferenceFailure", (), f"build: OutOfMemoryError: {LACKED}", "")


class Device:
    """A device of 16 GiB: `free` bytes are free, and the judge's tensors hold `allocated` bytes."""

    def __init__(self, kind: str = "cuda", *, free: int | None = 10 * GIB, allocated: int = 0) -> None:
        self.kind, self.free, self.allocated, self.idle = kind, free, allocated, 0
        self.cleared = 0

    def free_bytes(self) -> int | None:
        return self.free

    def allocated_bytes(self) -> int:
        return self.allocated

    def idle_bytes(self) -> int:
        return self.idle

    def room_bytes(self) -> int:
        return 16 * GIB

    def is_full(self) -> bool:
        return self.free is not None and self.free < GIB

    def clear(self) -> None:
        self.cleared += 1
        self.idle = 0


class Kept:
    """Reference runners or problems that are kept for later, with their sizes in bytes."""

    def __init__(self, *sizes: int, known: Any = None) -> None:
        self.sizes, self.known = list(sizes), known

    @property
    def idle_bytes(self) -> int:
        return sum(self.sizes)

    def drop_one(self) -> bool:
        return bool(self.sizes and self.sizes.pop(0))

    async def end_one(self) -> bool:
        return self.drop_one()

    async def end_all(self) -> None:
        self.sizes.clear()

    def find(self, spec: object) -> Any:
        return self.known

    def forget(self, spec: object) -> None:
        self.known = None


class References(Kept):
    """Reference runners. Each may use so much of the host's memory beyond the base as it has of the device's."""

    on_host = False

    @property
    def idle_host_bytes(self) -> int:
        return self.idle_bytes if self.on_host else 0

    async def clear(self) -> None:
        self.sizes.clear()


class Problems(Kept):
    async def rest_one(self) -> bool:
        return self.drop_one()

    async def clear(self) -> None:
        self.sizes.clear()


@contextlib.asynccontextmanager
async def work() -> AsyncIterator[None]:
    yield


async def end_left_over() -> None:
    """End none: there are none."""


def context(device: Device, references: Kept | None = None, problems: Kept | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        device=device,
        ledger=Ledger(16 * GIB),
        host=HostMemory(GIB, lambda: 16 * GIB),
        references=references or References(),
        problems=problems or Problems(),
        making_room=asyncio.Lock(),
        pool=SimpleNamespace(lease=SimpleNamespace(work=work), end_left_over=end_left_over),
    )


def lane(on: SimpleNamespace, *, alone: bool = True, stage: str | None = None, limit: int = 4 * GIB) -> Lane:
    spec = judge_harness.spec("", reference_code="")
    made = Lane(cast(JudgeContext, on), spec, lambda _: None, cast(Any, None), alone=alone)
    made._room = 16 * GIB if alone else 0
    if stage is not None:
        candidate = SimpleNamespace(stage=stage, memory=Limits(GIB, limit), arena_bytes=GIB)
        made._candidate = cast(Any, candidate)
    return made


# Which side is to blame

FAILURES = [LACKED, ReferenceFailure("reference", LACKED), ReferenceFailure.from_runner("timing", IN_RUNNER)]


@pytest.mark.parametrize("failure", FAILURES)
def test_beside_others_nobody_is_to_blame_and_it_is_tried_again(failure: Any) -> None:
    result = lane(context(Device()), alone=False, stage="correctness")._failed(failure)
    assert result.outcome == pb.EvalResult.INFRASTRUCTURE_ERROR
    assert result.infrastructure_error.cause == "DEVICE_MEMORY"
    assert result.infrastructure_error.retryable


@pytest.mark.parametrize("failure", FAILURES)
def test_a_candidate_that_holds_more_than_it_may_is_to_blame(failure: Any) -> None:
    # Of 16 GiB, 1 is free, the judge's tensors hold 2 and the arena 1. The candidate holds 12, and may have 4.
    result = lane(context(Device(free=GIB, allocated=2 * GIB)), stage="correctness")._failed(failure)
    assert result.outcome == pb.EvalResult.OUT_OF_MEMORY
    assert result.out_of_memory == pb.OutOfMemoryEvidence(
        memory="device",
        stage="correctness",
        detail="no device memory is left for judging it",
        limit_bytes=4 * GIB,
    )
    assert result.compiled


@pytest.mark.parametrize(("beside", "outcome"), [(8, "OUT_OF_MEMORY"), (10, "PROBLEM_TOO_LARGE")])
def test_it_is_not_to_blame_for_what_the_problem_takes_by_the_plan(beside: int, outcome: str) -> None:
    # Judge and arena hold 3 GiB of the 15 that are taken.
    made = lane(context(Device(free=GIB, allocated=2 * GIB)), stage="correctness")
    made._beside = beside * GIB
    assert pb.EvalResult.Outcome.Name(made._failed(LACKED).outcome) == outcome


@pytest.mark.parametrize(("free", "outcome"), [(1, "OUT_OF_MEMORY"), (12, "INFRASTRUCTURE_ERROR")])
def test_it_is_to_blame_if_it_leaves_no_memory_for_another_process(free: int, outcome: str) -> None:
    made = lane(context(Device(free=free * GIB, allocated=2 * GIB)), stage="timing")
    result = made._not_started(RunnerStartError("CUDA error: out of memory"))
    assert pb.EvalResult.Outcome.Name(result.outcome) == outcome
    assert lane(context(Device(free=0)))._not_started(RunnerStartError("")).infrastructure_error.retryable


def test_a_candidate_within_its_limit_is_not() -> None:
    on = context(Device(free=GIB, allocated=8 * GIB))
    result = lane(on, stage="timing", limit=6 * GIB)._failed(LACKED)
    assert result.outcome == pb.EvalResult.PROBLEM_TOO_LARGE
    assert result.problem_too_large.stage == "judging"
    assert result.problem_too_large.needed_bytes > 16 * GIB


@pytest.mark.parametrize(
    ("kind", "memory"),
    [("cuda", "device"), ("cpu", "host")],
)
def test_a_reference_that_lacks_memory_alone_is_too_large_and_bytes_are_named(kind: str, memory: str) -> None:
    known = SimpleNamespace(footprint=Footprint(GIB, GIB, 30 * GIB, 0, 0))
    on = context(Device(kind, free=None if kind == "cpu" else 10 * GIB), problems=Problems(known=known))
    result = lane(on)._failed(ReferenceFailure("reference", LACKED))
    assert result.outcome == pb.EvalResult.PROBLEM_TOO_LARGE
    evidence = result.problem_too_large
    assert (evidence.memory, evidence.stage) == (memory, "reference")
    assert evidence.needed_bytes == 31 * GIB
    assert evidence.device_bytes == 16 * GIB
    assert f"31.00 GiB of {memory} memory" in result.message
    assert on.problems.known is None, "what it holds must not be in anybody's way"


@pytest.mark.parametrize(
    ("error", "needed"),
    [
        (
            RuntimeError(f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {20 * GIB} bytes."),
            20 * GIB,
        ),
        (MemoryError(), 16 * GIB + 1),
    ],
)
def test_a_reference_that_the_host_cannot_hold_is_too_large_for_the_host(error: Exception, needed: int) -> None:
    result = lane(context(Device()))._failed(ReferenceFailure("build", error))
    evidence = result.problem_too_large
    assert (evidence.memory, evidence.stage) == ("host", "build")
    assert (evidence.needed_bytes, evidence.device_bytes) == (needed, 16 * GIB)


def test_what_was_asked_for_when_nothing_is_known_of_a_problem() -> None:
    result = lane(context(Device(allocated=15 * GIB)))._failed(ReferenceFailure("inputs", LACKED))
    assert result.problem_too_large.needed_bytes == 17 * GIB
    assert result.problem_too_large.stage == "inputs"


@pytest.mark.parametrize("alone", [True, False])
def test_another_failure_of_the_reference_stays_its_own(alone: bool) -> None:
    failure = ReferenceFailure("reference", ValueError("no"))
    assert lane(context(Device(free=0)), alone=alone)._failed(failure).outcome == pb.EvalResult.REFERENCE_ERROR


@pytest.mark.parametrize(
    ("error", "lacks", "asked"),
    [
        (LACKED, True, 2 * GIB),
        (torch.OutOfMemoryError("cuMemAlloc_v2: out of memory"), True, 0),
        (MemoryError(), True, 0),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."), True, 4096),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True, 0),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True, 0),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), True, 0),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), True, 0),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling"), False, 0),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False, 0),
        (torch.OutOfMemoryError("Tried to allocate 1.2.3 GiB"), True, 0),
        (torch.OutOfMemoryError("Tried to allocate . GiB"), True, 0),
        (torch.OutOfMemoryError(f"Tried to allocate {'9' * 400} GiB"), True, 0),
        (RuntimeError(f"can't allocate memory: you tried to allocate {'9' * 5000} bytes"), True, 0),
    ],
)
def test_how_a_lack_of_memory_is_told(error: Exception, lacks: bool, asked: int) -> None:
    assert is_lack_of_memory(error) is lacks
    assert asked_bytes(str(error)) == asked


def test_a_lack_of_memory_within_a_failure_is_one() -> None:
    assert ReferenceFailure("timing", ReferenceFailure("build", MemoryError())).lacked_memory


@pytest.mark.parametrize(
    ("alone", "detail", "enough"),
    [
        (True, "OutOfMemoryError: cuMemAlloc_v2: out of memory", True),
        (False, "OutOfMemoryError: cuMemAlloc_v2: out of memory", False),
        (False, "no device memory is left for judging it", False),
        (
            False,
            "Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 120.38 GiB is free.",
            True,
        ),
        (
            False,
            "Tried to allocate 222.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 158.38 MiB is free.",
            False,
        ),
        (
            False,
            "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which 844.19 MiB is free.",
            False,
        ),
    ],
)
def test_a_candidate_that_had_all_it_may_have_is_not_tried_again(alone: bool, detail: str, enough: bool) -> None:
    made = lane(context(Device()), alone=alone)
    assert made._has_room(out_of_memory("device", detail)) is enough


def out_of_memory(memory: str, detail: str) -> pb.EvalResult:
    evidence = pb.OutOfMemoryEvidence(memory=memory, detail=detail)
    return pb.EvalResult(outcome=pb.EvalResult.OUT_OF_MEMORY, out_of_memory=evidence)


def ran_out(held: int, asked: int) -> pb.EvalResult:
    """Return the result of a candidate whose process holds `held` GiB and asks for `asked` GiB more."""
    detail = (
        f"Tried to allocate {asked}.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Of the"
        f" allocated memory {held}.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch"
    )
    return out_of_memory("device", detail)


@pytest.mark.parametrize(
    ("result", "beside", "kept", "had"),
    [
        (ran_out(3, 2), 10, 0, True),  # of 16 GiB, 6 were left, and it may have 4
        (ran_out(2, 1), 14, 0, False),
        (ran_out(2, 3), 14, 0, True),  # 5 GiB are more than it may have on any device
        (ran_out(2, 3), 14, 1, False),  # but its process keeps one of these for the judge
        (out_of_memory("device", "cuMemAlloc_v2: out of memory"), 14, 0, True),
        (out_of_memory("host", "MemoryError"), 14, 0, True),
    ],
)
def test_who_asks_for_what_it_may_have_of_a_device_that_is_too_small_is_not_to_blame(
    result: pb.EvalResult, beside: int, kept: int, had: bool
) -> None:
    made = lane(context(Device()), stage="correctness", limit=4 * GIB)
    made._beside, made._kept = beside * GIB, kept * GIB
    assert made._had_its_share(result) is had


def test_a_problem_that_is_dropped_while_somebody_looks_for_it_is_met_with_memory_of_its_own() -> None:
    device = Device()
    on = context(device, problems=Problems(known=None))
    on.problems.recall = lambda spec: None
    made = lane(on, alone=False)
    met: Any = SimpleNamespace(footprint=Footprint(GIB, GIB, GIB, 0, 0))

    async def meet_first() -> Any:
        return met

    made._meet_first = meet_first  # type: ignore[method-assign]
    assert asyncio.run(made._meet()) == met


def test_what_was_free_is_told_in_bytes() -> None:
    assert free_bytes("GPU 0 has a total capacity of 139.80 GiB of which 1.50 GiB is free.") == 3 << 29
    assert free_bytes("cuMemAlloc_v2: out of memory") is None
    assert held_bytes("Of the allocated memory 8.50 GiB is allocated by PyTorch, and 0 bytes is reserved") == 17 << 29
    assert held_bytes("cuMemAlloc_v2: out of memory") is None


def test_a_reference_that_fails_otherwise_in_its_runner_lacks_no_memory() -> None:
    failure = ReferenceFailure.from_runner("timing", ErrorDescription("ValueError", (), "no", ""))
    assert not failure.lacked_memory


# Freeing what is kept for later


async def test_a_lane_that_waits_for_the_memory_of_its_plan_lets_others_end_its_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class AdmittedError(Exception):
        pass

    def admitted(*_: Any) -> Any:
        raise AdmittedError

    monkeypatch.setattr(lane_module, "Rehearsal", lambda *_: contextlib.nullcontext())
    on = context(cast(Any, open_device("cpu")))
    on.host.admit = admitted  # comes next
    footprint = Footprint(GIB >> 10, GIB >> 10, GIB >> 10, 0, 0)
    built = BuiltProblem(cast(Any, None), cast(Any, None), footprint)
    async with contextlib.AsyncExitStack() as memory, asyncio.timeout(10):
        async with on.ledger.alone():
            judging = asyncio.ensure_future(lane(on, alone=False)._judge(built, memory))
            await asyncio.sleep(0.01)
            assert built.waiting == 1
        with pytest.raises(AdmittedError):
            await judging
    assert built.waiting == 0


async def test_what_is_kept_stays_while_there_is_room_for_it() -> None:
    on = context(Device(), References(2 * GIB), Problems(GIB))
    on.device.idle = GIB
    async with on.ledger.admit(12 * GIB):
        await lane(on)._make_room(0)
    assert (on.device.cleared, on.references.sizes, on.problems.sizes) == (0, [2 * GIB], [GIB])


async def test_idle_memory_goes_first_then_runners_then_problems() -> None:
    on = context(Device(), References(2 * GIB, GIB), Problems(GIB, GIB))
    on.device.idle = 3 * GIB
    left = []
    for need in (11, 13, 14, 15, 16):
        async with on.ledger.admit(need * GIB):
            await lane(on)._make_room(0)
        left.append((on.device.idle // GIB, len(on.references.sizes), len(on.problems.sizes)))
    assert left == [(0, 2, 2), (0, 1, 2), (0, 0, 2), (0, 0, 1), (0, 0, 0)]


@pytest.mark.parametrize(("judged", "cleared"), [(0, 1), (2, 1), (3, 0), (9, 0)])
async def test_idle_memory_that_the_judge_will_need_for_this_one_stays(judged: int, cleared: int) -> None:
    on = context(Device())
    on.device.idle = 3 * GIB
    async with on.ledger.admit(16 * GIB):
        await lane(on)._make_room(judged * GIB)
    assert on.device.cleared == cleared


async def test_runners_that_are_kept_give_way_to_a_large_module_on_the_host() -> None:
    kept = References(2 * GIB, GIB)
    kept.on_host = True
    on = context(Device(), kept, Problems(GIB))
    left = []
    for need in (6, 6.5, 7.5):
        async with on.host.admit(HostNeed(int(need * GIB), int(need * GIB))):
            await lane(on)._make_room(0)
        left.append(len(kept.sizes))
    assert (left, on.problems.sizes) == ([2, 2, 1], [GIB])


async def test_where_nothing_more_can_go_nobody_waits_for_ever() -> None:
    on = context(Device())
    on.device.clear = lambda: None  # no memory becomes free
    on.device.idle = 3 * GIB
    async with asyncio.timeout(1), on.ledger.admit(16 * GIB):
        await lane(on)._make_room(0)


async def test_alone_everything_that_is_kept_goes() -> None:
    on = context(Device(allocated=GIB), References(GIB), Problems(GIB))
    made = lane(on)
    await made._clear_device()
    assert (on.references.sizes, on.problems.sizes, made._room) == ([], [], 15 * GIB)


async def test_memory_that_a_reference_has_leaked_ends_the_judge() -> None:
    on = context(Device(allocated=3 * GIB))
    with pytest.raises(LeakError, match="3072 MiB"):
        await lane(on)._clear_device()
