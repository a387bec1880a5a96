"""Tests of extracting a candidate from a response: each rule, what must not fool it, linear time on hostile text."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.cli import corpus
from kerneldyno.rewards.extraction import MARKERS, continued, extract
from kerneldyno.v1.reward_service_pb2 import Extraction

pytestmark = pytest.mark.pure

CODE = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
OTHER = CODE.replace("return x", "return x + 1")
HELPER = "import math\nprint(math.pi)\n"


def fenced(code: str, info: str = "python", marks: str = "```") -> str:
    return f"{marks}{info}\n{code}{marks}\n"


def code_of(response: str, entry_point: str = "Model", toolkit: str = "kernelbench") -> str:
    found = extract(response, entry_point, toolkit)
    assert found.method == Extraction.METHOD_FENCED_ENTRY_POINT, found
    return found.kernel_code


@pytest.mark.parametrize(
    "response",
    [
        fenced(CODE),
        fenced(CODE, info=""),
        fenced(CODE, info=" Python title=kernel.py"),
        fenced(CODE, info="{.python}"),
        fenced(CODE, info="py", marks="~~~"),
        fenced(CODE, marks="`````"),
        "Text.\n\n" + fenced(CODE) + "\nMore text, and `code` in it.\n",
        fenced(OTHER) + "Better:\n" + fenced(CODE),
        fenced(CODE) + "Use it so:\n" + fenced(HELPER) + fenced("pip install triton\n", info="bash"),
        fenced(CODE).replace("\n", "\r\n"),
        fenced(CODE)[:-1],  # no newline at the end
        "```python\n" + CODE + "```   \n",
        "```python\n" + CODE + "``````\n",  # a closing fence may be longer
        "`inline ``` marks`\n" + fenced(CODE),
        "``` not a fence since it has `marks` ```\n" + fenced(CODE, info=""),
    ],
)
def test_last_complete_block_that_defines_the_entry_point(response: str) -> None:
    found = extract(response, "Model")
    assert (found.method, found.kernel_code, found.note) == (Extraction.METHOD_FENCED_ENTRY_POINT, CODE, "")


@pytest.mark.parametrize("lead", ["  ", "\t", "1. ", "- ", "      "])
def test_indentation_of_a_fence_is_not_the_codes(lead: str) -> None:
    indented = "".join(" " * len(lead) + line + "\n" for line in CODE.splitlines()) if lead != "\t" else ""
    indented = indented or "".join("\t" + line + "\n" for line in CODE.splitlines())
    closing = "\t" if lead == "\t" else " " * len(lead)
    got = code_of(f"Steps:\n{lead}```python\n{indented}{closing}```\n")
    assert [line.rstrip() for line in got.splitlines()][: len(CODE.splitlines())] == CODE.splitlines()
    compile(got, "candidate.py", "exec")


@pytest.mark.parametrize(
    "definition",
    [
        "class ModelNew:\n    pass\n",
        "class ModelNew (A, B):\n    pass\n",
        "def ModelNew(*a):\n    pass\n",
        "ModelNew = Fast\n",
        "ModelNew: type = Fast\n",
        "try:\n    class ModelNew(M):\n        pass\nexcept Exception:\n    pass\n",
    ],
)
def test_ways_to_define(definition: str) -> None:
    assert code_of(fenced(definition) + fenced(HELPER)) == definition


@pytest.mark.parametrize(
    "mention",
    [
        "# class ModelNew(Module):\nx = 1\n",
        '"""\nclass ModelNew(Module):\n"""\nx = 1\n',
        "'''\\'''\nclass ModelNew(Module):\n'''\nx = 1\n",
        "print('''\nclass ModelNew:\n''')\n",
        "class ModelNewer:\n    pass\n",
        "class MyModelNew:\n    pass\n",
        "model = ModelNew()\n",
        "assert ModelNew == x\nModelNew == x\n",
        "class modelnew:\n    pass\n",
    ],
)
def test_a_mention_is_no_definition(mention: str) -> None:
    assert code_of(fenced(CODE) + fenced(mention)) == CODE
    assert extract(fenced(mention), "Model").method == Extraction.METHOD_FENCED


def test_a_syntax_error_is_still_the_candidate() -> None:
    broken = CODE + "    def oops(:\n"
    assert code_of(fenced(broken)) == broken
    unterminated = CODE + 'x = """never ends\n'
    assert code_of(fenced(unterminated)) == unterminated


