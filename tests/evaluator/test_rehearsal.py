"""Rehearsals: which candidates fail in them, and that no other one does. The zygote, walls and processes are real.

The zygote is one for a GPU, so Triton compiles instead of interpreting; a rehearsal uses no device.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.checks import rehearsal
from kerneldyno.evaluator.judge.checks.rehearsal import Rehearsal
from kerneldyno.evaluator.judge.problems.inputs import draw
from kerneldyno.evaluator.judge.results import verdict
from kerneldyno.evaluator.judge.results.record import Finished
from kerneldyno.evaluator.judge.runners.pool import Pool
from kerneldyno.evaluator.shared import wire
from kerneldyno.evaluator.shared.startup import device_environment
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.evaluator.walls import Walls
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, candidate, request, spec

LIMITS = verdict.Limits(1 << 30)
#: A kernel that the compiler refuses, and where it is called.
REFUSED = candidate().replace("tl.program_id(0)", "tl.program_number(0)")
AUTOTUNED = REFUSED.replace(
    "@triton.jit", '@triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 128)], key=["count"])\n@triton.jit'
).replace(", BLOCK=1024", "")
IN_A_FILE = candidate(prologue="from helpers import double").replace(
    "    def forward", "    def twice(self):\n        return double\n\n    def forward"
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A candidate, and what its rehearsal must say: the class of its error, or nothing."""

    source: str
    error: str = ""
    #: Part of the message or of the traceback.
    says: str = ""
    files: tuple[tuple[str, str], ...] = ()
    outcome: str = "COMPILE_ERROR"


def at_import(lines: str) -> str:
    return candidate(prologue=textwrap.dedent(lines))


def calling(lines: str) -> str:
    """A candidate that launches its refused kernel in this way."""
    return REFUSED.replace("        scaled_relu[", f"        {lines}scaled_relu[")


def after(look: str) -> str:
    """Lines that look for a GPU, and have a mistake only where there is none."""
    return f"found = True\ntry: {look}\nexcept Exception: found = False\nWIDTH = 1 if found else HEIGHT"


