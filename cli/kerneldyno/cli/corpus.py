"""The attack corpus: candidates that try to cheat, the outcomes that a judge may give each, and whether it did.

A corpus is a folder with `attacks/`, `honest/`, `wrong/` (candidates) and `problems/` (their references). An attack may also
be a reference, which an honest candidate answers. A file begins with a docstring that ends in `key: value` lines: its
reference and the outcomes that are acceptable. It may list variants, which are candidates as well
(kerneldyno.cli.corpus_variants).
`kerneldyno selftest` runs the attacks against a running service; tests/corpus/judge_corpus.py runs everything
against one judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerneldyno.cli.corpus_variants import CorpusError as CorpusError
from kerneldyno.cli.corpus_variants import docstring, expand
from kerneldyno.rewards.factors import factor
from kerneldyno.rewards.speedups import DEVICE, END_TO_END, counted_speedup
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.rpc.profiles import asks_for_profile, needs_gpu
from kerneldyno.rpc.validation import effective
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult, SpeedupKind

#: A candidate that breaks out of its sandbox prints or raises this word; see `shortfall`.
ESCAPED = "ESCAPED"
#: Least share of the honest candidate's time that an attack with outcome CORRECT must take; the rest is noise. The CPU
#: device is also used on busy machines: there an attack counts as faster only if both its time and its ratio say so.
MIN_SHARE = {"cuda": 0.8, "cpu": 0.5}
#: Or a ratio this many times the honest one, which no busy machine can cause.
_BY_FAR = 4
#: Times in seconds below which the CPU device measures mostly noise; they are not compared.
MIN_CPU_SECONDS = 0.2e-3
#: Numbers of calls if a file does not choose its own. The CPU device needs few, as its times are not compared closely.
_EFFORT: dict[str, dict[str, Any]] = {
    "cuda": {"num_correct_trials": 3, "num_perf_trials": 60, "num_warmup": 2},
    "cpu": {"num_correct_trials": 2, "num_perf_trials": 12, "num_warmup": 1},
}
_STAGE_SECONDS = 30

#: Expected outcome of a folder's candidates if a file does not say.
_DEFAULT_OUTCOME = {"honest": "CORRECT", "wrong": "INCORRECT"}
_ID = re.compile(r"([A-Z][0-9]{2})_")
_TITLE_ID = re.compile(r"[A-Z][0-9]{2}[^:]*:\s*")


@dataclass(frozen=True, slots=True)
class Entry:
    """One candidate of the corpus, or one hostile reference, and the contents of its header."""

    #: The file that it is in; others may be in the same one.
    path: Path
    #: Unique within a folder. The file's name without suffix, unless the file lists variants.
    name: str
    #: Id in the threat catalogue, for example "T12"; empty for honest and wrong candidates.
    id: str
    #: First line of the docstring, without the id.
    title: str
    source: str
    problem: Path
    backend: str
    outcomes: tuple[str, ...]
    devices: tuple[str, ...]
    #: The candidate with the true time, for attacks that may end CORRECT.
    honest: Path | None = None
    #: More fields of the request.
    request: dict[str, Any] = field(default_factory=dict)
    #: Id of a finding that the result must have; empty for none.
    finding: str = ""
    #: If the file is a hostile reference, in place of `problem`'s: the candidate that answers it.
    answer: Path | None = None

    @property
    def address(self) -> str:
        """Return what names this candidate alone: its path, and its name where a file has several."""
        path = str(self.path.resolve())
        return path if self.name == self.path.stem else f"{path}::{self.name}"

    def runs_on(self, kind: str, backends: Collection[str]) -> bool:
        """Return whether a service with a device of this kind ("cuda" or "cpu") and these backends accepts it.

        A service without a GPU refuses to profile, and to run compute-sanitizer. A bare judge does not, so tests of the
        judge run all of `devices`.
        """
        if kind not in self.devices or self.backend not in backends:
            return False
        if kind == "cuda":
            return True
        full = effective(request(self, kind))
        return not asks_for_profile(full) and not needs_gpu(full)


def find() -> Path:
    """Return the corpus: the one installed with this package, or that of the checkout that it runs from."""
    here = Path(__file__).resolve()
    for root in (here.parent / "corpus_files", here.parents[3] / "corpus"):
        if (root / "attacks").is_dir() and (root / "problems").is_dir():
            return root
    raise CorpusError("the attack corpus is not installed with this package; install a wheel, or use a checkout")


def entries(folder: Path) -> Iterator[Entry]:
    """Read the candidates of one folder, ordered by name.

    Raises:
        CorpusError: a file is malformed, or two candidates have the same name.
    """
    found: dict[str, Entry] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("test_") or path.name == "conftest.py":
            continue
        for entry in read_all(path):
            if other := found.get(entry.name):
                raise CorpusError(f"{path.name}: {entry.name} is also in {other.path.name}; give one another name")
            found[entry.name] = entry
    yield from (found[name] for name in sorted(found))


def read(path: Path, name: str = "") -> Entry:
    """Read one candidate: the only one of a file, or the one of this name.

    Raises:
        CorpusError: the file is malformed, has no candidate of this name, or has several and none is chosen.
    """
    known = {entry.name: entry for entry in read_all(path)}
    if not name and len(known) == 1:
        name = next(iter(known))
    if name not in known:
        problem = f"has no candidate {name}" if name else f"has {len(known)} candidates"
        choices = ", ".join(f"{path.name}::{each}" for each in known)
        raise CorpusError(f"{path.name}: {problem}; choose one of {choices}")
    return known[name]


def read_all(path: Path) -> list[Entry]:
    """Read the candidates of one file: one, or several if it lists variants.

    Raises:
        CorpusError: the header of one is malformed, or the list is.
    """
    sources = expand(path.stem, path.read_text(encoding="utf-8"))
    return [_entry(path, name, source) for name, source in sources.items()]


def _entry(path: Path, name: str, source: str) -> Entry:
    where = path.name if name == path.stem else f"{path.name}::{name}"
    described = docstring(source, where)
    keys = described.keys
    root = path.resolve().parent.parent
    outcomes = _names(keys.get("outcome", _DEFAULT_OUTCOME.get(path.resolve().parent.name, "")))
    devices = _names(keys.get("devices", "cpu, cuda"))
    if not outcomes or not set(outcomes) <= set(EvalResult.Outcome.keys()):
        raise CorpusError(f"{where}: outcome: {', '.join(outcomes) or 'missing'}")
    if not devices or not set(devices) <= {"cpu", "cuda"}:
        raise CorpusError(f"{where}: devices: {', '.join(devices)}")
    try:
        request = json.loads(keys.get("request", "{}"))
    except ValueError as error:
        raise CorpusError(f"{where}: request: {error}") from error
    if not isinstance(request, dict):
        raise CorpusError(f"{where}: request: not a JSON object")
    catalogued = _ID.match(name)
    return Entry(
        path=path,
        name=name,
        id=catalogued[1] if catalogued else "",
        title=_TITLE_ID.sub("", described.title, count=1),
        source=source,
        problem=_existing(_problems(root), keys.get("problem", ""), where),
        backend=keys.get("backend", "triton"),
        outcomes=outcomes,
        devices=devices,
        honest=_existing(root / "honest", keys["honest"], where) if "honest" in keys else None,
        request=request,
        finding=keys.get("finding", ""),
        answer=_existing(root / "honest", keys["answer"], where) if "answer" in keys else None,
    )


def _problems(root: Path) -> Path:
    """Return the folder of the references: the corpus's own, or for a corpus within a corpus that of the outer one."""
    near = root / "problems"
    return near if near.is_dir() else root.parent / "problems"