def test_other_and_shorter_fences_are_contents() -> None:
    tildes = CODE + "~~~\nx = 1\n"
    assert code_of(fenced(tildes)) == tildes
    shorter = CODE + "```\nx = 1\n"
    assert code_of(fenced(shorter, marks="````")) == shorter
    assert code_of(fenced(shorter)) == CODE


def test_names_of_toolkits() -> None:
    function = "def softmax(x):\n    return x\n"
    class_ = "class softmaxNew:\n    pass\n"
    assert code_of(fenced(function) + fenced(CODE), "softmax", "kernel_simple") == function
    assert code_of(fenced(class_) + fenced(function), "softmax", "kernelbench") == class_
    assert code_of(fenced(class_) + fenced(function), "softmax", "acme") == function
    assert code_of(fenced(CODE), "", "") == CODE
    assert code_of(fenced("class GrößeNew:\n    pass\n"), "Größe").startswith("class GrößeNew")


def test_reasoning_is_no_answer() -> None:
    draft = "<think>Try\n" + fenced(OTHER) + "or so\n```python\nclass ModelNew(:\n</think>\n"
    assert code_of(draft + fenced(CODE)) == CODE
    assert code_of(draft.removeprefix("<think>") + fenced(CODE)) == CODE, "the opening tag may be the prompt's"
    assert code_of("<thinking>a</thinking>" + draft + fenced(CODE)) == CODE
    only = extract(draft + "Done.", "Model")
    assert (only.method, only.kernel_code) == (Extraction.METHOD_UNSPECIFIED, "")
    endless = extract("<think>\n" + fenced(CODE) + "and then", "Model")
    assert (endless.method, endless.kernel_code) == (Extraction.METHOD_UNSPECIFIED, "")
    assert "reasoning" in endless.note


def test_cut_off_block() -> None:
    cut = "```python\n" + CODE[:40]
    alone = extract("Here:\n" + cut, "Model")
    assert (alone.method, alone.kernel_code) == (Extraction.METHOD_UNSPECIFIED, "")
    assert "cut off" in alone.note
    earlier = extract(fenced(OTHER) + cut, "Model")
    assert (earlier.method, earlier.kernel_code) == (Extraction.METHOD_FENCED_ENTRY_POINT, OTHER)
    assert "cut off" in earlier.note
    restarted = extract(cut + "\nNo, again:\n" + fenced(CODE), "Model")
    assert (restarted.kernel_code, restarted.note) == (CODE, "")
    bare = extract("```\n" + CODE, "Model")
    assert (bare.method, "cut off" in bare.note) == (Extraction.METHOD_UNSPECIFIED, True)


@pytest.mark.parametrize(
    "response",
    [
        fenced("Use\n" + fenced(CODE) + "as is\n", info="markdown", marks="````"),
        fenced("Use\n" + fenced(CODE) + "as is\n", info="md"),
        fenced(fenced(CODE, marks="~~~"), info="markdown"),
    ],
)
def test_blocks_in_a_block_of_prose(response: str) -> None:
    assert code_of(response) == CODE


def test_fences_in_strings_of_the_code() -> None:
    code = '"""Usage:\n```python\nModelNew()(x)\n```\n"""\n' + CODE
    assert code_of("Here:\n" + fenced(code) + "Done.") == code
    longer = '"""\n```\nshape\n```\n"""\n' + CODE
    assert code_of(fenced(longer, marks="````")) == longer


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("end", ["", "```\nThat is all.\n"])
def test_markers(marker: str, end: str) -> None:
    found = extract(f"Well.\n{marker}\n{CODE}{end}", "Model")
    if marker.startswith("```") and end:  # then the marker opens a complete block
        assert (found.method, found.kernel_code) == (Extraction.METHOD_FENCED_ENTRY_POINT, CODE)
    else:
        assert (found.method, found.kernel_code) == (Extraction.METHOD_MARKER, CODE)


