"""Run the corpus of attacks on a conventional evaluator and on KernelDyno, side by side.

`python -m benchmarks.attacks [--only 'T0*'] [--device auto] [--out FILE]` prints a Markdown table for
docs/benchmarks.md. The conventional evaluator is benchmarks/inprocess.py; each candidate gets a new process, which
benchmarks/contained.py contains. KernelDyno is one judge of this device, driven by tests/corpus/judge_corpus.py. Exit
status 1 if an attack succeeds against KernelDyno.

An attack succeeds in one of three ways:

- It is called correct although it must not be.
- It is called correct, and takes less than 0.8 of the time of the honest candidate that it is compared with, or has
  more than 1.25 times the speedup of that candidate (on the CPU 0.5 and 4).
- It reports that it escaped.

Harm is counted separately: the attack killed the process of its evaluator, left it unable to evaluate the next
candidate, or made it wait until the limit. Where candidates share a process, harm spoils the verdicts of other
candidates.
"""

from __future__ import annotations

import argparse
import fcntl
import fnmatch
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

#: Limits for attacks that are called correct: least share of the honest time, largest multiple of the honest speedup.
_BOUNDS = {"cuda": (0.8, 1.25), "cpu": (0.5, 4.0)}
#: In seconds: on the CPU, times of shorter honest calls are mostly noise, so attacks are not compared with them.
_CPU_SECONDS = 0.2e-3
#: More time for CUDA candidates: nvcc takes half a minute, which is not the evaluator's fault.
_COMPILING_SECONDS = 240.0
_CPU_MEMORY_BYTES = 8 << 30
#: Attacks that only exhaust resources. The conventional evaluator does not run them.
_BOMBS = "E15_*"
_ESCAPED = "ESCAPED"


