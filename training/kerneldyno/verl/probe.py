"""Import verl in a new process, as every process of a run does, and print the registered names as one line of JSON.

`kerneldyno doctor verl` runs it: `python -m kerneldyno.verl.probe`. Importing verl in a separate process keeps the output
of verl and Ray, and their crashes, out of the command.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

#: Prefix of the line, to find it among other output.
PREFIX = "kerneldyno-probe "
PLUGIN = "kerneldyno.verl.plugin"


def look() -> dict[str, Any]:
    """Import verl and report its plugins.

    Returns:
        `verl`: the error if verl cannot be imported; `loaded`: whether verl imported the plugin; `error`: the error if the
        plugin cannot be imported; `estimators`, `agent_loop`, `manager`: what is registered under our names.
    """
    found: dict[str, Any] = {
        "verl": "",
        "loaded": False,
        "error": "",
        "estimators": [],
        "agent_loop": False,
        "manager": False,
    }
    try:
        import verl  # noqa: F401 - loads its plugins
    except Exception:
        return found | {"verl": _last_lines()}
    found["loaded"] = PLUGIN in sys.modules
    if not found["loaded"]:
        try:
            __import__(PLUGIN)
        except Exception:
            return found | {"error": _last_lines()}
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    estimators = sorted(name for name in ADV_ESTIMATOR_REGISTRY if name == "trloo" or name.startswith("kerneldyno_"))
    return found | {
        "estimators": estimators,
        "agent_loop": "kernel_agent" in _agent_loop_registry,
        "manager": "kerneldyno" in REWARD_MANAGER,
    }


def _last_lines() -> str:
    return "\n".join(traceback.format_exc().strip().splitlines()[-6:])


if __name__ == "__main__":
    print(PREFIX + json.dumps(look()), flush=True)
