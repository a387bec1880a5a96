"""An evaluator that believes its candidates and can be cheated: it shows the rewards of training without a judge.

It works like common evaluators: everything runs in one process, shared with the candidate. Five trials compare outputs
with torch.allclose at 1e-2 on the problem's own inputs. Then Python's clock times a loop of calls on one input, whose
outputs are not checked. It runs in a child process (`python trusting.py`: it reads one JSON job a line and writes one
JSON claim a line), and only on programs of this grammar, since it has no sandbox.

It also measures coverage on the CPU, where a node cannot profile: the share of a call that is spent in launches of
Triton kernels, by a clock that was saved before the candidate could replace it. On a GPU the profiler measures
coverage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

_TRIALS, _WARM_UP, _TIMED = 5, 3, 10
#: A clock saved before candidates run: the processor time of this thread, which other work does not change.
_now = time.thread_time


@dataclass(frozen=True, slots=True)
class Claim:
    """The trusting evaluator's belief about a candidate."""

    correct: bool
    #: Reference time over candidate time; 0 unless correct.
    speedup: float
    #: Share of a call's time in Triton kernels, 0 to 1; 0 unless correct.
    coverage: float
    error: str = ""


def believe(jobs: Iterable[tuple[str, str]], device: str = "cpu") -> list[Claim]:
    """Evaluate (reference, candidate) sources, one after the other; return a claim for each."""
    lines = [json.dumps({"reference": reference, "candidate": candidate}) for reference, candidate in jobs]
    environment = {**os.environ, "TRITON_INTERPRET": "1"} if device == "cpu" else dict(os.environ)
    done = subprocess.run(
        [sys.executable, __file__, device], input="\n".join(lines), env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"the trusting evaluator died: {done.stderr[-2000:]}")
    return [Claim(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> int:
    """Serve one job a line, each in a fork, so that one candidate's patches do not affect the next."""
    import torch

    on_cpu = sys.argv[1:] == ["cpu"]
    if on_cpu:
        import triton.runtime.interpreter  # noqa: F401  once, before all forks
    else:
        torch.set_default_device(sys.argv[1])
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    problem, known = None, ""
    for line in sys.stdin:
        job = json.loads(line)
        if on_cpu and (problem is None or job["reference"] != known):
            problem, known = _Problem(job["reference"]), job["reference"]
        child = os.fork()
        if child == 0:
            # A fork cannot use its parent's CUDA context: on a GPU each child runs the reference before the candidate.
            claim = _evaluate(problem or _Problem(job["reference"]), job["candidate"])
            print(json.dumps(asdict(claim)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps(asdict(Claim(False, 0.0, 0.0, f"died: {status}"))), flush=True)
    return 0


class _Problem:
    """A reference, run and timed before any candidate is loaded."""

    def __init__(self, code: str) -> None:
        module = _load("reference", code)
        self.init_inputs = module.get_init_inputs()
        model = _seeded(lambda: module.Model(*self.init_inputs))
        model.to(_device())
        self.trials = [(inputs, model(*inputs)) for inputs in (module.get_inputs() for _ in range(_TRIALS))]
        self.seconds = _time(lambda: model(*self.trials[0][0]))


def _evaluate(problem: _Problem, code: str) -> Claim:
    import torch

    try:
        candidate = _load("candidate", code)
        model = _seeded(lambda: candidate.ModelNew(*problem.init_inputs)).to(_device())
        for inputs, expected in problem.trials:
            if not torch.allclose(expected, model(*inputs), atol=1e-2, rtol=1e-2):
                return Claim(False, 0.0, 0.0, "wrong")
        inputs, _ = problem.trials[0]
        speedup = problem.seconds / max(_time(lambda: model(*inputs)), 1e-9)
        return Claim(True, speedup, _coverage(lambda: model(*inputs)) if _device().type == "cpu" else 0.0)
    except (Exception, SystemExit) as error:
        return Claim(False, 0.0, 0.0, f"{type(error).__name__}: {error}"[:300])


def _time(call: Callable[[], Any]) -> float:
    """Return the mean seconds of a call by time.perf_counter, which the candidate may have replaced."""
    for _ in range(_WARM_UP):
        call()
    _synchronize()
    begin = time.perf_counter()
    for _ in range(_TIMED):
        call()
    _synchronize()
    return (time.perf_counter() - begin) / _TIMED


def _device() -> Any:
    import torch

    return torch.get_default_device()


def _synchronize() -> None:
    import torch

    if _device().type == "cuda":
        torch.cuda.synchronize()


def _coverage(call: Callable[[], Any]) -> float:
    from triton.runtime.interpreter import GridExecutor

    launch, inside = GridExecutor.__call__, 0.0

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        begin = _now()
        try:
            return launch(self, *args, **kwargs)
        finally:
            inside += _now() - begin

    GridExecutor.__call__ = timed
    begin = _now()
    for _ in range(_WARM_UP):
        call()
    return inside / (_now() - begin)


def _load(name: str, code: str) -> ModuleType:
    """Import source text; Triton's interpreter reads a kernel's source from a file."""
    import linecache

    path = f"/tmp/tiny_rl_{os.getpid()}_{name}.py"
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    exec(compile(code, path, "exec"), module.__dict__)
    return module


def _seeded(build: Callable[[], Any]) -> Any:
    import torch

    torch.manual_seed(0)
    return build()


if __name__ == "__main__":
    sys.exit(main())
