"""Text that becomes Python source, by Python's own rule: a byte order mark at its start is no part of the program.

Editors on Windows put one there, and files, copied text and models' answers carry it along. Python skips it in a file, and
`compile` refuses it in a string.
"""

from __future__ import annotations

BYTE_ORDER_MARK = "\ufeff"


def without_mark(text: str) -> str:
    """Return `text` without byte order marks at its start; every other one stays, such as one in a string.

    Python skips one only. A request passes several services, each of which may do this, and is to be the same for all.
    """
    return text.lstrip(BYTE_ORDER_MARK)
