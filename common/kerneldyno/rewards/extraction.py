"""Find the candidate in a model's response.

The first of these rules that finds something applies: the last complete fenced block that defines the entry point; the
text after a marker that KernelGYM knows; the last complete fenced block; the whole response. Reasoning
(`<think>...</think>`) is not the answer, so code in it is never a candidate.

Nothing is executed or parsed as Python: a response is untrusted, the scheduler reads it between other work, and a
candidate with a syntax error must reach the evaluator unchanged. So every step is a linear scan.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.rpc.source import without_mark
from kerneldyno.rpc.validation import DEFAULT_ENTRY_POINT, DEFAULT_TOOLKIT
from kerneldyno.v1.reward_service_pb2 import Extraction

#: Markers that KernelGYM's clients look for, in the same order.
MARKERS = ("# Kernel Implementation", "```python # Kernel", "# Your implementation:", "# Generated kernel:")

_REASONING_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_REASONING_START = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
#: Matches at the end of a prompt whose chat template has opened the reasoning.
_REASONING_BEGUN = re.compile(r"<(?:think|thinking|thought|reasoning)>\s{0,20}\Z", re.IGNORECASE)
#: A fence on its own line, possibly the first thing of a list item: indentation, marks, and what follows them.
_FENCE = re.compile(
    r"^(?P<lead>[ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)?)(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE
)
#: Strings and comments of Python. Each alternative also matches without an end, so no text is scanned twice.
_NOT_CODE = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'(?:[^'\\\n]++|\\.)*+'?"
    r"|#[^\n]*",
    re.DOTALL,
)
#: Languages of blocks that may hold the candidate, and of blocks that may hold other blocks.
_PYTHON = frozenset({"", "python", "python3", "py", "triton", "cuda"})
_PROSE = frozenset({"markdown", "md", "text", "txt"})
#: Typical first lines of a program, which prose hardly ever starts with.
_CODE_LINE = re.compile(r"(?:import|from|class|def|if|with)[ \t]+\w|try:|@\w|[A-Za-z_]\w*[ \t]*=|[rR]?(?:\"\"\"|''')")
#: Most fence lines that are examined, counted from the end: a response has some dozens, and the scheduler has other
#: work.
_MOST_FENCES = 2000
#: Most opening fences that are tried for a block that has fences inside its own code.
_MOST_OPENINGS = 4


@dataclass(frozen=True, slots=True)
class _Fence:
    """A line of the text that may open or close a block."""

    start: int
    end: int
    indent: int
    mark: str
    length: int
    info: str


@dataclass(frozen=True, slots=True)
class _Block:
    """A complete fenced block: its position in the text, its code without the fence's indentation, and its language."""

    start: int
    end: int
    code: str
    language: str


def extract(response: str, entry_point: str, toolkit: str = DEFAULT_TOOLKIT) -> Extraction:
    """Return the candidate in `response` and how it was found. It never raises, whatever the text.

    If nothing was found, `method` is METHOD_UNSPECIFIED, `kernel_code` is empty and `note` says why.

    Args:
        response: the model's whole response.
        entry_point: the entry point of the request; empty means "Model".
        toolkit: decides the name that is looked for: `entry_point` itself for "kernel_simple", `<entry_point>New` for
            "kernelbench", and either for a plug-in's toolkit.
    """
    names = _names(_encodable(entry_point) or DEFAULT_ENTRY_POINT, toolkit or DEFAULT_TOOLKIT)
    answer = answer_of(without_mark(_encodable(response)).replace("\r\n", "\n"))
    if answer is None:
        return Extraction(note="the response ends within its reasoning, so it has no answer")
    answer = without_mark(answer)
    if not answer.strip():
        return Extraction(note="nothing follows the reasoning" if response.strip() else "the response is empty")
    fences = _fences(answer)
    blocks, cut = _blocks(answer, fences, names)
    defining = next((block for block in reversed(blocks) if defines(block.code, names)), None)
    if defining is not None:
        return Extraction(method=Extraction.METHOD_FENCED_ENTRY_POINT, kernel_code=defining.code, note=cut)
    around = _block_with_fences_in_strings(answer, fences, names)
    if around:
        return Extraction(method=Extraction.METHOD_FENCED_ENTRY_POINT, kernel_code=around)
    marked = _after_marker(answer, fences, blocks)
    if marked:
        return Extraction(method=Extraction.METHOD_MARKER, kernel_code=marked, note=cut)
    wanted = " or ".join(names)
    if blocks:
        last = next((block for block in reversed(blocks) if block.language in _PYTHON), blocks[-1])
        note = cut or f"no fenced block defines {wanted}; the last one was taken"
        return Extraction(method=Extraction.METHOD_FENCED, kernel_code=last.code, note=note)
    program = _program(answer, fences, names)
    if program:
        return Extraction(method=Extraction.METHOD_WHOLE, kernel_code=program, note="the code is not in a fenced block")
    return Extraction(note=cut or f"the response has no fenced block, and is no program that defines {wanted}")


def continued(prompt: str, response: str) -> str:
    """Return `response` with its opening reasoning tag, if the chat template put that tag at the end of `prompt`.

    Without the tag, a response that the token limit cut off within its reasoning would look like an answer.
    """
    begun = _REASONING_BEGUN.search(prompt[-100:])
    return begun[0] + response if begun else response


