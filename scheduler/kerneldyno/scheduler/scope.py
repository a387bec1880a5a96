"""Whose evaluations a call may name. Where tokens are in use, each owner's client ids are a name space of their own.

Evaluations are kept under `<owner>/<client id>`, so that one owner can neither read nor cancel another's work by guessing
its ids, and all clients of an owner have one share of the devices (Key.share). Without tokens client ids are what they are.
"""

from __future__ import annotations

from kerneldyno.rpc import auth
from kerneldyno.rpc.roles import Role
from kerneldyno.rpc.tokens import ANONYMOUS


def own(client_id: str) -> str:
    """Return under which client id work that is submitted by the present call is kept."""
    who = auth.principal()
    return client_id if who is ANONYMOUS else f"{who.name}/{client_id}"


def named(client_id: str) -> tuple[str, ...]:
    """Return which client ids the present call may mean: one's own, and for those who see others also as it is listed."""
    if _sees_only_own():
        return (own(client_id),)
    return tuple(dict.fromkeys((own(client_id), client_id)))


def share() -> str:
    """Return the share to which a listing is restricted; empty for none."""
    return auth.principal().name if _sees_only_own() else ""


def _sees_only_own() -> bool:
    who = auth.principal()
    return who is not ANONYMOUS and not who.roles & (Role.OPERATE | Role.READ)
