"""Judge candidates of the corpus (attacks, honest and wrong ones) on one real judge; a script that the tests also use.

A real builder builds their native code first, as in the evaluator server.

    python -m tests.corpus.judge_corpus [--jobs N] [--repeat N] [--json FILE] [CANDIDATES ...]   (default: all folders)

Each of CANDIDATES is a folder, a file, one candidate of a file (corpus/attacks/T15_counter.py::T15_counter_4), or only
the name of a candidate.

The device is the first GPU if KERNELDYNO_REQUIRE_GPU is set, else the CPU. Exit status 1 if a result is not allowed, or
the judge does not start. kerneldyno.cli.corpus reads the files and decides which results are allowed;
`kerneldyno selftest` uses it as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kerneldyno.cli import corpus
from kerneldyno.cli.corpus import CorpusError, Entry
from kerneldyno.evaluator.server import registry
from kerneldyno.rpc import validation
from kerneldyno.rpc.jsonio import request_to_json, result_from_json
from tests.corpus.judge_with_builder import JudgeWithBuilder
from tests.evaluator.judge_harness import DEVICE, Judge

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
KIND = DEVICE.partition(":")[0]
FOLDERS = ("attacks", "honest", "wrong", "field/attacks", "field/honest")
#: Number of candidates under way at once; while one is timed, the others stand still.
JOBS = 2
#: Time limit of a stage, if the file sets none: other programs may keep a test machine's processors busy for long.
_CPU_STAGE_SECONDS = 60
#: Environment variables of the judge and the zygote, which no candidate may see (E14).
SECRETS = {"KERNELDYNO_TEST_API_TOKEN": "kerneldyno-test-secret-value"}

Result = dict[str, Any]


@cache
def select(folder: str) -> tuple[Entry, ...]:
    """Return the entries of one folder that this device can run, grouped by problem."""
    return tuple(in_order(corpus.entries(CORPUS / folder)))


def has_time_compared(entry: Entry) -> bool:
    """Return whether the time of an attack is compared with that of honest work."""
    return entry.honest is not None


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that this device can run, grouped by problem, because a judge remembers few problems.

    Entries in a language that is not installed are left out.
    """
    offered = registry.backend_names()
    chosen = [entry for entry in entries if KIND in entry.devices and entry.backend in offered]
    return sorted(chosen, key=lambda entry: (entry.problem.name, entry.name))


def named(argument: str) -> list[Entry]:
    """Return the entries that one argument of the command line names.

    Raises:
        CorpusError: the argument names none, or a file is malformed.
    """
    path, _, name = argument.partition("::")
    if Path(path).is_dir() and not name:
        return list(corpus.entries(Path(path)))
    if Path(path).is_file():
        return [corpus.read(Path(path), name)] if name else corpus.read_all(Path(path))
    found = [entry for folder in FOLDERS for entry in corpus.entries(CORPUS / folder) if entry.name == argument]
    if not found:
        raise CorpusError(f"{argument}: there is no such file, folder or candidate; candidates are in {CORPUS.name}/")
    return found


def build(entry: Entry) -> Result:
    """Return the effective request for `entry`, in the form that a judge reads."""
    timed = entry.path.resolve().parent.name != "wrong"
    changes: dict[str, Any] = {} if timed or "run_performance" in entry.request else {"run_performance": False}
    if KIND == "cpu" and not {"timeout", "timeouts"} & entry.request.keys():
        changes["timeout"] = _CPU_STAGE_SECONDS
    asked = corpus.request(entry, KIND, **changes)
    violations = validation.validate(asked, profiling=True, id_required=False)
    if violations:
        raise CorpusError(f"{entry.name}: {violations[0].field}: {violations[0].description}")
    return request_to_json(validation.effective(asked))


def expected(entry: Entry, result: Result, honest_result: Result | None = None) -> str | None:
    """Return why `result` is not allowed for `entry`, or None if it is."""
    honest = None if honest_result is None else result_from_json(honest_result)
    return corpus.shortfall(entry, result_from_json(result), honest)


