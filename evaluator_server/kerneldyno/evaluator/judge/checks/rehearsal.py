"""Rehearsals: whether a candidate fails before it needs a device, found out beside the preparations for it.

Such a candidate gets no runner, so no CUDA context is made for it (`runner/rehearsal.py`). A rehearsal is an offer: if
it is late, ends or says nonsense, the candidate gets its runner as if there had been none.
"""

from __future__ import annotations

import asyncio
import logging
import re
from types import TracebackType
from typing import Any, Self

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared import tree, wire
from ...shared.running_problem import RunningProblem
from ...shared.spec import EvalSpec
from ..problems.inputs import Inputs
from ..results import verdict
from ..results.record import Finished
from ..runners.answers import read_error
from ..runners.handle import FAILURES, Runner
from ..runners.pool import Pool

_log = logging.getLogger("kerneldyno.judge")

#: Time limit in seconds of each of the two answers. Most candidates take less than a tenth of a second for both.
_SECONDS = 2.0
#: Languages that are rehearsed: for the others, the import or the first call may compile native code.
_BACKENDS = ("triton", "torch")
_BUILDS = re.compile(r"\b(load_inline|cpp_extension|nvrtc|nvcc)\b")
#: What a rehearsal can find out. Whoever claims to lack memory, for example, may show that on the device.
_VERDICTS = (pb.EvalResult.COMPILE_ERROR, pb.EvalResult.RUNTIME_ERROR)


class Rehearsal:
    """One candidate's rehearsal. It begins when it is entered, and has ended when it is left."""

    def __init__(self, pool: Pool, architecture: str, spec: EvalSpec, problem: RunningProblem) -> None:
        """Create it.

        Args:
            pool: Makes the process.
            architecture: The compute capability of the device, like "9.0"; if it is empty, nothing is rehearsed.
            spec: The evaluation.
            problem: Its problem.
        """
        self._pool = pool
        self._spec = spec
        self._problem = problem
        self._architecture = architecture
        self._runner: Runner | None = None
        self._loading: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        if self._is_worthwhile():
            self._loading = asyncio.create_task(self._load())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def _is_worthwhile(self) -> bool:
        spec = self._spec
        if not self._architecture or spec.candidate.backend not in _BACKENDS:
            return False
        walls = self._pool.walls
        if not (walls.namespaces or walls.filters):  # it could reach the device, and disturb those that are timed
            return False
        if self._pool.is_idle:  # nobody else needs a context, and without a rehearsal the answer comes sooner
            return False
        return not any(map(_BUILDS.search, spec.candidate.texts))

    async def must_succeed(self, inputs: Inputs, limits: verdict.Limits) -> None:
        """Wait for the end. Raises Finished if the candidate fails before it needs a device.

        Args:
            inputs: The inputs of the candidate's first call, of which it gets the shapes.
            limits: What the candidate may have; for the verdict.
        """
        if self._loading is None:
            return
        stage, logs = "load", ""
        try:
            said = await self._loading
            if said is None and self._spec.candidate.backend == "triton":
                stage = "compile"
                said = await self._ask({"op": "call", "symbol": self._problem.symbol, "sketch": self._sketch(inputs)})
        except (*FAILURES, tree.UnsupportedValueError) as failure:
            _log.info("event=no_rehearsal reason=%r", f"{type(failure).__name__}: {str(failure)[:200]}")
            said = None
        finally:
            logs = await self._end()
        result = None if said is None else verdict.raised(stage, read_error(said), limits)
        if result is None or result.outcome not in _VERDICTS:
            self._pool.rehearsals["passed"] += 1
            return
        self._pool.rehearsals["failed"] += 1
        result.logs = logs
        raise Finished(result)

    async def _load(self) -> Any:
        given = self._spec.candidate
        self._runner = await self._pool.spawn(full_queues=False, role="rehearsal", descriptors=[])
        order = {"op": "load", "source": given.kernel_code, "files": given.kernel_files, "backend": given.backend}
        return await self._ask({**order, "architecture": self._architecture})

    async def _ask(self, order: wire.Frame) -> Any:
        assert self._runner is not None
        return (await self._runner.ask(order, _SECONDS)).get("ok")

    def _sketch(self, inputs: Inputs) -> dict[str, Any]:
        """Return what the candidate is constructed and called with. Raises UnsupportedValueError."""
        problem = self._problem
        return {
            "args": problem.init_args,
            "kwargs": problem.init_kwargs,
            "inputs": inputs.structure,
            "specs": [spec.to_json() for spec in inputs.specs],
            "precision": problem.precision,
            "training": problem.training,
            "cotangents": problem.gradients.outputs if problem.gradients else 0,
        }

    async def _end(self) -> str:
        """End the process, and return what it printed."""
        if self._loading is None:
            return ""
        self._loading.cancel()
        await asyncio.gather(self._loading, return_exceptions=True)
        self._loading = None
        if self._runner is None:
            return ""
        return (await self._pool.discard(self._runner)).logs