#: Lines that send an answer in place of the rehearsal, as one that was taken over would.
CLAIM = """
import socket
from kerneldyno.evaluator.shared import wire
for fd in range(3, 64):
    try:
        wire.send(socket.socket(fileno=fd), {{'ok': {}}})
    except Exception:
        pass
"""
FAILS = {
    "missing module": Case(at_import("import fast_kernels"), "ModuleNotFoundError", "fast_kernels"),
    "missing attribute": Case(at_import("from torch.nn import Fused"), "ImportError", "Fused"),
    "missing name": Case(at_import("WIDTH = HEIGHT"), "NameError", "WIDTH = HEIGHT"),
    "wrong call": Case(at_import("len(1)"), "TypeError"),
    "wrong decorator": Case(candidate().replace("@triton.jit", "@triton.jitted"), "AttributeError", "jitted"),
    "missing name in a file": Case(IN_A_FILE, "NameError", "FOUR", (("helpers.py", "double = FOUR\n"),)),
    "syntax of a file": Case(IN_A_FILE, "SyntaxError", "", (("helpers.py", "def double(:\n"),)),
    "refused kernel": Case(REFUSED, "CompilationError", "program_number"),
    "refused kernel, autotuned": Case(AUTOTUNED, "CompilationError", "program_number"),
    "refused kernel, shapes asked": Case(calling("assert h.is_cuda and h.device.type == 'cuda'; "), "CompilationError"),
}
FAILS["missing name in the call"] = Case(candidate(body="x = missing"), "NameError", "missing", outcome="RUNTIME_ERROR")
FAILS["missing name in the constructor"] = Case(
    candidate().replace("self.scale = scale", "self.scale = scales"), "NameError", "scales", outcome="RUNTIME_ERROR"
)
PASSES = {
    "right": Case(candidate()),
    "right, with a file": Case(IN_A_FILE, files=(("helpers.py", "double = 2\n"),)),
    "raises": Case(at_import("raise RuntimeError('no device')")),
    "a mistake after a look at the GPU": Case(at_import("torch.cuda.get_device_properties(0).l2\n")),
    "a mistake after a tensor": Case(at_import("torch.zeros(1, device='cuda').nothing")),
    "a mistake after a look at Triton's driver": Case(
        at_import("triton.runtime.driver.active.get_current_target()\nWIDTH = HEIGHT")
    ),
    "a mistake in a library": Case(at_import("import json\njson.dumps(object())")),
    "another mistake in the call": Case(candidate(body="x.nothing")),
    "missing name after a guessed value": Case(candidate(body="x = missing if x.sum().item() else x")),
    "refused after a guessed value": Case(calling("assert h.sum().item() or True; ")),
    "refused after a guessed property": Case(calling("torch.cuda.get_device_properties(0); ")),
    "refused, with a fallback": Case(
        calling(
            "try: scaled_relu[(1,)](h, y, h.numel(), self.scale, BLOCK=1024)\n        except Exception: return h\n        "
        )
    ),
    "refused, and told otherwise": Case(
        calling(
            "try: scaled_relu[(1,)](h, y, h.numel(), self.scale, BLOCK=1024)\n"
            "        except Exception as error: raise RuntimeError('no') from error\n        "
        )
    ),
    "raises an error with the compiler's name": Case(
        candidate(body="raise type('CompilationError', (Exception,), {})('mine')")
    ),
    "a mistake after a failed look at free memory": Case(at_import(after("torch.cuda.mem_get_info()"))),
    "a mistake after a failed stream": Case(at_import(after("torch.cuda.Stream()"))),
    "a mistake after a look at the driver": Case(
        at_import(after("__import__('ctypes').CDLL('libcuda.so.1').cuInit(0)"))
    ),
    "a mistake after another program": Case(at_import(after("__import__('subprocess').run(['nvidia-smi'])"))),
    "a mistake after a look at a node": Case(at_import(after("open('/dev/nvidia0').close()"))),
    "a mistake in a fallback at import": Case(at_import("try: torch.nope\nexcept AttributeError: WIDTH = HEIGHT")),
    "a mistake in a fallback of a call": Case(
        candidate(body="try: x.fill_(x.numpy()[0])\n        except Exception: x = missing")
    ),
    "a mistake after an operator without a rule": Case(
        candidate(
            body="ok = True\n        try: x.numpy()\n        except Exception: ok = False\n        x = x if ok else missing"
        )
    ),
    "refused in a fallback": Case(
        calling("raise KeyError\n        ").replace(
            "        raise KeyError\n        scaled_relu[",
            "        try: raise KeyError\n        except KeyError: scaled_relu[",
        )
    ),
    "claims to lack memory": Case(at_import(CLAIM.format("{'type': 'MemoryError', 'bases': ['MemoryError']}"))),
    "claims to lack memory of the device": Case(
        at_import(CLAIM.format("{'type': 'NameError', 'bases': ['NameError'], 'message': 'CUDA error: out of memory'}"))
    ),
    "claims to be rejected": Case(at_import(CLAIM.format("{'type': 'X', 'bases': ['NotPlainTensorError']}"))),
    "ends": Case(at_import("import os\nos._exit(0)")),
    "exits": Case(at_import("raise SystemExit(1)")),
    "crashes": Case(at_import("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")),
    "hangs": Case(at_import("import time\ntime.sleep(60)")),
    "writes to the channel": Case(
        at_import("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'x' * 100)\n    except OSError: pass")
    ),
    "builds native code": Case(at_import("from torch.utils.cpp_extension import load_inline\nmissing_name")),
    "has no such class": Case(candidate().replace("class ModelNew", "class ModelOld")),
}


@pytest.fixture(scope="module")
def zygote() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "kerneldyno.evaluator.runner.zygote", "--fd", str(theirs.fileno())]
    environment = {**os.environ, **device_environment("cuda:0")}
    process = subprocess.Popen([*command, "--device", "cuda:0"], pass_fds=[theirs.fileno()], env=environment)
    theirs.close()
    with ours:
        assert wire.receive(ours) is not None
        yield ours
    assert process.wait(30) == 0


@pytest.fixture
async def pool(zygote: socket.socket) -> AsyncIterator[Pool]:
    made = Pool(zygote, CpuDevice(), "cpu:0", spares=1, memory_bytes=1 << 30)
    yield made
    assert made.runners == set()


