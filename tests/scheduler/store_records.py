"""Records for the tests of the stores."""

from __future__ import annotations

from kerneldyno.scheduler.core.model import Key, Priority, Verdict
from kerneldyno.scheduler.core.records import Accepted, Answered, Finished, Placed, Returned

ENVIRONMENT = b"gpu A"


def key(name: object, client_id: str = "client") -> Key:
    return Key(client_id, str(name))


def job_of(name: object) -> bytes:
    return f"job {name}".encode()


def accepted(
    name: object, *, job: object = None, at: float = 100.0, client_id: str = "client", **labels: str
) -> Accepted:
    """Return the record of an evaluation with a new job, or of one that joins the job of `job`."""
    job_id = job_of(name if job is None else job)
    payload = b"request " + job_id if job is None else None
    own = key(name, client_id)
    return Accepted(own, b"body", job_id, job_id, Priority.NORMAL, labels, at, None, job is not None, payload)


def placed(name: object, *, attempts: int = 1, node: str = "n1") -> Placed:
    return Placed(job_of(name), f"token {name} {attempts}", node, "instance", attempts, 110.0 + attempts)


def returned(name: object, *, attempts: int = 1, crashes: int = 0, unlucky: tuple[str, ...] = ()) -> Returned:
    return Returned(job_of(name), attempts, crashes, unlucky)


def correct(payload: bytes = b"result", environment: bytes = ENVIRONMENT) -> Verdict:
    return Verdict("CORRECT", payload, None, environment)


def finished(
    name: object,
    *others: object,
    verdict: Verdict | None = None,
    at: float = 120.0,
    ends: bool = True,
    client_id: str = "client",
) -> Finished:
    """Return the record of the end of an evaluation, of others with the same verdict, and of its job."""
    verdict = verdict or correct()
    keys = tuple(key(each, client_id) for each in (name, *others))
    job_id = job_of(name)
    return Finished(keys, job_id if ends else None, job_id, verdict, verdict.failure is None, 1, 111.0, at)


def answered(name: object, *, by: object, number: int, verdict: Verdict | None = None, at: float = 130.0) -> Answered:
    """Return the record of an evaluation that the stored result of `by` answers."""
    return Answered(key(name), b"body", job_of(by), Priority.LOW, {}, at, number, verdict or correct())
