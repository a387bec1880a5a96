"""Arguments of judge_corpus.py: a folder, a file, one candidate of a file, or the name of a candidate."""

from __future__ import annotations

import pytest

from kerneldyno.cli.corpus import CorpusError
from tests.corpus.judge_corpus import CORPUS, FOLDERS, named

pytestmark = pytest.mark.pure

COUNTERS = [f"T15_counter_{calls}" for calls in (1, 4, 8, 16, 40, 100)]


@pytest.mark.parametrize("argument", ["nothing", "T15_counter", "::T15_counter_4", f"{CORPUS}/nothing.py"])
def test_what_is_not_there_is_refused(argument: str) -> None:
    with pytest.raises(CorpusError, match="there is no such file, folder or candidate; candidates are in corpus/"):
        named(argument)


def test_a_candidate_that_is_not_in_the_file_is_refused() -> None:
    with pytest.raises(
        CorpusError, match=r"has no candidate T15_at_random; choose one of T15_counter.py::T15_counter_1, "
    ):
        named(f"{CORPUS}/attacks/T15_counter.py::T15_at_random")


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        (f"{CORPUS}/attacks/T15_at_random.py", ["T15_at_random"]),
        (f"{CORPUS}/attacks/T15_counter.py", COUNTERS),
        (f"{CORPUS}/attacks/T15_counter.py::T15_counter_4", ["T15_counter_4"]),
        ("T15_counter_4", ["T15_counter_4"]),
    ],
)
def test_candidates_are_found(argument: str, names: list[str]) -> None:
    assert [entry.name for entry in named(argument)] == names


def test_an_address_names_one_candidate() -> None:
    entries = [entry for folder in FOLDERS for entry in named(str(CORPUS / folder))]
    assert len({entry.address for entry in entries}) == len(entries)
    assert [entry for one in entries[::50] for entry in named(one.address)] == entries[::50]
