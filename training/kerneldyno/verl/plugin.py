"""What verl imports in each of its processes: by the entry point group `verl.plugins`, or by VERL_USE_EXTERNAL_MODULES.

Importing it registers the advantage estimators, the agent loop and the reward manager. It opens no connection.

verl says only at DEBUG level that a plugin could not be imported, and goes on without it: the first that one would see
is "unknown advantage estimator". So the reason is logged here, as an error.
"""

from __future__ import annotations

import logging

_log = logging.getLogger("kerneldyno.verl")

try:
    from kerneldyno.verl import agent_loop, estimator, manager
except Exception:
    _log.exception("the KernelDyno plugin was not loaded; `kerneldyno doctor verl` says what is missing")
    raise

__all__ = ["agent_loop", "estimator", "manager"]