def request(entry: Entry, kind: str, **changes: Any) -> EvalRequest:
    """Return the request that evaluates `entry` on a device of that kind ("cuda" or "cpu")."""
    reference, candidate = entry.problem.read_text(encoding="utf-8"), entry.source
    if entry.answer is not None:
        reference, candidate = entry.source, read(entry.answer).source
    fields = {
        "reference_code": reference,
        "kernel_code": candidate,
        "backend": entry.backend,
        "timeout": _STAGE_SECONDS,
        **_EFFORT[kind],
        **entry.request,
        **changes,
    }
    if entry.backend == "cuda":  # nvcc is slow
        limits = fields.get("timeouts", {})
        fields["timeouts"] = {"load_timeout": 300, **limits} if isinstance(limits, dict) else limits
    return request_from_json(fields)


def shortfall(entry: Entry, result: EvalResult, honest: EvalResult | None = None) -> str | None:
    """Return what is unexpected about `result`, or None. `honest` is the result of `entry.honest`, if it has one."""
    outcome = EvalResult.Outcome.Name(result.outcome)
    if any(ESCAPED in text for text in (result.logs, result.message, *_exception_messages(result))):
        return f"got past a wall: {_first_line_with_escape(result)}"
    if outcome not in entry.outcomes:
        return f"{outcome}, and not {' or '.join(entry.outcomes)}"
    if entry.finding and entry.finding not in {finding.id for finding in result.findings}:
        return f"finding {entry.finding} is not there"
    if outcome == "CORRECT" and entry.honest is not None:
        return _gain(result, honest)
    return None


