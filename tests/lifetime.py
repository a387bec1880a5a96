"""How long judges live that several files share: a fixture's scope, by the device of this run."""

from __future__ import annotations

import os
from typing import Any, Literal


def of_a_judge(fixture_name: str, config: Any) -> Literal["session", "module"]:
    """Return the whole session on the CPU device, and one file on a GPU, whose memory other tests measure."""
    return "module" if os.environ.get("KERNELDYNO_REQUIRE_GPU") else "session"