class Run:
    """A run of entries on one judge, `jobs` at a time and in their order, with its results.

    It also runs the honest candidates that attacks are compared with.
    """

    def __init__(self, judge: Judge, entries: Iterable[Entry], jobs: int = JOBS) -> None:
        self.judge = judge
        self._jobs = jobs
        #: By the address of the entry.
        self._results: dict[str, Result] = {}
        self._under_way: dict[str, tuple[str, float]] = {}
        #: Wall-clock seconds that each entry took, including its waits for others.
        self.seconds: dict[str, float] = {}
        self._queue: dict[str, Entry] = {}
        for entry in entries:
            self._queue.setdefault(entry.address, entry)
            if entry.honest is not None:
                honest = corpus.read(entry.honest)
                self._queue.setdefault(honest.address, honest)

    def result(self, entry: Entry) -> Result:
        """Return the result of one entry; wait for it if it is not there yet."""
        address = entry.address
        while address not in self._results:
            while self._queue and len(self._under_way) < self._jobs:
                self._submit(next(iter(self._queue)))
            if not any(address == each for each, _ in self._under_way.values()) and address in self._queue:
                self._submit(address)
            self._receive()
        return self._results[address]

    def shortfall(self, entry: Entry) -> str | None:
        """Return why the result of one entry is not allowed, or None if it is."""
        result = self.result(entry)
        honest = None if entry.honest is None else self.result(corpus.read(entry.honest))
        return expected(entry, result, honest)

    def shown(self, entry: Entry) -> str:
        """Return the whole result of one entry as text; pytest would abbreviate an object."""
        return json.dumps(self.result(entry), indent=1)

    def _submit(self, address: str) -> None:
        entry = self._queue.pop(address)
        self._under_way[self.judge.submit(build(entry))] = (address, time.monotonic())

    def _receive(self) -> None:
        frame = self.judge._next()
        if frame["op"] == "result" and frame["attempt"] in self._under_way:
            address, begun = self._under_way.pop(frame["attempt"])
            self._results[address] = frame["result"]
            self.seconds[address] = time.monotonic() - begun


def row(run: Run, entry: Entry) -> Result:
    """Return one line of the report, as an object."""
    result, why = run.result(entry), run.shortfall(entry)
    return {
        "candidate": _shown(entry),
        "outcome": result["outcome"],
        "findings": [finding["id"] for finding in result.get("findings", ())],
        "evidence": {finding["id"]: finding.get("evidence", "") for finding in result.get("findings", ())},
        "speedup": result.get("speedup", 0.0),
        "median_seconds": result.get("candidate_timing", {}).get("median_seconds"),
        "end_to_end": {
            "speedup": result.get("end_to_end_speedup"),
            "interval": result.get("end_to_end_speedup_interval"),
            "median_seconds": result.get("candidate_end_to_end", {}).get("median_seconds"),
        },
        "seconds": round(run.seconds[entry.address], 3),
        "ok": why is None,
        "why": why,
        "message": result.get("message", ""),
        "stages": {span["stage"]: span["duration"] for span in result.get("stages", ())},
        # The cause of a rare failure may be visible only in its own result.
        "result": None if why is None else result,
    }


def _shown(entry: Entry) -> str:
    """Return a candidate's name with its folder; the folder is relative to corpus/ if it is in there."""
    folder = entry.path.resolve().parent
    return str((folder.relative_to(CORPUS) if folder.is_relative_to(CORPUS) else Path(folder.name)) / entry.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the candidates that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CANDIDATES", default=[str(CORPUS / name) for name in FOLDERS])
    parser.add_argument("--jobs", type=int, default=JOBS, help="candidates under way at once")
    parser.add_argument("--repeat", type=int, default=1, help="judge all of them this many times, on the same judge")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one JSON object a line")
    chosen = parser.parse_args(arguments)
    if min(chosen.jobs, chosen.repeat) < 1:
        parser.error("--jobs and --repeat are at least 1")
    try:
        candidates = [entry for argument in chosen.names for entry in named(argument)]
    except CorpusError as error:
        parser.error(str(error))
    entries = in_order(candidates)
    begun = time.monotonic()
    rows: list[Result] = []
    if chosen.json is not None:
        chosen.json.write_text("", encoding="utf-8")
    with JudgeWithBuilder("--lanes", str(chosen.jobs), "--spares", str(chosen.jobs), environment=SECRETS) as judge:
        if judge.ready["op"] != "ready":
            print(judge.ready)
            return 1
        for _ in range(chosen.repeat):
            run = Run(judge, entries, chosen.jobs)
            for entry in entries:
                rows.append(row(run, entry))
                _show(rows[-1])
                if chosen.json is not None:
                    with chosen.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    bad = [each for each in rows if not each["ok"]]
    others = len(candidates) - len(entries)
    skipped = f", {others} not for this device or in a language that is not installed" if others else ""
    print(f"{len(rows)} on {KIND} in {time.monotonic() - begun:.1f} s: {len(bad)} not as they should be{skipped}")
    for each in bad:
        print(f"  {each['candidate']}: {each['why']}")
    return 1 if bad else 0


def _show(each: Result) -> None:
    time_of_call = "" if each["median_seconds"] is None else f" {each['median_seconds'] * 1e6:.1f}us"
    verdict = f"{each['outcome']}{time_of_call} {','.join(each['findings'])}".rstrip()
    state = "ok " if each["ok"] else "BAD"
    print(f"{state} {each['candidate']:<48} {verdict:<32} {each['why'] or each['message']}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
