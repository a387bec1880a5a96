"""HTML and SVG as trees: text is always escaped, so that nothing that a candidate wrote can become markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

#: Characters that could control a page or deceive a reader: controls except tab and newline, invisible and
#: direction-changing characters, and lone surrogates, which JSON can express and UTF-8 cannot.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")

Child = ET.Element | str | None


def visible(text: str) -> str:
    """Return text with hidden characters made visible: controls as their pictures, others by their code."""
    return _HIDDEN.sub(_shown, text.replace("\r\n", "\n"))


def node(tag: str, /, *children: Child, **attributes: str | float | None) -> ET.Element:
    """Return an element. `class_` means the attribute class, `data_x` data-x; None leaves out an attribute or a child."""
    element = ET.Element(tag)
    for name, value in attributes.items():
        if value is not None:
            text = visible(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
            element.set(name.rstrip("_").replace("_", "-"), text)
    for child in children:
        if isinstance(child, ET.Element):
            element.append(child)
        elif child is not None:
            _append_text(element, visible(child))
    return element


def html(*elements: ET.Element) -> str:
    """Return elements as HTML."""
    return "\n".join(ET.tostring(element, encoding="unicode", method="html") for element in elements)


def _append_text(element: ET.Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"
