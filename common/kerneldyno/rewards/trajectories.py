"""Trajectory files: every turn of every episode with its reward and its whole result, one JSON object per line.

A rollout or a trainer appends turns as they are rewarded; analyses and cold starts read them. Each line carries the
format's version, is complete in itself, and may come in any order, so `cat` can join files. A process that dies leaves
at most one unfinished line: the reader reports it, and the next writer removes it. docs/rewards.md describes the
format.
"""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from google.protobuf.json_format import MessageToDict

from kerneldyno.rewards.extraction import answer_of
from kerneldyno.rewards.speedups import NAMES, counted_speedup
from kerneldyno.rpc import installing
from kerneldyno.rpc.input_files import MAX_LINE_BYTES, numbered_lines, open_input
from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.rpc.output_files import append_whole
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import Extraction, StreamRewardsResponse

#: Version of the format. A reader refuses a greater one, and ignores fields that it does not know.
VERSION = 1

_TAIL_BYTES = 1 << 16
_ROW_GROUP = 1000


class TrajectoryFileError(Exception):
    """The file is not a trajectory file, is of a later release, or another process is writing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One turn. `from_answer` fills in what the reward service knows; the caller supplies the rest."""

    #: Name of the prompt and the occasion; exactly the samples that are compared with each other share it.
    group: str
    #: Index of the sample in its group, and of the turn in its episode; both start at 0.
    sample: int
    turn_index: int
    #: Name of the problem, whatever its source.
    problem_id: str = ""
    #: Exact chat messages that the model saw; empty if they are not kept.
    messages: Sequence[Mapping[str, Any]] = field(default_factory=list)
    #: The model's answer, and the candidate in it.
    response: str = ""
    kernel_code: str = ""
    #: Contents of the candidate's other files, by path; the caller supplies them.
    kernel_files: Mapping[str, str] = field(default_factory=dict)
    #: Name of the outcome, for example "CORRECT".
    outcome: str = ""
    #: None if there is no reward, which differs from 0.
    reward: float | None = None
    #: Terms of the reward, by their names in RewardParts.
    parts: Mapping[str, float] = field(default_factory=dict)
    #: Reference time / candidate time, by the time that counts; 0 unless CORRECT and timed. Then both ends of its 95 %
    #: interval; None without one, and then reports do not count it as a sure win. `result` has the other speedup.
    speedup: float = 0.0
    speedup_low: float | None = None
    speedup_high: float | None = None
    #: Which time counts: "device" or "end_to_end"; empty if not timed, and in files of earlier releases, which use
    #: device time.
    speedup_kind: str = ""
    #: Share of device time in the candidate's own kernels; None if not profiled.
    coverage: float | None = None
    #: Text that the model receives about this turn.
    feedback: str = ""
    #: Durations in seconds, by name, for example "generate" and "reward".
    timings: Mapping[str, float] = field(default_factory=dict)
    model: str = ""
    #: Sampling parameters, for example {"temperature": 1.0}.
    sampling: Mapping[str, Any] = field(default_factory=dict)
    #: Identity of the evaluated work (EvalResult.digest).
    digest: str = ""
    #: proto-JSON of the verdict and of the second measurement, and how the candidate was found ("method", "note").
    result: Mapping[str, Any] | None = None
    remeasured: Mapping[str, Any] | None = None
    extraction: Mapping[str, Any] | None = None
    #: Time of recording: ISO 8601, UTC.
    recorded_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    #: Any other JSON that the caller wants to keep.
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_answer(cls, answer: StreamRewardsResponse, **own: Any) -> TurnRecord:
        """Return the record of the turn that `answer` is about; `own` adds or overrides fields."""
        verdict = answer.result
        counted = counted_speedup(verdict)
        known: dict[str, Any] = {
            "group": answer.group,
            "sample": answer.sample,
            "turn_index": answer.turn_index,
            "outcome": EvalResult.Outcome.Name(verdict.outcome),
            "reward": answer.reward if answer.HasField("reward") else None,
            "parts": _plain(answer.parts),
            "speedup": counted.value,
            "speedup_low": counted.low,
            "speedup_high": counted.high,
            "speedup_kind": NAMES.get(verdict.speedup_kind, ""),
            "coverage": verdict.coverage if verdict.HasField("coverage") else None,
            "feedback": answer.feedback,
            "digest": verdict.digest,
            "result": result_to_json(verdict),
            "remeasured": result_to_json(answer.remeasured) if answer.HasField("remeasured") else None,
        }
        if answer.HasField("extraction"):
            method = Extraction.Method.Name(answer.extraction.method)
            known["kernel_code"] = answer.extraction.kernel_code
            known["extraction"] = {"method": method, "note": answer.extraction.note}
        return cls(**known | own)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The turns of one episode, ordered by index; some may be missing if a run was interrupted."""

    group: str
    sample: int
    turns: tuple[TurnRecord, ...]

    @property
    def best(self) -> TurnRecord | None:
        """Return the turn with the largest reward, the first of equals; None if no turn has one."""
        rewarded = [turn for turn in self.turns if turn.reward is not None]
        return max(rewarded, key=lambda turn: turn.reward or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class Recording:
    """Contents of a file. `note` describes a defect in one sentence, and is empty if there is none."""

    turns: list[TurnRecord]
    note: str

    def trajectories(self) -> list[Trajectory]:
        """Return the episodes, ordered by their first line."""
        return trajectories(self.turns)


class TrajectoryWriter:
    """Append turns to a file, each in one piece; an existing file is continued.

        with TrajectoryWriter("run.jsonl") as writer:
            writer.write(TurnRecord.from_answer(answer, response=text, messages=prompt))

    A line has been passed to the operating system when `write` returns, and is on disk when the block ends. Only one
    process may write a file at a time. If a line cannot be completed (a full disk), no part of it is left and OSError
    is raised.

    Raises:
        TrajectoryFileError: another process writes the file, or it does not end in a turn, complete or cut off.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        #: Length in bytes of the unfinished line of an interrupted run that was removed; 0 if there was none.
        self.dropped_bytes = 0
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self._lock()
            self._mend()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def write(self, turn: TurnRecord) -> None:
        """Append one turn.

        Raises:
            ValueError: a number cannot be written as JSON.
            OSError: the disk does not take the line.
        """
        line = json.dumps({"version": VERSION} | dataclasses.asdict(turn), allow_nan=False).encode() + b"\n"
        append_whole(self._file, line)

    def close(self) -> None:
        """Put everything on disk and release the file. A second call does nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TrajectoryFileError(f"{self.path} is being written by another process") from error

    def _mend(self) -> None:
        """Remove an unfinished last line, or complete it if only its newline is missing."""
        size = os.fstat(self._file).st_size
        tail = b""
        while len(tail) < size and b"\n" not in tail:
            if len(tail) > MAX_LINE_BYTES:
                raise TrajectoryFileError(f"{self.path} does not end in a turn; check that it is a trajectory file")
            step = min(_TAIL_BYTES, size - len(tail))
            tail = os.pread(self._file, step, size - len(tail) - step) + tail
        last = tail.rpartition(b"\n")[2]
        if not last:
            return
        if not last.startswith(b'{"version": '[: len(last)]):
            raise TrajectoryFileError(f"{self.path} does not end in a turn; check that it is a trajectory file")
        try:
            parse_line(last)
        except ValueError as error:
            if last.endswith(b"}") and _is_json(last):  # complete, but not readable: perhaps of a later release
                raise TrajectoryFileError(f"{self.path}, last line: {error}") from error
            os.ftruncate(self._file, size - len(last))
            self.dropped_bytes = len(last)
        else:
            append_whole(self._file, b"\n")


def read(path: str | os.PathLike[str]) -> Recording:
    """Return all turns of a file, in its order.

    Raises:
        TrajectoryFileError, OSError: as for `scan`.
    """
    notes: list[str] = []
    turns = list(scan(path, notes))
    return Recording(turns, "".join(notes))


def scan(path: str | os.PathLike[str], notes: list[str] | None = None) -> Iterator[TurnRecord]:
    """Yield the turns of a file one by one.

    Args:
        path: the file.
        notes: receives a sentence if the last line is cut off.

    Raises:
        TrajectoryFileError: a line is not a turn, or is of a later version; the message names the line.
        OSError: the file cannot be read.
    """
    with open_input(Path(path)) as file:
        for number, line in numbered_lines(file):
            if len(line) > MAX_LINE_BYTES:
                raise TrajectoryFileError(f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
            try:
                yield parse_line(line)
            except ValueError as error:
                if line.endswith(b"\n"):
                    raise TrajectoryFileError(f"{path}, line {number}: {error}") from error
                if notes is not None:
                    notes.append(f"line {number} is cut off after {len(line)} bytes: its writer was interrupted")


def trajectories(turns: Iterable[TurnRecord]) -> list[Trajectory]:
    """Group `turns` into episodes. If a run was repeated, the last turn with the same place counts."""
    episodes: dict[tuple[str, int], dict[int, TurnRecord]] = {}
    for turn in turns:
        episodes.setdefault((turn.group, turn.sample), {})[turn.turn_index] = turn
    return [
        Trajectory(group, sample, tuple(turn for _, turn in sorted(episode.items())))
        for (group, sample), episode in episodes.items()
    ]


def to_sft(
    episodes: Iterable[Trajectory], *, min_reward: float, drop_regressions: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield one row of chat messages for each episode whose best turn has at least `min_reward`, for cold starts.

    A row has the messages that the model saw before its best turn, and then that turn's response; later turns are left
    out. Episodes whose messages were not recorded are skipped.

    Args:
        episodes: the episodes to use.
        min_reward: least reward of the best turn.
        drop_regressions: leave out earlier responses that had no reward, or less than a turn before them, together with
            the messages about them.
    """
    for episode in episodes:
        best = episode.best
        if best is None or best.reward is None or best.reward < min_reward or not best.messages:
            continue
        dropped = _regressions(episode, best) if drop_regressions else set()
        messages = [*_without(best.messages, dropped), {"role": "assistant", "content": best.response}]
        yield {
            "messages": messages,
            "problem_id": best.problem_id,
            "group": episode.group,
            "sample": episode.sample,
            "best_turn": best.turn_index,
            "num_turns": sum(message.get("role") == "assistant" for message in messages),
            "reward": best.reward,
            "speedup": best.speedup,
            "speedup_kind": best.speedup_kind,
            "outcome": best.outcome,
            "model": best.model,
        }


