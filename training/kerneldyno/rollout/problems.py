"""Problem sets: a folder of reference files, one file, or rows of JSONL or Parquet, as in trainers' data sets.

    folder    each *.py that defines `Model` and `get_inputs`, also in subfolders (KernelBench), or each subfolder's
              reference.py
    .jsonl    one JSON object for each line; see `from_row`
    .parquet  the same as columns

A problem has every field of an EvalRequest except the candidate. Nothing here runs the reference: errors in it show when
the first candidate is evaluated.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerneldyno.rollout.errors import ProblemError as ProblemError
from kerneldyno.rpc import installing, validation
from kerneldyno.rpc.input_files import MAX_LINE_BYTES, numbered_lines, open_input, read_text
from kerneldyno.rpc.jsonio import request_from_json, with_defaults
from kerneldyno.rpc.source import without_mark
from kerneldyno.rpc.turns import MAX_GROUP_CHARS
from kerneldyno.v1.evaluation_pb2 import EvalRequest

#: A chat message: {"role": ..., "content": ...}.
Message = dict[str, str]

#: Longest id, in characters: the id becomes the group of turns.
MAX_ID_CHARS = MAX_GROUP_CHARS
#: Columns that may have the id and the reference of a row, in order of preference.
_ID_KEYS = ("id", "problem_id", "uuid", "name", "index")
_CODE_KEYS = ("reference_code", "ground_truth", "code", "original_python_code")
#: Fields of EvalRequest that options cannot set.
_NOT_OPTIONS = ("id", "reference_code", "kernel_code", "kernel_files", "entry_point")


@dataclass(frozen=True, slots=True)
class Problem:
    """A reference program for which to write a faster one."""

    id: str
    reference_code: str
    entry_point: str = validation.DEFAULT_ENTRY_POINT
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of EvalRequest, in their JSON form."""
    prompt: tuple[Message, ...] = ()
    """Prompt of the data set; empty if it has none."""

    def request(self, options: Mapping[str, Any] | None = None) -> EvalRequest:
        """Return the request without id and candidate.

        Args:
            options: fields of EvalRequest, in JSON form, used where the problem does not set them.

        Raises:
            ProblemError: a field does not exist, or its value is out of range.
        """
        fields = with_defaults(self.options, options or {})
        for name in _NOT_OPTIONS:
            if name in fields:
                raise ProblemError(f"{self.id}: {name} cannot be an option; it comes from the problem or the model")
        code = {"reference_code": self.reference_code, "entry_point": self.entry_point, "kernel_code": "pass"}
        try:
            request = request_from_json({**fields, **code})
        except ValueError as error:
            raise ProblemError(f"{self.id}: {error}") from error
        if wrong := validation.validate(request, profiling=True, id_required=False):
            raise ProblemError(f"{self.id}: {wrong[0].field}: {wrong[0].description}")
        request.ClearField("kernel_code")
        return request


def load(path: Path, *, entry_point: str = validation.DEFAULT_ENTRY_POINT) -> list[Problem]:
    """Read the problems of a folder or a file, in a stable order.

    Raises:
        ProblemError: there are no problems, two have the same id, or one is malformed.
        OSError: `path` cannot be read.
    """
    if path.is_dir():
        problems = list(_of_folder(path, entry_point))
        if not problems:
            raise ProblemError(f"{path} has no *.py file that defines class {entry_point} and get_inputs()")
    elif path.suffix == ".py":
        problems = [Problem(_id(path.stem), _text(path), entry_point)]
    elif path.suffix in (".jsonl", ".parquet"):
        rows = _json_rows(path) if path.suffix == ".jsonl" else _parquet_rows(path)
        problems = [from_row(row, f"{path.name}, row {number}", entry_point) for number, row in enumerate(rows, 1)]
    else:
        raise ProblemError(f"{path} is none of: a folder, a .py, .jsonl or .parquet file")
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise ProblemError(f"{path} has two problems with the id {problem.id!r}; give each its own")
        seen.add(problem.id)
    if not problems:
        raise ProblemError(f"{path} has no problems")
    return problems