@dataclass(slots=True)
class Seen:
    """Result of one candidate in one evaluator."""

    outcome: str
    correct: bool = False
    seconds: float | None = None
    speedup: float | None = None
    escaped: bool = False
    #: Harm to the evaluator's process; empty if there is none.
    harm: str = ""

    def success(self, allowed: Sequence[str], honest: Seen | None, kind: str) -> str:
        """Return how the attack succeeded; empty if it did not."""
        if self.escaped:
            return "escaped"
        if not self.correct:
            return ""
        if "CORRECT" not in allowed:
            return "taken for correct"
        if honest is None or honest.seconds is None or self.seconds is None or self.speedup is None:
            return ""
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            return "no time"
        if kind == "cpu" and honest.seconds < _CPU_SECONDS:
            return ""
        share, multiple = _BOUNDS[kind]
        if self.seconds < share * honest.seconds:
            return f"{honest.seconds / self.seconds:.1f} times too fast"
        if honest.speedup and self.speedup > multiple * honest.speedup:
            return f"speedup {self.speedup / honest.speedup:.1f} times too high"
        return ""

    def cell(self) -> str:
        """Return the text of its cell in the table."""
        speedup = "" if self.speedup is None or not self.correct else f" {self.speedup:.2f}x"
        return f"{self.outcome}{speedup}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """The needed fields of a corpus entry."""

    name: str
    title: str
    #: Unique name: Entry.address.
    address: str
    source: str
    backend: str
    #: Path of the reference.
    problem: str
    outcomes: tuple[str, ...]
    #: Address of the honest candidate to compare with.
    honest: str | None
    #: True for an attack on the older, looser tolerance.
    loose: bool


class _Turn:
    """A file lock that lets one process measure times at a time. A process that ends in any way releases it."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR)

    def __enter__(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="Attack two evaluators and compare the results.")
    parser.add_argument("--only", action="append", metavar="GLOB", help="pattern of names; can be given more than once")
    parser.add_argument("--folders", nargs="+", default=["attacks"], choices=("attacks", "honest", "wrong"))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--limit", type=int, default=sys.maxsize, help="largest number of candidates")
    parser.add_argument("--jobs", type=int, help="concurrent candidates (4 on a GPU, else 1); timing is exclusive")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time limit of the conventional evaluator for one candidate"
    )
    parser.add_argument("--skip", choices=("inprocess", "kerneldyno"), help="leave one evaluator out")
    parser.add_argument(
        "--tolerance", type=float, default=1e-4, help="tolerance of the conventional evaluator: 1e-4, or the older 1e-2"
    )
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    kind = options.device
    if kind == "auto":  # do not ask torch: it would open CUDA here, and then forks could not use CUDA
        kind = "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    jobs = options.jobs or (4 if kind == "cuda" else 1)
    if kind == "cuda":
        os.environ["KERNELDYNO_REQUIRE_GPU"] = "1"
        os.environ.pop("TRITON_INTERPRET", None)
    else:
        os.environ.pop("KERNELDYNO_REQUIRE_GPU", None)
        os.environ.update(TRITON_INTERPRET="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    # Reading the corpus imports gRPC. A process that forks must not have gRPC, so another process reads the corpus.
    with multiprocessing.get_context("spawn").Pool(1) as reader:
        known = reader.apply(_read, (options.folders,))
    entries = [
        entry
        for folder in options.folders
        for entry in known[folder]
        if not options.only or any(fnmatch.fnmatch(entry.name, pattern) for pattern in options.only)
    ][: options.limit]
    honest = {entry.address: entry for entry in known["honest"]}
    begin = time.monotonic()
    usual = {} if options.skip == "inprocess" else _attack_usual(entries, honest, kind, jobs, options)
    usual_seconds, begin = time.monotonic() - begin, time.monotonic()
    ours = {} if options.skip == "kerneldyno" else _attack_kerneldyno(entries, min(jobs, 2))
    lines, successes = _table(entries, usual, ours, kind)
    lines += ["", f"In process: {usual_seconds:.0f} s. KernelDyno: {time.monotonic() - begin:.0f} s."]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if successes else 0


def _read(folders: Sequence[str]) -> dict[str, list[Candidate]]:
    """Return the candidates of the corpus for this device, by folder; the honest ones are always included."""
    from kerneldyno.cli import corpus
    from tests.corpus import judge_corpus

    return {
        folder: [
            Candidate(
                entry.name,
                entry.title,
                entry.address,
                entry.source,
                entry.backend,
                str(entry.problem),
                entry.outcomes,
                None if entry.honest is None else corpus.read(entry.honest).address,
                entry.request.get("tolerance", {}).get("preset") == "PRESET_LOOSE",
            )
            for entry in judge_corpus.select(folder)
        ]
        for folder in {*folders, "honest"}
    }


def _attack_usual(
    entries: Sequence[Candidate], honest: dict[str, Candidate], kind: str, jobs: int, options: argparse.Namespace
) -> dict[str, Seen]:
    """Judge all entries, and the honest candidates that they are compared with, with the conventional evaluator."""
    import torch
    import triton.language  # noqa: F401  imported once, for all processes

    from benchmarks import inprocess
    from benchmarks.contained import Contained, Ended

    device = torch.device(kind)
    memory = _CPU_MEMORY_BYTES if kind == "cpu" else None
    seen: dict[str, Seen] = {}
    prints: dict[str, list[float]] = {}
    queue: dict[str, Candidate] = {}
    for entry in entries:
        if fnmatch.fnmatch(entry.name, _BOMBS):
            seen[entry.address] = Seen("not run")
            continue
        if entry.honest:
            queue.setdefault(entry.honest, honest[entry.honest])
        queue[entry.address] = entry
    problems = {entry.problem: Path(entry.problem).read_text(encoding="utf-8") for entry in queue.values()}
    with tempfile.NamedTemporaryFile() as lock:
        running: list[tuple[str, Contained]] = []

        def finish(address: str, ended: Ended) -> None:
            if address in problems:
                prints[address] = ended.answer or []
                return
            seen[address] = _judge_usual(ended, prints[queue[address].problem])
            print(
                f"in process: {queue[address].name}: {seen[address].cell()} {seen[address].harm}".rstrip(),
                file=sys.stderr,
            )

        def work(wanted: str) -> tuple[str, Contained]:
            if wanted in problems:
                return wanted, Contained(lambda: inprocess.fingerprint(problems[wanted], device), options.seconds)
            entry, turn = queue[wanted], _Turn(lock.name)
            # Attacks on the older tolerance are judged with it; other attacks show the effect of the newer one.
            tolerance = 1e-2 if entry.loose else options.tolerance
            limit = options.seconds + (_COMPILING_SECONDS if entry.backend == "cuda" else 0)

            def evaluate() -> dict[str, Any]:
                if entry.backend == "cuda" and kind == "cuda":  # compiling for all architectures would take minutes
                    major, minor = torch.cuda.get_device_capability()
                    arch = f"{major}.{minor}{'a' if major == 9 else ''}"
                    os.environ.update(TORCH_CUDA_ARCH_LIST=arch, MAX_JOBS="4")
                return inprocess.evaluate(problems[entry.problem], entry.source, entry.backend, device, tolerance, turn)

            contained = Contained(evaluate, limit, memory_bytes=memory, keep=[turn.descriptor])
            os.close(turn.descriptor)
            return wanted, contained

        for stage in (problems, queue):
            waiting = list(stage)
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(work(waiting.pop(0)))
                for address, contained in list(running):
                    if ended := contained.poll():
                        running.remove((address, contained))
                        if ended.how == "hung":  # perhaps while the others waited for it to release the lock
                            for _, other in running:
                                other.extend(options.seconds)
                        finish(address, ended)
    return seen


def _judge_usual(ended: Any, clean: list[float]) -> Seen:
    text = ended.log
    answer = ended.answer
    if not isinstance(answer, dict):
        return Seen(ended.how, escaped=_ESCAPED in text, harm="hung" if ended.how == "hung" else "its process is gone")
    correct = answer["correct"] is True
    outcome = "correct" if correct else "incorrect" if answer["compiled"] else "not compiled"
    if not correct and not answer["message"].startswith("outputs of trial"):
        outcome = answer["message"].partition(":")[0] if answer["compiled"] else outcome
    left = answer["fingerprint"]
    same = len(left) == len(clean) and all(
        math.isclose(one, other, rel_tol=1e-3) for one, other in zip(left, clean, strict=True)
    )
    return Seen(
        outcome,
        correct,
        answer.get("mean_seconds"),
        answer.get("speedup"),
        escaped=_ESCAPED in text + answer["message"],
        harm="" if same else "reference spoiled",
    )


def _attack_kerneldyno(chosen: Sequence[Candidate], jobs: int) -> dict[str, Seen]:
    """Judge the same candidates with one judge of KernelDyno."""
    from kerneldyno.cli import corpus
    from tests.corpus import judge_corpus  # imports gRPC; from now on this process does not fork
    from tests.evaluator.judge_harness import Judge

    entries = [entry for one in chosen for entry in judge_corpus.named(one.address)]
    seen: dict[str, Seen] = {}
    with Judge("--lanes", str(jobs), "--spares", str(jobs)) as judge:
        assert judge.ready["op"] == "ready", judge.ready
        run = judge_corpus.Run(judge, entries, jobs)
        for entry in entries:
            for each in (entry, *([corpus.read(entry.honest)] if entry.honest else [])):
                seen.setdefault(each.address, _judge_ours(run.result(each)))
            print(f"kerneldyno: {entry.name}: {seen[entry.address].cell()}", file=sys.stderr)
    return seen


def _judge_ours(result: dict[str, Any]) -> Seen:
    findings = ",".join(finding["id"] for finding in result.get("findings", ()))
    raised = [result.get("compile_error", {}), result.get("runtime_error", {}).get("exception", {})]
    text = "\n".join([result.get("logs", ""), result["message"], *(error.get("message", "") for error in raised)])
    return Seen(
        result["outcome"] + (f" ({findings})" if findings else ""),
        result["outcome"] == "CORRECT",
        result.get("candidate_timing", {}).get("median_seconds"),
        result.get("speedup") if "candidate_timing" in result else None,
        escaped=_ESCAPED in text,
        harm="judge failed" if result["outcome"] == "INFRASTRUCTURE_ERROR" else "",
    )


def _table(
    entries: Sequence[Candidate], usual: dict[str, Seen], ours: dict[str, Seen], kind: str
) -> tuple[list[str], int]:
    """Return the lines of the table, and how many attacks succeeded against KernelDyno."""
    lines = [
        "| candidate | what | in process | succeeds | KernelDyno | succeeds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    totals = {"in process": Counter[str](), "KernelDyno": Counter[str]()}
    for entry in entries:
        cells = []
        for name, seen in zip(totals, (usual, ours), strict=True):
            one = seen.get(entry.address)
            if one is None or one.outcome == "not run":
                totals[name]["not run"] += 1
                cells += ["not run", ""]
                continue
            honest = seen.get(entry.honest) if entry.honest else None
            success = one.success(entry.outcomes, honest, kind)
            totals[name]["run"] += 1
            totals[name]["succeeded"] += bool(success)
            totals[name]["harmed its process"] += bool(one.harm and not success)
            word = f"**yes**: {success}" if success else f"no; {one.harm}" if one.harm else "no"
            cells += [one.cell(), word]
        title = entry.title.replace("|", "\\|").rstrip(".")
        lines.append(f"| {entry.name} | {title} | {' | '.join(cells)} |")
    lines += ["", "| | in process | KernelDyno |", "| --- | --- | --- |"]
    for what in ("run", "succeeded", "harmed its process", "not run"):
        lines.append(f"| {what} | {' | '.join(str(count[what]) for count in totals.values())} |")
    return lines, totals["KernelDyno"]["succeeded"]


if __name__ == "__main__":
    sys.exit(main())