def _regressions(episode: Trajectory, best: TurnRecord) -> set[str]:
    """Return the responses before the best turn that were a step back, or had no verdict."""
    dropped, kept, reached = set(), set(), -math.inf
    for turn in episode.turns:
        if turn.turn_index >= best.turn_index:
            break
        if turn.reward is None or turn.reward < reached:
            dropped.add(_said(turn.response))
        else:
            kept.add(_said(turn.response))
            reached = turn.reward
    return dropped - kept


def _without(messages: Sequence[Mapping[str, Any]], dropped: set[str]) -> list[Mapping[str, Any]]:
    """Return the conversation without the assistant's messages in `dropped` and the messages about each of them."""
    kept: list[Mapping[str, Any]] = []
    answering = False
    for message in messages:
        if message.get("role") == "assistant":
            answering = _said(message.get("content")) in dropped
        if not answering:
            kept.append(message)
    return kept


def _said(response: Any) -> str:
    """Return a response without its reasoning, which many chats do not keep."""
    return (answer_of(response) or "").strip() if isinstance(response, str) else ""


def to_parquet(turns: Iterable[TurnRecord], path: str | os.PathLike[str]) -> int:
    """Write one flat row for each turn, and return their number. Nested values (messages, results) are JSON columns.

    Raises:
        ImportError: pyarrow is not installed; the extra `rollout` installs it.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(f"Parquet needs pyarrow: {installing.command('rollout')}") from error
    texts, reals = pa.string(), pa.float64()
    kinds = dict.fromkeys(_TEXT_COLUMNS, texts) | dict.fromkeys(_REAL_COLUMNS, reals)
    schema = pa.schema({name: kinds.get(name, pa.int32()) for name in _COLUMNS})
    rows = (_row(turn) for turn in turns)
    written = 0
    unfinished = Path(path).with_name(f".{Path(path).name}.{os.getpid()}")
    try:
        with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
            while group := list(itertools.islice(rows, _ROW_GROUP)):
                writer.write_table(pa.Table.from_pylist(group, schema))
                written += len(group)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return written


_PARTS = ("correctness", "speedup", "coverage", "tier", "fixed", "paid_speedup", "paid_coverage")
_JSON = ("messages", "timings", "sampling", "extra", "result", "remeasured", "kernel_files")
_INTEGER_COLUMNS = ("sample", "turn_index")
_TEXT_COLUMNS = (
    *("group", "problem_id", "model", "outcome", "speedup_kind", "extraction_method", "extraction_note"),
    *("feedback", "response", "kernel_code", "digest", "device_model", "recorded_at"),
    *(f"{name}_json" for name in _JSON),
)
_REAL_COLUMNS = (
    *("reward", "speedup", "speedup_low", "speedup_high", "coverage"),
    *("device_speedup", "end_to_end_speedup", "candidate_seconds", "reference_seconds"),
    *("candidate_end_to_end_seconds", "reference_end_to_end_seconds"),
    *(f"part_{name}" for name in _PARTS),
)
_COLUMNS = (*_INTEGER_COLUMNS, *_REAL_COLUMNS, *_TEXT_COLUMNS)


def _row(turn: TurnRecord) -> dict[str, Any]:
    result, extraction = turn.result or {}, turn.extraction or {}
    row: dict[str, Any] = {name: getattr(turn, name) for name in _COLUMNS if hasattr(turn, name)}
    row |= {f"part_{name}": turn.parts.get(name) for name in _PARTS}
    row |= {f"{name}_json": json.dumps(getattr(turn, name)) for name in _JSON}
    row["extraction_method"], row["extraction_note"] = extraction.get("method"), extraction.get("note")
    row["device_model"] = result.get("environment", {}).get("device_model")
    row["device_speedup"], row["end_to_end_speedup"] = result.get("speedup"), result.get("end_to_end_speedup")
    for name in ("candidate", "reference"):
        row[f"{name}_seconds"] = result.get(f"{name}_timing", {}).get("median_seconds")
        row[f"{name}_end_to_end_seconds"] = result.get(f"{name}_end_to_end", {}).get("median_seconds")
    return {name: _encodable(value) if isinstance(value, str) else value for name, value in row.items()}


def _plain(message: Any) -> dict[str, float]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


_FIELDS = {one.name for one in dataclasses.fields(TurnRecord)}


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


#: Types of the fields that are counted and quoted; other fields are only passed on.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "reward": (int, float),
    "speedup": (int, float),
    "speedup_low": (int, float),
    "speedup_high": (int, float),
    "speedup_kind": str,
    "coverage": (int, float),
    "problem_id": str,
    "messages": list,
    "response": str,
    "kernel_code": str,
    "kernel_files": dict,
    "feedback": str,
    "outcome": str,
}
#: Those of them that may be null.
_NULLABLE = ("reward", "speedup_low", "speedup_high", "coverage")


def parse_line(line: bytes) -> TurnRecord:
    """Return the turn in a line.

    Raises:
        ValueError: the line is not a turn; the message says why.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    return turn_of(data)


def turn_of(data: Any) -> TurnRecord:
    """Return the turn that a line's JSON describes.

    Raises:
        ValueError: it is not a turn; the message says why.
    """
    if not isinstance(data, dict) or not isinstance(data.get("version"), int):
        raise ValueError("not a turn: it has no version")
    if data["version"] > VERSION:
        raise ValueError(f"its version is {data['version']}, but this release reads up to {VERSION}")
    place = data.get("group"), data.get("sample"), data.get("turn_index")
    if not (isinstance(place[0], str) and isinstance(place[1], int) and isinstance(place[2], int)):
        raise ValueError("not a turn: it needs group, sample and turn_index")
    for name, kind in _KINDS.items():
        value = data.get(name)
        if not isinstance(value, kind) and (value is not None or (name in data and name not in _NULLABLE)):
            raise ValueError(f"{name} is {str(value)[:60]!r}, which has the wrong type")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}, which JSON cannot hold")
    return TurnRecord(**{name: value for name, value in data.items() if name in _FIELDS})
