"""Tests of a corpus file with several candidates: how each is built, and the errors for a malformed list."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneldyno.cli import corpus
from kerneldyno.cli.corpus_variants import CorpusError, expand

pytestmark = pytest.mark.pure

BASE = '''"""T15: right for the first call.

Then it returns an old answer.

problem: sum
outcome: INCORRECT
devices: cpu, cuda
"""

import torch


def forward(self, x):
    self.calls += 1

    if self.calls <= 1:
        self.out = x + 1
    self.out = self.out
    return self.out
'''
FIRST = "# Above is T15_once. Variants, with what differs:"


def listed(*lines: str, base: str = BASE) -> str:
    return "\n".join((base, "", FIRST, "#", *lines, ""))


def sources(*lines: str) -> dict[str, str]:
    return expand("T15_counter", listed(*lines))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], r"T15_counter.py: lists no variants; add one, or remove '# Above is T15_once"),
        (["# T15_once: x.", "#   finding: S19"], "T15_once is listed twice; give one another name"),
        (["# T15_a: x.", "#   finding: S19", "#", "# T15_a: y.", "#   finding: B01"], "T15_a is listed twice"),
        (["# T16_a: x.", "#   finding: S19"], "T16_a must begin with T15_ as the file does; rename or move it"),
        (["# counter: x.", "#   finding: S19"], "counter must begin with T15_"),
        (["# T15_counter: x.", "#   finding: S19"], "a candidate in it has the same name; rename the file"),
        (["# T15_a: x."], "T15_a: differs in nothing but its title"),
        (
            ["# T15_a: x.", "#   outcomes: CORRECT"],
            "T15_a: unknown key 'outcomes'; choose one of problem, answer, backend",
        ),
        (["# T15_a: x.", "#   - import math"], "lines that begin with 'import math' occur 0 times; copy them as they"),
        (["# T15_a: x.", "#   - if self.calls <= 1:"], "occur 0 times"),  # indentation counts
        (["# T15_a: x.", "#   -", "#   + y"], r"begin with '' occur \d times; add a line beside them to both"),
        (["# T15_a: x.", "#   + import math"], "'import math' is put in nowhere; write a - line above it"),
        (
            [
                "# T15_a: x.",
                "#   - import torch",
                "#   -",
                "#   -",
                "#   + import math",
                "#   - import torch",
                "#   + import torch.nn",
            ],
            "two groups of - lines overlap at 'import torch'; write them as one",
        ),
        (["# T15_a: x.", "#   - import torch", "#   finding: S19"], "'finding: S19' must stand above the lines with"),
        (["#   finding: S19"], r"is not a line of a list of variants; write '# NAME: title'"),
        (["# T15_a: x.", "# finding"], "'# finding' is not a line of a list"),
        (["# T15_a: x.", "#   finding: S19", "x = 1"], "'x = 1' is not a line of a list"),
    ],
)
def test_a_malformed_list_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        sources(*lines)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("# Above is T15_once. Variants:", "write the first line of the list as '# Above is NAME. Variants, with"),
        (f"{FIRST}\n{FIRST}", "has 2 lists of variants; put all into one"),
        (FIRST.replace("T15", "T16"), "T16_once must begin with T15_"),
    ],
)
def test_a_malformed_first_line_is_refused(first: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        expand("T15_counter", f"{BASE}\n\n{first}\n#\n# T15_a: x.\n#   finding: S19\n")


def test_variants_need_a_docstring_above() -> None:
    with pytest.raises(CorpusError, match=r"T15_counter.py: must begin with a docstring"):
        expand("T15_counter", listed("# T15_a: x.", "#   finding: S19", base="import torch\n"))


def test_a_file_without_a_list_is_one_candidate() -> None:
    assert expand("T15_once", BASE) == {"T15_once": BASE}


def test_what_stands_above_is_the_first_candidate() -> None:
    found = sources("# T15_a: x.", "#   finding: S19")
    assert list(found) == ["T15_once", "T15_a"]
    assert found["T15_once"] == BASE


def test_a_variant_differs_in_what_it_lists_and_nothing_else() -> None:
    found = sources(
        "# T15_four: right for the first 4 calls.",
        "#   outcome: INCORRECT, CORRECT",
        "#   honest: plain",
        "#   -     if self.calls <= 1:",
        "#   +     if self.calls <= 4:",
        "#",
        "# T15_other: another.",
        "#   Two lines:",
        "#   of its own.",
        "#",
        "#   And a paragraph.",
        "#   - import torch",
        "#   -",
        "#   + import math",
        "#   +",
        "#   + import torch",
        "#   +",
        "#   -     self.out = self.out",
        "#   -     return self.out",
        "#   +     return self.out",
    )
    assert found["T15_four"] == BASE.replace("right for the first call.", "right for the first 4 calls.").replace(
        "outcome: INCORRECT\n", "outcome: INCORRECT, CORRECT\nhonest: plain\n"
    ).replace("<= 1", "<= 4")
    assert found["T15_other"] == BASE.replace("right for the first call.", "another.").replace(
        "Then it returns an old answer.", "Two lines:\nof its own.\n\nAnd a paragraph."
    ).replace("import torch\n", "import math\n\nimport torch\n").replace("    self.out = self.out\n", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus with one problem and one file of two attacks."""
    for name in ("attacks", "honest", "problems"):
        (tmp_path / name).mkdir()
    (tmp_path / "problems" / "sum.py").write_text("class Model: ...\n")
    (tmp_path / "attacks" / "T15_counter.py").write_text(listed("# T15_a: x.", "#   outcome: CORRECT"))
    return tmp_path / "attacks"


def test_all_candidates_of_a_folder_are_read_by_name(folder: Path) -> None:
    (folder / "T15_b.py").write_text(BASE)
    found = list(corpus.entries(folder))
    assert [(entry.name, entry.id, entry.path.name, entry.title) for entry in found] == [
        ("T15_a", "T15", "T15_counter.py", "x."),
        ("T15_b", "T15", "T15_b.py", "right for the first call."),
        ("T15_once", "T15", "T15_counter.py", "right for the first call."),
    ]
    assert [entry.outcomes for entry in found] == [("CORRECT",), ("INCORRECT",), ("INCORRECT",)]
    assert len({entry.address for entry in found}) == 3
    assert found[0].address == f"{folder.resolve()}/T15_counter.py::T15_a"


def test_a_name_that_two_files_have_is_refused(folder: Path) -> None:
    (folder / "T15_once.py").write_text(BASE)
    with pytest.raises(CorpusError, match=r"T15_once.py: T15_once is also in T15_counter.py; give one another name"):
        list(corpus.entries(folder))


def test_one_candidate_of_a_file_is_chosen_by_its_name(folder: Path) -> None:
    file = folder / "T15_counter.py"
    assert corpus.read(file, "T15_a") in corpus.read_all(file)
    with pytest.raises(
        CorpusError, match=r"has 2 candidates; choose one of T15_counter.py::T15_once, T15_counter.py::T"
    ):
        corpus.read(file)
    with pytest.raises(CorpusError, match=r"T15_counter.py: has no candidate T15_x; choose one of"):
        corpus.read(file, "T15_x")


def test_a_bad_header_of_a_variant_is_named(folder: Path) -> None:
    (folder / "T15_counter.py").write_text(listed("# T15_a: x.", "#   problem: product"))
    with pytest.raises(CorpusError, match=r"T15_counter.py::T15_a: there is no problems/product.py"):
        corpus.read_all(folder / "T15_counter.py")
