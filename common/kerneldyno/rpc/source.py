"""Text that becomes Python source: a byte order mark at its start is not part of the program.

Editors on Windows write one, and it stays in files, copied text and models' answers. Python skips it in a file, but
`compile` refuses it in a string.
"""

from __future__ import annotations

BYTE_ORDER_MARK = "\ufeff"


def without_mark(text: str) -> str:
    """Return `text` without any byte order marks at its start; others, such as one in a string, stay.

    Python skips only one. Here all are removed, because a request passes several services that each may call this, and
    the text must be the same for all of them.
    """
    return text.lstrip(BYTE_ORDER_MARK)
