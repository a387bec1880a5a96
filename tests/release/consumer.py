"""A user's program for mypy: if mypy does not know our types, the two ignores below are unused, which is an error."""

from __future__ import annotations

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult
from kerneldyno.rpc.version import VERSION
from kerneldyno.scheduler.settings import Settings


async def speedup(client: AsyncClient, reference: str, candidate: str) -> float:
    request = EvalRequest(id="one", reference_code=reference, kernel_code=candidate)
    async for result in client.evaluate([request]):
        right: bool = result.outcome == EvalResult.CORRECT
        return result.speedup if right else 0.0
    return 0.0


def address(settings: Settings) -> str:
    return f"{settings.listen} {VERSION}"


wrong: int = VERSION  # type: ignore[assignment]
client = AsyncClient(50051)  # type: ignore[arg-type]
