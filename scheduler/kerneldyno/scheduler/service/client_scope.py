"""The evaluations that a call may see. Where tokens are in use, each token owner's client ids are a namespace of their own.

Evaluations are stored under `<owner>/<client id>`. One owner can therefore neither read nor cancel another's work by
guessing its ids, and all clients of an owner have one share of the devices (Key.share). Without tokens, client ids are
stored as given.
"""

from __future__ import annotations

from kerneldyno.rpc import auth
from kerneldyno.rpc.roles import Role
from kerneldyno.rpc.tokens import ANONYMOUS


def stored_client_id(client_id: str) -> str:
    """Return the client id under which work that the present call submits is stored."""
    who = auth.principal()
    return client_id if who is ANONYMOUS else f"{who.name}/{client_id}"


def possible_client_ids(client_id: str) -> tuple[str, ...]:
    """Return the stored client ids that the present call may mean by `client_id`.

    It is the caller's own one; for callers that see other owners' work also `client_id` itself, as listings show it.
    """
    if _sees_only_own():
        return (stored_client_id(client_id),)
    return tuple(dict.fromkeys((stored_client_id(client_id), client_id)))


def visible_share() -> str:
    """Return the only share that the present call may see; empty if it may see all."""
    return auth.principal().name if _sees_only_own() else ""


def _sees_only_own() -> bool:
    who = auth.principal()
    return who is not ANONYMOUS and not who.roles & (Role.OPERATE | Role.READ)