def test_a_marker_before_a_fence() -> None:
    cut = extract(f"# Your implementation:\n\n```python\n{CODE}", "Model")
    assert (cut.method, cut.kernel_code) == (Extraction.METHOD_MARKER, CODE)
    assert "cut off" in cut.note
    last = extract(f"# Your implementation:\nold = 1\n# Your implementation:\n{CODE}", "Model")
    assert (last.method, last.kernel_code) == (Extraction.METHOD_MARKER, CODE)


@pytest.mark.parametrize("end", ["", "\n", "\n\n  \n", "\n```\n"])
def test_a_marker_with_nothing_after_it(end: str) -> None:
    found = extract("I give up.\n# Your implementation:" + end, "Model")
    assert (found.method, found.kernel_code) == (Extraction.METHOD_UNSPECIFIED, "")


def test_a_marker_in_a_complete_block_does_not_cut_it() -> None:
    block = "import torch\n# Kernel Implementation\nx = 1\n"
    found = extract(fenced(block), "Model")
    assert (found.method, found.kernel_code) == (Extraction.METHOD_FENCED, block)
    assert "ModelNew" in found.note


def test_last_block_without_the_entry_point() -> None:
    found = extract(fenced(HELPER) + fenced("pip install x\n", info="bash") + fenced("", info="python"), "Model")
    assert (found.method, found.kernel_code) == (Extraction.METHOD_FENCED, HELPER)
    shell = extract(fenced("pip install x\n", info="bash"), "Model")
    assert (shell.method, shell.kernel_code) == (Extraction.METHOD_FENCED, "pip install x\n")


@pytest.mark.parametrize("first", ["", "# My kernel\n\n", "@decorated\n", "BLOCK = 128\n", '"""Doc."""\n'])
def test_whole_response(first: str) -> None:
    code = first + CODE
    found = extract(code, "Model")
    assert (found.method, found.kernel_code) == (Extraction.METHOD_WHOLE, code)
    assert found.note == "the code is not in a fenced block"
    prefilled = extract(code + "```\nDone.", "Model")
    assert (prefilled.method, prefilled.kernel_code) == (Extraction.METHOD_WHOLE, code), "the prompt had the fence"


@pytest.mark.parametrize(
    "response",
    ["I cannot do that.", "The class is\nclass ModelNew: it does\nthings", "```\n```", "```", HELPER],
)
def test_nothing(response: str) -> None:
    found = extract(response, "Model")
    assert (found.method, found.kernel_code) == (Extraction.METHOD_UNSPECIFIED, "")
    assert found.note == "the response has no fenced block, and is no program that defines ModelNew"
    assert "ModelNew or Model" in extract(response, "Model", "acme").note


@pytest.mark.parametrize(
    ("response", "note"),
    [
        ("", "the response is empty"),
        ("   \n", "the response is empty"),
        ("<think>\na plan\n</think>\n", "nothing follows the reasoning"),
    ],
)
def test_nothing_at_all(response: str, note: str) -> None:
    assert extract(response, "Model") == Extraction(note=note)


def test_real_candidates_come_back_byte_for_byte() -> None:
    folder = Path(__file__).parents[2] / "corpus"
    entries = [entry for name in ("honest", "attacks", "wrong") for entry in corpus.entries(folder / name)]
    sources = [entry.source for entry in entries if entry.answer is None]  # the others are references
    assert len(sources) > 700
    for source in sources:
        assert code_of("Sure!\n\n" + fenced(source) + "\nDone.\n" + fenced("x = ModelNew()\n")) == source


_PIECES = st.sampled_from(
    [
        "```",
        "```python",
        "~~~",
        "````",
        "\n",
        "\r\n",
        " ",
        "class ModelNew(",
        "):",
        '"""',
        "'''",
        "'",
        '"',
        "\\",
        "#",
        *MARKERS,
        "<think>",
        "</think>",
        "ModelNew = 1",
        "x",
        "1. ",
        "- ",
        "\0",
        "é",
        CODE,
        "```markdown",
        "```md\n",
    ]
)


@given(st.lists(_PIECES, max_size=60).map("".join), st.sampled_from(["Model", "", "é", "(", "M\\"]))
def test_never_raises_and_never_invents(response: str, entry_point: str) -> None:
    for toolkit in ("kernelbench", "kernel_simple", "acme"):
        found = extract(response, entry_point, toolkit)
        assert bool(found.kernel_code) == (found.method != Extraction.METHOD_UNSPECIFIED)
        plain = response.replace("\r\n", "\n")
        assert all(line.strip() in plain for line in found.kernel_code.splitlines())
        assert found.method != Extraction.METHOD_UNSPECIFIED or found.note


