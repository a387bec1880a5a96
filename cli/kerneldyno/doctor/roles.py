"""Check which of several schedulers serves, which are standbys, and which cannot be reached. For `kerneldyno doctor`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import grpc

from kerneldyno.doctor.checks import Check, State
from kerneldyno.rpc import channel, failover, unreachable
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.rpc.errors import CredentialsError, KernelDynoError, StandbyError, from_rpc_error
from kerneldyno.rpc.rotation import Endpoint
from kerneldyno.v1.scheduler_service_pb2 import SchedulerServiceGetCapabilitiesRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub

if TYPE_CHECKING:  # the generated module has it for type checkers only
    from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub

_CALL_SECONDS = 5.0


class Role(StrEnum):
    """What a scheduler does at present."""

    SERVING = "serving"
    STANDBY = "standby"
    UNREACHABLE = "unreachable"


async def of_each(address: str, credentials: Credentials) -> list[Check]:
    """Return a finding on each scheduler of a list, or none if `address` is a single scheduler that is no standby."""
    listed = channel.addresses(address)
    found = await asyncio.gather(*(failover.lookup(one) for one in listed))
    named = zip(listed, found, strict=True)
    endpoints = list(dict.fromkeys(one for address, of_it in named for one in of_it or [Endpoint(address)]))
    roles = await asyncio.gather(*(_role(endpoint, credentials) for endpoint in endpoints))
    if len(endpoints) == 1 and roles[0][0] is not Role.STANDBY:
        return []  # another check reports on it
    checks = [_check(endpoint, role, detail) for endpoint, (role, detail) in zip(endpoints, roles, strict=True)]
    return checks + _contradiction([role for role, _ in roles])


async def _role(endpoint: Endpoint, credentials: Credentials) -> tuple[Role, str]:
    """Ask one scheduler; return its role, and what else is known."""
    try:
        async with channel.open_one(endpoint, credentials) as peer:
            stub: SchedulerServiceAsyncStub = SchedulerServiceStub(peer)
            able = await stub.GetCapabilities(SchedulerServiceGetCapabilitiesRequest(), timeout=_CALL_SECONDS)
    except CredentialsError as error:
        return Role.UNREACHABLE, str(error)
    except grpc.aio.AioRpcError as error:
        known, details = from_rpc_error(error), error.details() or ""
        if isinstance(known, StandbyError):
            return (
                Role.STANDBY,
                f"it says that {known.serving} serves" if known.serving else "it knows none that serves",
            )
        if isinstance(known, KernelDynoError):
            return Role.UNREACHABLE, known.message
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return Role.UNREACHABLE, f"{unreachable.advice(details, credentials)} [{details}]"
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Role.UNREACHABLE, f"no answer within {_CALL_SECONDS:g} s"
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return Role.UNREACHABLE, unreachable.NOT_A_SCHEDULER
        return Role.UNREACHABLE, f"{error.code().name}: {details}"
    return Role.SERVING, f"version {able.version}, store {able.store}"


def _check(endpoint: Endpoint, role: Role, detail: str) -> Check:
    name = f"role of {endpoint}"
    if role is Role.UNREACHABLE:
        return Check(name, State.NOTE, f"{role}: {detail}", "start it: without a standby nobody takes over")
    return Check(name, State.OK, f"{role}, {detail}")


def _contradiction(roles: Sequence[Role]) -> list[Check]:
    """Return a finding if several schedulers serve at once: then they do not share a store."""
    serving = Counter(roles)[Role.SERVING]
    if serving < 2:
        return []
    text = f"{serving} of these schedulers serve at once: they do not share a store, and clients see only one of them"
    return [Check("schedulers", State.FAILED, text, "give all of them the same --store, or clients one address each")]
