"""What comparing an answer has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Comparison:
    """What was found. `mismatch` is the proto-JSON of IncorrectEvidence, or None when all is right."""

    mismatch: dict[str, Any] | None = None
    max_abs_error: float = 0.0
    max_error_ratio: float = 0.0