async def rehearsed(pool: Pool, case: Case, **changes: Any) -> pb.EvalResult | None:
    """Return the verdict of a rehearsal, or None if the candidate goes on."""
    files = [{"path": path, "content": text} for path, text in case.files]
    asked = spec(case.source, kernel_files=files, **changes)
    problem = build_local(asked.problem, CpuDevice(), 1)
    async with Rehearsal(pool, "9.0", asked, problem) as beforehand:
        try:
            await beforehand.must_succeed(draw(problem, CpuDevice(), 0), LIMITS)
        except Finished as finished:
            return finished.result
    return None


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs may keep a test machine's processors busy, and a late rehearsal finds nothing."""
    monkeypatch.setattr(rehearsal, "_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", FAILS)
async def test_who_fails_before_he_needs_a_device_is_told_so(pool: Pool, name: str) -> None:
    case = FAILS[name]
    result = await rehearsed(pool, case)
    assert result is not None
    assert pb.EvalResult.Outcome.Name(result.outcome) == case.outcome
    evidence = result.compile_error if case.outcome == "COMPILE_ERROR" else result.runtime_error.exception
    assert evidence.type == case.error, evidence
    assert case.says in evidence.message + evidence.traceback
    called = case.error == "CompilationError" or case.outcome == "RUNTIME_ERROR"
    assert evidence.stage == ("compile" if called else "load")
    assert pool.rehearsals == {"failed": 1, "passed": 0}
    assert pool.spawns == 0, "a rehearsal is no runner"


@pytest.mark.parametrize("name", PASSES)
async def test_who_might_not_fail_on_the_device_goes_on(pool: Pool, name: str) -> None:
    begin = time.monotonic()
    assert await rehearsed(pool, PASSES[name]) is None
    assert time.monotonic() - begin < 20  # a hanging one is left alone after seconds
    assert pool.rehearsals["failed"] == 0


@pytest.mark.usefixtures("patient")
async def test_the_result_has_what_the_candidate_printed(pool: Pool) -> None:
    result = await rehearsed(pool, Case(at_import("print('so far')\nWIDTH = HEIGHT")))
    assert result is not None
    assert result.logs == "so far\n"


@pytest.mark.parametrize(
    "changes", [{"backend": "cuda"}, {"backend": "cute"}], ids=["compiles at import", "another compiler"]
)
async def test_languages_that_compile_in_other_ways_are_not_rehearsed(pool: Pool, changes: dict[str, Any]) -> None:
    assert await rehearsed(pool, FAILS["missing name"], **changes) is None
    assert sum(pool.rehearsals.values()) == 0


async def test_without_walls_nobody_is_rehearsed(pool: Pool) -> None:
    """The process could open the device, and its work would be blamed on whoever is timed then."""
    pool.walls = Walls(namespaces=False, filters=False)
    assert await rehearsed(pool, FAILS["missing name"]) is None
    assert sum(pool.rehearsals.values()) == 0


async def test_nobody_is_rehearsed_for_an_idle_device(zygote: socket.socket) -> None:
    idle = Pool(zygote, CpuDevice(), "cpu:0", spares=0, memory_bytes=1 << 30)
    assert idle.is_idle
    assert await rehearsed(idle, FAILS["missing name"]) is None
    assert sum(idle.rehearsals.values()) == 0


async def test_who_is_cancelled_leaves_no_process(pool: Pool) -> None:
    asked = spec(PASSES["hangs"].source)
    async with Rehearsal(pool, "9.0", asked, build_local(asked.problem, CpuDevice(), 1)):
        pass
    assert pool.runners == set()


def test_a_judge_gives_no_runner_to_who_fails_early(tmp_path: Path) -> None:
    """Python's own start-up file makes this judge believe that its device is worth it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'kerneldyno.evaluator.judge' in sys.orig_argv:\n"
        "    from kerneldyno.evaluator.devices.cpu import CpuDevice\n"
        "    from kerneldyno.evaluator.judge.checks import rehearsal\n"
        "    CpuDevice.architecture, rehearsal._SECONDS = '9.0', 60.0\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge_harness, "DEVICE", "cpu:0")
        with Judge(environment={"PYTHONPATH": path}) as judge:
            slow = judge.submit(request(candidate(prologue="import time\ntime.sleep(5)")))
            while judge.wait_for(slow, "stage")["stage"] != "STAGE_LOADING":
                pass
            second = judge.evaluate(request(FAILS["missing name"].source))
            first = judge.wait_for(slow, "result")["result"]
    assert (first["outcome"], second["outcome"]) == ("CORRECT", "COMPILE_ERROR")
    assert [span["stage"] for span in second["stages"]] == ["STAGE_PREPARING"]
    assert second["compile_error"]["type"] == "NameError"
