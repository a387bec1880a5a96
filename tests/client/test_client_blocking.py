"""Tests of Client (without asyncio) with a scheduler in another thread; and that importing the client stays cheap."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from kerneldyno.client import Client, ClientClosedError, DuplicateIdError, EvalRequest, EvalResult, UnavailableError
from tests.client.fake_fleet import FakeFleet
from tests.waiting import wait_until


@pytest.fixture
def served() -> Iterator[FakeFleet]:
    """A scheduler in its own thread, because these tests block theirs."""
    with FakeFleet() as scheduler:
        yield scheduler


def request(id: str = "", code: str = "ok") -> EvalRequest:
    return EvalRequest(id=id, kernel_code=code)


def test_results_come_in_completion_order(served: FakeFleet) -> None:
    with Client(served.address) as client:
        results = [result.id for result in client.evaluate([request("slow", "sleep 0.3"), request("fast")])]
    assert results == ["fast", "slow"]


def test_a_generator_that_waits_for_a_result_gets_it(served: FakeFleet) -> None:
    """The generator runs in its own thread: when it blocks, results still arrive and nothing deadlocks."""
    seen = threading.Event()

    def source() -> Iterator[EvalRequest]:
        yield request("first")
        assert seen.wait(5)
        yield request("second")

    got = []
    with Client(served.address) as client:
        for result in client.evaluate(source()):
            got.append(result.id)
            seen.set()
    assert got == ["first", "second"]


def test_what_the_generator_raises_reaches_the_caller(served: FakeFleet) -> None:
    def source() -> Iterator[EvalRequest]:
        yield request("a", "hang")
        raise LookupError("gone")

    with Client(served.address) as client:
        results = client.evaluate(source())
        with pytest.raises(LookupError, match="gone"):
            list(results)


def test_breaking_out_cancels_and_closes_the_generator(served: FakeFleet) -> None:
    closed = threading.Event()

    def source() -> Iterator[EvalRequest]:
        try:
            yield request("a")
            while True:
                yield request(code="hang")
        finally:
            closed.set()

    with Client(served.address, window=4) as client:
        for result in client.evaluate(source()):
            assert result.id == "a"
            wait_until(lambda: len(served.runs) >= 2)  # this result may come before the next request was sent
            break
        wait_until(lambda: set(served.cancelled) == set(served.runs) - {"a"})
    assert closed.wait(5)


def test_duplicates_are_refused_before_anything_is_sent(served: FakeFleet) -> None:
    with Client(served.address) as client:
        with pytest.raises(DuplicateIdError):
            client.evaluate([request("a"), request("a")])
        assert served.messages == []


def test_single_calls_and_their_errors(served: FakeFleet) -> None:
    with Client(served.address) as client:
        assert client.evaluate_once(request("a")).outcome == EvalResult.CORRECT
        assert client.get("a").result.id == "a"
        assert client.capabilities().nodes == 1
        assert len(client.nodes()) == 2
    with pytest.raises(ClientClosedError):
        client.get("a")
    with Client("127.0.0.1:1") as lost, pytest.raises(UnavailableError):
        lost.capabilities()


def test_closing_from_elsewhere_ends_the_iteration_with_an_error(served: FakeFleet) -> None:
    client = Client(served.address)
    with client:
        results = client.evaluate([request("a"), request("b", "hang")])
        assert next(results).id == "a"
    with pytest.raises(ClientClosedError):
        next(results)
    assert served.cancelled == ["b"]


def test_ctrl_c_before_anybody_waits_for_the_next_result_leaves_nothing_waiting(
    served: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(served.address) as client:
        results = client.evaluate([EvalRequest(id="a"), EvalRequest(id="b", kernel_code="hang")])
        assert next(results).id == "a"
        run = client._run

        def interrupted(work: Coroutine[Any, Any, Any]) -> None:
            monkeypatch.setattr(client, "_run", run)
            assert client._loop is not None
            asyncio.run_coroutine_threadsafe(work, client._loop)
            raise KeyboardInterrupt

        monkeypatch.setattr(client, "_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(results)
    assert served.cancelled == ["b"]


def test_ctrl_c_cancels_what_is_outstanding(served: FakeFleet) -> None:
    program = f"""
from kerneldyno.client import Client, EvalRequest
with Client({served.address!r}) as client:
    for result in client.evaluate([EvalRequest(id="a"), EvalRequest(id="b", kernel_code="hang")]):
        print(result.id, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "a\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=10)
    assert "KeyboardInterrupt" in errors
    assert served.cancelled == ["b"]


def test_importing_the_client_imports_neither_torch_nor_prometheus() -> None:
    program = """
import sys, kerneldyno.client, kerneldyno.cli
print([name for name in sys.modules if name.split(".")[0] in ("torch", "triton", "numpy", "prometheus_client")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
