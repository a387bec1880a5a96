"""The scope of a judge that several test files share."""

from __future__ import annotations

import os
from typing import Any, Literal


def of_a_judge(fixture_name: str, config: Any) -> Literal["session", "module"]:
    """Return "session" on the CPU device and "module" on a GPU, because other tests measure the memory of a GPU."""
    return "module" if os.environ.get("KERNELDYNO_REQUIRE_GPU") else "session"