_marks = st.sampled_from(["```", "````", "~~~", "~~~~~"])
_prose = st.sampled_from(
    ["", "Then:\n", "Use `x` so.\n\n", "- a\n- b\n", "class ModelNew is what you asked for\n", "---\n"]
)
_bodies = st.sampled_from([HELPER, CODE, OTHER, "# class ModelNew:\n", "ModelNew = 1\n", '"""\nclass ModelNew:\n"""\n'])
_segments = st.tuples(_prose, _bodies, _marks, st.sampled_from(["", "python", "py title=x", "text"]), st.booleans())


@given(st.lists(_segments, max_size=6), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_any_answer_of_whole_blocks(segments: list[tuple[str, str, str, str, bool]], cut: bool, newline: str) -> None:
    """The test builds the answer block by block, so it knows which block must be found."""
    response, expected = "<think>\n```python\n" + CODE + "draft", ""
    response += "</think>\n"
    for prose, body, marks, info, indented in segments:
        block = fenced(body, info=info, marks=marks)
        response += prose + (textwrap.indent(block, "   ") if indented else block)
        expected = body if body in (CODE, OTHER, "ModelNew = 1\n") else expected
    if cut:
        response += "```python\n" + CODE
    found = extract(response.replace("\n", newline), "Model")
    assert (found.method == Extraction.METHOD_FENCED_ENTRY_POINT) == bool(expected)
    assert not expected or found.kernel_code.splitlines() == expected.splitlines()
    assert ("cut off" in found.note) == cut


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert code_of(fenced("# \ud800\n" + CODE)) == "# ?\n" + CODE
    assert extract("\udfff", "\ud800").note


@given(st.text(alphabet="ab\n`~ ", max_size=80))
def test_a_block_that_is_appended_wins(before: str) -> None:
    closed = (
        before + "\n" + "`" * 100 + "\n" + "~" * 100 + "\n\n"
    )  # this closes a fence that is open, and may open another
    response = closed + fenced(CODE, marks="`" * 100)
    assert CODE in extract(response, "Model").kernel_code


HOSTILE = {
    "backticks": "`",
    "fences": "```\n",
    "openings": "```python\n",
    "fence, no line ends": "```python ",
    "tildes and backticks": "```\n~~~\n",
    "spaces": " ",
    "indented fences": " " * 100 + "```python\n",
    "list items": "1. ",
    "triple quotes": '"""',
    "both triple quotes": "\"\"\"'''",
    "escaped quotes": '\\"',
    "quotes": "'\"",
    "definitions": "class ModelNew(:\n",
    "definitions in openings": "```python\nclass ModelNew(:\n",
    "half definitions": "class ModelNew ",
    "strings with fences": '```python\n"""\n',
    "annotations": "ModelNew: ",
    "comments": "#",
    "reasoning": "<think></think>",
    "open reasoning": "<think>",
    "markers": "# Kernel Implementation\n",
    "markers in blocks": "```\n# Generated kernel:\n```\n",
    "returns": "\r\n",
    "shrinking fences": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_linear_time(name: str) -> None:
    """At 1 MiB, quadratic time would be minutes. The limit is what a slow machine needs for 50 linear passes."""
    unit = HOSTILE[name]
    text = unit * (2**20 // max(len(unit), 1))
    if name == "shrinking fences":
        text = "".join("`" * length + "markdown\n" for length in range(1400, 3, -1))
    tail = "\nclass ModelNew(:\n"
    started = time.process_time()
    for response in (text, text + tail, "```python\n" + text + tail + "\n```", "class ModelNew:\n" + text):
        extract(response, "Model")
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", "<think>\n"),
        ("Answer: <Reasoning>", "<Reasoning>"),
        ("<think>\n\n</think>\n\n", ""),
        ("say <think> first", ""),
        ("", ""),
    ],
)
def test_reasoning_that_the_prompt_began(prompt: str, opened: str) -> None:
    block = "```python\nclass ModelNew:\n    pass\n```"
    whole = continued(prompt, block)
    assert whole == opened + block
    assert bool(extract(whole, "Model").kernel_code) == (not opened)