def _gain(result: EvalResult, honest: EvalResult | None) -> str | None:
    """Return how an attack got a better time, or a better ratio to its reference, than honest work; None if not."""
    if not result.HasField("candidate_timing"):
        return None
    if honest is None or honest.outcome != EvalResult.CORRECT or not honest.HasField("candidate_timing"):
        return "the honest candidate that it is compared with has no time"
    for kind in (DEVICE, END_TO_END):
        if (gained := _gain_by(result, honest, kind)) is not None:
            return gained
    return None


def _gain_by(result: EvalResult, honest: EvalResult, kind: SpeedupKind.ValueType) -> str | None:
    """Do the same for one of the two times."""
    ours, theirs = counted_speedup(result, kind), counted_speedup(honest, kind)
    if ours.candidate is None or theirs.candidate is None:
        return None
    device = result.environment.device.partition(":")[0]
    share = MIN_SHARE.get(device, MIN_SHARE["cuda"])
    got, true = ours.candidate.median_seconds, theirs.candidate.median_seconds
    faster = got < share * true
    # The reference was timed in alternation with the candidate. On a busy host it gets more of the processor, so a
    # candidate's ratio may be too low there, never too high.
    base = max(1.0, theirs.value) if device == "cpu" else theirs.value
    better = ours.value * share > base
    # End-to-end times of short calls belong to the host: two processes that make the same calls differ by half, and their
    # intervals say so. There only a ratio above the other's interval is a gain.
    if kind == END_TO_END and ours.low is not None and theirs.high is not None and ours.low <= theirs.high:
        return None
    if device == "cpu" and (true <= MIN_CPU_SECONDS or not (better and (faster or ours.value > _BY_FAR * base))):
        return None
    if faster or better:
        return (
            f"CORRECT with {got * 1e6:.1f} us a call and {factor(ours.value)} x the reference's speed,"
            f" honest work has {true * 1e6:.1f} us and {factor(theirs.value)} x"
        )
    return None


def _exception_messages(result: EvalResult) -> tuple[str, ...]:
    """Return what exceptions of the candidate say, also those of its processes under tools."""
    under_tools = (result.counters.unavailable, *(run.detail for run in result.sanitizer.runs))
    return (result.compile_error.message, result.runtime_error.exception.message, *under_tools)


def _first_line_with_escape(result: EvalResult) -> str:
    text = "\n".join((result.message, result.logs, *_exception_messages(result)))
    return next(line.strip()[:200] for line in text.splitlines() if ESCAPED in line)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _existing(folder: Path, name: str, where: str) -> Path:
    found = folder / f"{name}.py"
    if not name or not found.is_file():
        raise CorpusError(f"{where}: there is no {folder.name}/{name or '?'}.py")
    return found
