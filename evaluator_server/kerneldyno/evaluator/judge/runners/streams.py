"""Which sources may use several streams of a device at once, as far as their text tells."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: What makes a second stream, or uses something that does: graphs may have branches, recurrent layers of libraries have
#: their own streams, and so has code that torch.compile makes. The current stream, which every extension asks for, is
#: none of these, and neither is the word "compile" in KernelBench's comments.
_SEVERAL = re.compile(
    r"\bStream\b|ExternalStream|StreamCreate|StreamFromPool|cuda\.stream\b"
    r"|(?i:graph|rnn|lstm)|\bgru|_gru|GRU"
    r"|(?<!\bre)(?<!\bcute)(?<!\btilelang)\.compile\b|\bimport\b.*\bcompile\b"
)


def may_use_several(sources: Iterable[str]) -> bool:
    """Return True if one of these sources, in Python or C++, may use several streams.

    A source that hides this runs all the same, but its streams wait for each other.
    """
    return any(map(_SEVERAL.search, sources))
