"""Write the audit log: one key=value line on the logger kerneldyno.audit for each call that changes work or nodes.

Refused calls are written too. Text from the caller is quoted and cut, so that no caller can forge a line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("kerneldyno.audit")

_MAX_CHARS = 200

#: For each audited method, a function that returns the arguments worth logging.
_ARGUMENTS: dict[str, Callable[[Any], dict[str, object]]] = {
    "DrainNode": lambda request: {"node": request.node_id},
    "UndrainNode": lambda request: {"node": request.node_id},
    "ReleaseQuarantine": lambda request: {"node": request.node_id, "digest": request.digest},
    "CancelEvaluation": lambda request: {"client": request.client_id, "id": request.id},
    "CancelEvaluations": lambda request: {"client": request.client_id, "ids": len(request.ids), "all": request.all},
    "CancelAttempt": lambda request: {"attempt": request.attempt_token[:8]},
}


def write(method: str, request: Any, context: Any, *, who: str, result: str) -> None:
    """Write the audit line of a call, if its method is audited.

    Args:
        method: bare name of the method.
        request: the request message.
        context: the gRPC context of the call.
        who: name of the caller.
        result: name of the call's status code.
    """
    arguments = _ARGUMENTS.get(method)
    if arguments is not None:
        told = " ".join(f"{key}={_shown(value)}" for key, value in arguments(request).items())
        line = "event=audit principal=%s peer=%s method=%s %s result=%s"
        _log.info(line, who, context.peer(), method, told, result)


def audited() -> frozenset[str]:
    """Return the bare names of the audited methods."""
    return frozenset(_ARGUMENTS)


def _shown(value: object) -> str:
    return json.dumps(value[:_MAX_CHARS] if isinstance(value, str) else value)
