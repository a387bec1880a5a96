"""Quote text that a candidate controls in a prompt, so that it stays data, whatever it imitates.

Exception messages, kernel names and source lines come from an untrusted process and go into the next turn's prompt.
Here everything is disabled that could end a code block, open a chat turn, hide text or forge a line of the feedback;
words and numbers are kept.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

#: Prefix of each line of a quotation, so that no quoted line can pass for a line of the feedback.
QUOTE = "  | "
ELLIPSIS = "…"

#: Unicode categories to remove: control characters, invisible formatting (text direction, joiners), separators, lone
#: surrogates, private use.
_UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}
_MARKS = re.compile(r"`{3,}|~{3,}")
#: Bars and angle brackets of other scripts; DeepSeek's tokens are written with such a bar.
_LOOK_ALIKES = str.maketrans("\uff5c\uffe8\uff1c\uff1e\ufe64\ufe65\uff40\uff5e", "||<><>`~")
#: Tags such as </think>, <|im_end|> and <end_of_turn>; <module> too, which reads as well in round brackets.
_TAG = re.compile(r"<([/|!]?[A-Za-z][^<>\n]{0,60})>")
#: Tokens of Mistral, Llama 2, GLM and BERT. Source code has other names in square brackets.
_BRACKETED = re.compile(
    r"\[(/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_[A-Z]+|THINK|ARGS|CALL_ID|PREFIX|SUFFIX|MIDDLE|IMG[_A-Z]*"
    r"|[gs]?MASK|BOS|EOS|UNK|PAD|CLS|SEP|control_\d+))\]"
)


def line(text: str, limit: int) -> str:
    """Return `text` on one line, made harmless, at most `limit` characters; runs of blanks become one."""
    return cut(_defused(" ".join(text[: 8 * limit + 64].split())), limit)


def block(text: str, *, lines: int, width: int) -> str:
    """Return `text` as a quotation of at most `lines` lines of `width` characters; the middle is left out first."""
    rows = [row.rstrip() for row in text.split("\n") if row.strip()]
    if len(rows) > lines:
        head = lines // 3
        rows = [
            *rows[:head],
            f"[... {len(rows) - lines + 1} lines left out ...]",
            *rows[len(rows) - (lines - head - 1) :],
        ]
    return "\n".join(QUOTE + cut(_defused(row[: width + 1].replace("\t", "    ")), width) for row in rows)


def cut(text: str, limit: int) -> str:
    """Return the first `limit` characters of `text`; the last one is an ellipsis if something is missing."""
    if len(text) <= limit:
        return text
    return text[: limit - 1].rstrip() + ELLIPSIS if limit > 0 else ""


def fit(sections: Iterable[str], limit: int, *, least: int = 40) -> str:
    """Join sections by newlines up to `limit` characters: cut the first that does not fit, and leave out the rest.

    A section for which fewer than `least` characters remain is left out whole, unless it is the first.
    """
    text = ""
    for section in sections:
        longer = f"{text}\n{section}" if text else section
        if len(longer) > limit:
            room = limit - len(text) - 1
            return cut(longer, limit) if not text or room >= least else text
        text = longer
    return text


def _defused(text: str) -> str:
    """Return one line without invisible characters, code fences, tags and tokens of chat templates."""
    if not text.isascii() or not text.isprintable():
        text = "".join(one for one in text if unicodedata.category(one) not in _UNSEEN).translate(_LOOK_ALIKES)
    text = _BRACKETED.sub(r"(\1)", _TAG.sub(r"(\1)", text))
    return _MARKS.sub("'''", text).replace("<|", "(|").replace("|>", "|)")
