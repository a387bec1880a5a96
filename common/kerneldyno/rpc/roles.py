"""Roles that a token may have, and for every RPC the roles that allow it.

Where tokens are in use, an RPC that is not in the table cannot be called; a test compares the table with the services.
"""

from __future__ import annotations

from enum import Flag, auto


class Role(Flag):
    """What the owner of a token may do. No role includes another; a token may have several."""

    SUBMIT = auto()
    """May send work, and read and cancel its own."""
    OPERATE = auto()
    """May drain nodes, release quarantines, and cancel anything."""
    NODE = auto()
    """May join as an evaluator node."""
    READ = auto()
    """May read only."""

    def __str__(self) -> str:
        return "+".join(role.name.lower() for role in self if role.name is not None)


#: What every caller has where no tokens are in use.
EVERY_ROLE = ~Role(0)
_LOOKS = Role.READ | Role.SUBMIT | Role.OPERATE
_NOBODY = Role(0)

_TABLE: dict[str, dict[str, Role]] = {
    "kerneldyno.v1.SchedulerService": {
        "Evaluate": Role.SUBMIT,
        "EvaluateOnce": Role.SUBMIT,
        "GetEvaluation": _LOOKS,
        "ValidateRequest": EVERY_ROLE,
        "ListEvaluations": _LOOKS,
        "CancelEvaluation": Role.SUBMIT | Role.OPERATE,
        "CancelEvaluations": Role.SUBMIT | Role.OPERATE,
        "GetCapabilities": EVERY_ROLE,
    },
    "kerneldyno.v1.RewardService": {
        "StreamRewards": Role.SUBMIT,
    },
    "kerneldyno.v1.FleetService": {
        "Synchronize": Role.NODE,
        "Work": Role.NODE,
        "ListNodes": EVERY_ROLE,
        "WatchCluster": EVERY_ROLE,
        "ListQuarantines": EVERY_ROLE,
        "DrainNode": Role.OPERATE,
        "UndrainNode": Role.OPERATE,
        "ReleaseQuarantine": Role.OPERATE,
    },
    "kerneldyno.v1.EvaluatorService": {
        "Evaluate": Role.SUBMIT,
        "WatchAttempt": Role.SUBMIT,
        "CancelAttempt": Role.SUBMIT | Role.OPERATE,
        "GetCapabilities": EVERY_ROLE,
    },
    "grpc.reflection.v1.ServerReflection": {
        "ServerReflectionInfo": EVERY_ROLE,
    },
    "grpc.reflection.v1alpha.ServerReflection": {
        "ServerReflectionInfo": EVERY_ROLE,
    },
}

#: Services that need no token, because health probes have none.
OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})

_BY_METHOD = {f"/{service}/{name}": roles for service, names in _TABLE.items() for name, roles in names.items()}


def is_open(method: str) -> bool:
    """Return True if `method` ("/package.Service/Name") needs no token."""
    return method.lstrip("/").rpartition("/")[0] in OPEN_SERVICES


def allowing(method: str) -> Role:
    """Return the roles of which any one allows `method` ("/package.Service/Name"); no role for an unknown method."""
    return _BY_METHOD.get(method, _NOBODY)