def from_row(row: Mapping[str, Any], where: str, entry_point: str = validation.DEFAULT_ENTRY_POINT) -> Problem:
    """Read a row of a data set of verl (reward_model.ground_truth, extra_info, prompt), or a plain row.

    A plain row has `reference_code` (or `ground_truth`, `code`), and may have `id` (or `problem_id`, `uuid`, `name`),
    `entry_point`, `prompt` (chat messages), and `options`: further fields of EvalRequest. Without an id, a digest of the
    reference is the id.

    Args:
        row: the row.
        where: place of the row, for error messages.
        entry_point: name of the reference's class, if the row does not set it.

    Raises:
        ProblemError: the row has no usable reference, id or prompt; the message starts with `where`.
    """
    extra, reward = _mapping(row.get("extra_info")), _mapping(row.get("reward_model"))
    code = next((v for k in _CODE_KEYS if isinstance(v := {**reward, **row}.get(k), str) and v.strip()), None)
    nested = _object(code)
    if nested is not None:  # the reference and its options as JSON text, where a column can hold only text
        return from_row({**row, **nested, "reward_model": {}}, where, entry_point)
    if code is None:
        raise ProblemError(f"{where}: no reference; give it as reference_code, or as reward_model.ground_truth")
    if "def " not in code:
        raise ProblemError(f"{where}: the reference {code[:60]!r} is not source code")
    if not code.isascii() and code.encode(errors="replace").decode() != code:
        raise ProblemError(f"{where}: the reference contains half a surrogate pair, so it is not valid text")
    named = {**extra, **row}
    id = next((str(named[key]) for key in _ID_KEYS if named.get(key) not in (None, "")), "")
    prompt = row.get("prompt")
    return Problem(
        _id(id or f"sha-{hashlib.sha256(code.encode()).hexdigest()[:16]}", where),
        code,
        str(row.get("entry_point") or extra.get("entry_point") or entry_point),
        {key: value for key, value in _mapping(row.get("options")).items() if value is not None},
        tuple(_message(one, where) for one in prompt) if isinstance(prompt, list | tuple) else (),
    )


def digest(problems: Iterable[Problem]) -> str:
    """Return 16 hexadecimal digits that change if any of `problems` changes."""
    total = hashlib.sha256()
    for problem in problems:
        parts = (problem.id, problem.reference_code, problem.entry_point, dict(problem.options), problem.prompt)
        total.update(json.dumps(parts, sort_keys=True).encode() + b"\n")
    return total.hexdigest()[:16]


def _of_folder(folder: Path, entry_point: str, prefix: str = "") -> Iterator[Problem]:
    for path in sorted(folder.iterdir(), key=_natural):
        if path.name.startswith((".", "__")):
            continue
        if path.is_dir():
            reference = path / "reference.py"
            if reference.is_file():
                yield Problem(_id(prefix + path.name), _text(reference), entry_point)
            else:
                yield from _of_folder(path, entry_point, f"{prefix}{path.name}/")
        elif path.suffix == ".py" and _is_reference(source := _text(path), path, entry_point):
            yield Problem(_id(prefix + path.stem), source, entry_point)


def _is_reference(source: str, path: Path, entry_point: str) -> bool:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ProblemError(f"{path} is not a Python program: {error}") from error
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return {entry_point, "get_inputs"} <= names


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers by value: 9_a.py before 10_b.py."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.name)]


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with open_input(path) as stream:
        for number, line in numbered_lines(stream):
            if len(line) > MAX_LINE_BYTES:
                raise ProblemError(f"{path.name}, line {number}: longer than {MAX_LINE_BYTES} bytes")
            try:
                row = _object(line.decode())
            except UnicodeDecodeError as error:
                place = f"{path}, line {number}"
                raise ProblemError(f"{place}: is not UTF-8 text: {error.reason} at byte {error.start}") from error
            if row is None:
                raise ProblemError(f"{path.name}, line {number}: not a JSON object")
            yield row


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ProblemError(f"reading {path.name} needs pyarrow: {installing.command('rollout')}") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise ProblemError(f"{path} is not a Parquet file: {error}") from error


def _text(path: Path) -> str:
    try:
        return without_mark(read_text(path))
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _id(text: str, where: str = "") -> str:
    if not text or len(text) > MAX_ID_CHARS or not text.isprintable():
        place = f"{where}: " if where else ""
        raise ProblemError(f"{place}{text[:60]!r} is not an id; use 1 to {MAX_ID_CHARS} printable characters")
    return text


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        return _object(value) or {}
    return value if isinstance(value, Mapping) else {}


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None or not text.lstrip().startswith("{"):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _message(value: Any, where: str) -> Message:
    one = _mapping(value)
    if not isinstance(one.get("role"), str) or not isinstance(one.get("content"), str):
        raise ProblemError(f"{where}: prompt must be a list of {{role, content}}")
    return {"role": one["role"], "content": one["content"]}
