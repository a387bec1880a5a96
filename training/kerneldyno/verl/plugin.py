"""The module that verl imports in each process: by the entry point group `verl.plugins`, or by VERL_USE_EXTERNAL_MODULES.

Importing it registers the advantage estimators, the agent loop and the reward manager. It opens no connection.

If a plugin cannot be imported, verl says so only at DEBUG level and continues without it; the user would first see "unknown
advantage estimator". So this module logs the reason as an error.
"""

from __future__ import annotations

import logging

_log = logging.getLogger("kerneldyno.verl")

try:
    from kerneldyno.verl import agent_loop, estimator, manager
except Exception:
    _log.exception("event=plugin_not_loaded detail=%r", "run `kerneldyno doctor verl` to see what is missing")
    raise

__all__ = ["agent_loop", "estimator", "manager"]
