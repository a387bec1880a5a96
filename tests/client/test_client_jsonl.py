"""Tests of the files of a batch: malformed lines, duplicates, bounded memory, and the results of an earlier run."""

from __future__ import annotations

import io
import json
import resource
from pathlib import Path

import pytest

from kerneldyno.cli.results_file import NotResultsError, ResultsFile
from kerneldyno.client import EvalRequest, EvalResult
from kerneldyno.client.jsonl import BadLine, read_requests
from kerneldyno.rpc.channel import MAX_MESSAGE_BYTES
from kerneldyno.rpc.input_files import MAX_LINE_BYTES

pytestmark = pytest.mark.pure


def read(text: str | bytes) -> list[EvalRequest | BadLine]:
    return list(read_requests(io.BytesIO(text if isinstance(text, bytes) else text.encode())))


def test_plain_lines() -> None:
    first, second = read('{"id": "a", "kernel_code": "k"}\n\n  \n{"id": "b", "priority": "high"}')
    assert isinstance(first, EvalRequest)
    assert (first.id, first.kernel_code) == ("a", "k")
    assert isinstance(second, EvalRequest)
    assert second.id == "b"


@pytest.mark.parametrize(
    ("line", "id", "says"),
    [
        ("{", "", "not JSON"),
        ("[1]", "", "not a JSON object"),
        ("[" * 100_000, "", "not JSON"),
        (b'{"id": "\xff"}', "", "not UTF-8"),
        ('{"kernel_code": "k"}', "", "needs an id"),
        ('{"id": ""}', "", "needs an id"),
        ('{"id": 7}', "", "needs an id"),
        ('{"id": "\\ud800"}', "", "needs an id"),
        ('{"id": "x", "kernel_kode": "k"}', "x", "kernel_kode"),
        ('{"id": "x", "num_perf_trials": "many"}', "x", "num_perf_trials"),
        ('{"id": "x", "kernel_code": "\\ud800"}', "x", "surrogate"),
        ('{"id": "a"}', "a", "already used by line 1"),
    ],
)
def test_a_malformed_line_is_an_invalid_result_that_names_it(line: str | bytes, id: str, says: str) -> None:
    text = line if isinstance(line, bytes) else line.encode()
    before, bad, after = read(b'{"id": "a"}\n' + text + b'\n{"id": "z"}\n')
    assert isinstance(before, EvalRequest)
    assert isinstance(after, EvalRequest)
    assert isinstance(bad, BadLine)
    result = bad.result()
    assert result.outcome == EvalResult.INVALID
    assert result.id == id
    assert result.message.startswith("line 2: ")
    assert says in result.message


def test_a_line_has_room_for_any_message() -> None:
    assert MAX_LINE_BYTES >= 2 * MAX_MESSAGE_BYTES  # JSON may need two bytes for one byte


def test_an_endless_line_is_skipped_without_being_read_into_memory() -> None:
    class Endless(io.RawIOBase):
        """512 MiB of a line that does not end."""

        left = 2**29

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            size = min(len(buffer), self.left)
            buffer[:size] = b"x" * size
            self.left -= size
            return size

    class Then(io.RawIOBase):
        """Two streams, one after the other: the endless line, then a good line."""

        parts = (Endless(), io.BytesIO(b'\n{"id": "z"}\n'))

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            return self.parts[0].readinto(buffer) or self.parts[1].readinto(buffer)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bad, good = read_requests(io.BufferedReader(Then(), 2**20))  # type: ignore[arg-type]
    assert isinstance(bad, BadLine)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024  # KiB
    assert f"longer than {MAX_LINE_BYTES}" in str(bad)
    assert isinstance(good, EvalRequest)


def result(id: str, outcome: EvalResult.Outcome.ValueType) -> EvalResult:
    return EvalResult(id=id, outcome=outcome, message="a\nb")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_results_are_written_line_by_line_with_every_field(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path) as results:
        results.append(result("a", EvalResult.INCORRECT))
        (line,) = lines(path)  # it is written before the file is closed
    assert line["id"] == "a"
    assert line["outcome"] == "INCORRECT"
    assert line["findings"] == []
    assert (line["cached"], line["merged"], line["digest"]) == (False, False, "")


def test_verdicts_are_kept_and_everything_else_is_to_be_done_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    bad = BadLine(3, "not JSON")
    with ResultsFile(path) as results:
        results.append(result("right", EvalResult.CORRECT))
        results.append(result("lost", EvalResult.INFRASTRUCTURE_ERROR))
        results.append(
            result("refused", EvalResult.INVALID)
        )  # it has no digest: nothing ran, so asking again costs nothing
        results.append(bad.result())
    with path.open("ab") as stream:
        stream.write(b'{"id": "torn", "outc')
    with ResultsFile(path) as results:
        assert results.earlier.keys() == {"right"}
        results.append(result("lost", EvalResult.CORRECT))
    assert [line["id"] for line in lines(path)] == ["right", "lost"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.jsonl"]


def test_a_file_that_holds_no_results_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a", "kernel_code": "k"}\n')
    with pytest.raises(NotResultsError, match="line 1"), ResultsFile(path):
        pass
    assert path.read_text() == '{"id": "a", "kernel_code": "k"}\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["tasks.jsonl"]