def answer_of(text: str) -> str | None:
    """Return the text after the reasoning: all of it if there is no reasoning, None if the reasoning never ends."""
    start = 0
    for end in _REASONING_END.finditer(text):
        start = end.end()
    return None if _REASONING_START.match(text, start) else text[start:]


def _encodable(text: str) -> str:
    """Return `text` without lone surrogates, which no message can carry."""
    return text.encode(errors="replace").decode()


def _names(entry_point: str, toolkit: str) -> tuple[str, ...]:
    if toolkit == "kernelbench":
        return (f"{entry_point}New",)
    return (entry_point,) if toolkit == "kernel_simple" else (f"{entry_point}New", entry_point)


def _fences(text: str) -> list[_Fence]:
    found = []
    for match in deque(_FENCE.finditer(text), maxlen=_MOST_FENCES):
        marks, info = match["marks"], match["info"].strip()
        if marks[0] == "`" and "`" in info:  # a code span within a line
            continue
        found.append(_Fence(match.start(), match.end(), len(match["lead"]), marks[0], len(marks), info))
    return found


def _blocks(
    text: str, fences: Sequence[_Fence], names: Sequence[str], prose: frozenset[str] = _PROSE
) -> tuple[list[_Block], str]:
    """Return the complete blocks that have contents, in order, and a sentence about the last one if it is cut off."""
    blocks: list[_Block] = []
    opening: _Fence | None = None
    for fence in fences:
        if opening is None:
            opening = fence
        elif fence.mark != opening.mark or fence.length < opening.length:
            continue  # part of the contents
        elif fence.info:  # not a closing fence: the open block was abandoned, or is prose around this one
            opening = fence
        else:
            block = _Block(opening.start, fence.end, _contents(text, opening, fence.start), _language(opening))
            if block.language in prose and (inner := _inner(block, names)):
                blocks.extend(inner)
            elif block.code.strip():
                blocks.append(block)
            opening = None
    if opening is None:
        return blocks, ""
    rest = _contents(text, opening, len(text))
    if not opening.info and not defines(rest, names):  # one closing fence too many
        return blocks, ""
    taken = "; the last complete one was taken" if blocks else ""
    return blocks, f"the last fenced block is cut off: it has no closing fence{taken}"


def _inner(block: _Block, names: Sequence[str]) -> list[_Block]:
    """Return the blocks within a block of prose, whose fence is longer than theirs; one level deep."""
    inner, _ = _blocks(block.code, _fences(block.code), names, prose=frozenset())
    return [_Block(block.start, block.end, one.code, one.language) for one in inner]


def _language(opening: _Fence) -> str:
    return opening.info.split(maxsplit=1)[0].strip("{}.,").lower() if opening.info else ""


def _contents(text: str, opening: _Fence, end: int) -> str:
    """Return the lines after `opening` up to position `end`, each without up to the fence's indentation."""
    code = without_mark(text[opening.end + 1 : end])
    return re.sub(rf"^[ \t]{{1,{opening.indent}}}", "", code, flags=re.MULTILINE) if opening.indent else code


def defines(code: str, names: Sequence[str]) -> bool:
    """Return True if Python code, which may have errors, defines one of `names` outside its strings and comments."""
    if not any(name in code for name in names):
        return False
    name = "|".join(re.escape(name) for name in names)
    pattern = rf"^[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]+(?:{name})[ \t]*[(:\[]|^(?:{name})[ \t]*(?::[^=\n]*)?=(?!=)"
    return re.search(pattern, _NOT_CODE.sub('""', code), re.MULTILINE) is not None


def _block_with_fences_in_strings(text: str, fences: Sequence[_Fence], names: Sequence[str]) -> str:
    """Return a block whose code has fences in strings, which end it too early when read as Markdown; "" if none."""
    bare = [fence for fence in fences if not fence.info]
    openings = [fence for fence in fences if fence.info]
    for opening in reversed(openings[-_MOST_OPENINGS:]):
        if bare and bare[-1].start > opening.end:
            code = _contents(text, opening, bare[-1].start)
            if defines(code, names) and not _FENCE.search(_NOT_CODE.sub('""', code)):
                return code
    return ""


def _after_marker(text: str, fences: Sequence[_Fence], blocks: Sequence[_Block]) -> str:
    """Return the code after the last place, outside complete blocks, of the first marker present, up to a fence."""
    for marker in MARKERS:
        at = text.rfind(marker)
        if at < 0 or any(block.start < at < block.end for block in blocks):
            continue
        start = text.find("\n", at) + 1
        if not start:
            continue
        after = [fence for fence in fences if fence.start >= start]
        if after and not text[start : after[0].start].strip():
            start = after.pop(0).end + 1
        end = next((fence.start for fence in after if not fence.info), len(text))
        if text[start:end].strip():
            return text[start:end]
    return ""


def _program(text: str, fences: Sequence[_Fence], names: Sequence[str]) -> str:
    """Return the text if it is a program that defines one of `names`, else "".

    A single closing fence ends the program: its opening fence was then part of the prompt.
    """
    if fences and fences[0].info:
        return ""
    code = text[: fences[0].start] if fences else text
    lines = (line for line in code.splitlines() if line.strip() and not line.startswith("#"))
    return code if _CODE_LINE.match(next(lines, "")) and defines(code, names) else ""
