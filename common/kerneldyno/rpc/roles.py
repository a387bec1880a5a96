"""Who may call what: the roles that a token may have, and for every RPC those that allow it.

An RPC that is not in the table cannot be called where tokens are in use; a test compares the table with the services.
"""

from __future__ import annotations

from enum import Flag, auto


class Role(Flag):
    """What the owner of a token is to the service. One role includes no other; a token may have several."""

    SUBMIT = auto()
    """Sends work and reads and cancels what becomes of it."""
    OPERATE = auto()
    """Drains nodes, releases quarantines, cancels anything."""
    NODE = auto()
    """Is an evaluator."""
    READ = auto()
    """Looks only."""

    def __str__(self) -> str:
        return "+".join(role.name.lower() for role in self if role.name is not None)


#: A service without tokens treats every caller as this.
EVERY_ROLE = ~Role(0)
_LOOKS = Role.READ | Role.SUBMIT | Role.OPERATE
_NOBODY = Role(0)

_TABLE: dict[str, dict[str, Role]] = {
    "kerneldyno.v1.SchedulerService": {
        "Evaluate": Role.SUBMIT,
        "EvaluateOnce": Role.SUBMIT,
        "GetEvaluation": _LOOKS,
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

#: Needs no token: probes have none.
OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})

_BY_METHOD = {f"/{service}/{name}": roles for service, names in _TABLE.items() for name, roles in names.items()}


def is_open(method: str) -> bool:
    """Whether `method` ("/package.Service/Name") needs no token."""
    return method.lstrip("/").rpartition("/")[0] in OPEN_SERVICES


def allowing(method: str) -> Role:
    """Return the roles of which one is enough to call `method` ("/package.Service/Name"); none for an unknown one."""
    return _BY_METHOD.get(method, _NOBODY)
