"""Which libraries a candidate wants to have built, as far as that can be found out without a device.

The libraries of `kernel_files` are known. For others a scout runs the candidate's Python. It is told the arguments of
the constructor and the shapes of the inputs (a `sketch`, made in another process, since the reference stays secret).
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import OrderedDict
from typing import Any

from ..judge.runners.handle import FAILURES
from ..judge.runners.pool import Pool
from ..shared.native_build import NativeBuild, of_files
from ..shared.spec import EvalSpec, ProblemSpec
from ..shared.tracebacks import ErrorDescription

_log = logging.getLogger("kerneldyno.builder")

#: Sources that may build extensions.
_BUILDS = re.compile(r"\b(load_inline|cpp_extension)\b")
#: Time limits of a scout and of a sketch, in seconds.
_SCOUT_SECONDS = 20.0
_MOST_SKETCHES = 256
#: Most libraries of one candidate, besides `native`.
_MOST_BUILDS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Scouted:
    """What a scout found: libraries, and the candidate's own error if a failed build caused one."""

    builds: list[NativeBuild]
    error: ErrorDescription | None = None


class Planner:
    """Finds the libraries of candidates. Its processes take no places of builds, because a hostile one may hang."""

    def __init__(self, pool: Pool, architecture: str) -> None:
        """Create it. `architecture` is the GPU's, as in TORCH_CUDA_ARCH_LIST."""
        self._pool = pool
        self._architecture = architecture
        self._sketches: OrderedDict[str, dict[str, Any] | None] = OrderedDict()

    async def scout(self, spec: EvalSpec, failures: dict[str, str]) -> Scouted:
        """Return the libraries that a candidate wants.

        Args:
            spec: The evaluation.
            failures: By digest of a build, the compilers' messages; these builds fail in the scout, too.
        """
        given, problem = spec.candidate, spec.problem
        native = of_files(given.kernel_files, given.cuda_flags, given.cpp_flags, given.libraries)
        known = [] if native is None else [native]
        sources = [given.kernel_code, *(text for path, text in given.kernel_files if path.endswith(".py"))]
        if not any(map(_BUILDS.search, sources)) and not failures:
            return Scouted(known)
        order = {
            "op": "scout",
            "source": given.kernel_code,
            "files": given.kernel_files,
            "native": None if native is None else native.to_json(),
            "symbol": f"{problem.entry_point}New" if problem.toolkit == "kernelbench" else problem.entry_point,
            "sketch": await self._sketch(problem),
            "failures": failures,
            "architecture": self._architecture,
        }
        try:
            answer = await self._ask("scout", order)
            found = [NativeBuild.from_json(said) for said in answer["builds"][:_MOST_BUILDS]]
            # Without a failed build there is no such error; the candidate could have written the answer.
            error = ErrorDescription.from_json(answer["error"]) if failures and answer["error"] is not None else None
        except (*FAILURES, LookupError, TypeError, ValueError) as failure:
            _log.info("event=scout_failed reason=%r", f"{type(failure).__name__}: {str(failure)[:200]}")
            return Scouted(known)
        return Scouted(list(dict.fromkeys([*known, *found])), error)

    async def _sketch(self, problem: ProblemSpec) -> dict[str, Any] | None:
        key = problem.key()
        if key not in self._sketches:
            sketch = None
            try:
                sketch = (await self._ask("sketch", {"op": "sketch", "problem": problem.to_plain()})) or None
            except FAILURES as failure:
                _log.info("event=sketch_failed reason=%s", type(failure).__name__)
            self._sketches[key] = sketch
            if len(self._sketches) > _MOST_SKETCHES:
                self._sketches.popitem(last=False)
        self._sketches.move_to_end(key)
        return self._sketches[key]

    async def _ask(self, role: str, order: dict[str, Any]) -> Any:
        runner = await self._pool.spawn(role=role, descriptors=[])
        try:
            return (await runner.ask(order, _SCOUT_SECONDS)).get("ok")
        finally:
            await self._pool.discard(runner)
