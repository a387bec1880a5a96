"""Tests of `kerneldyno doctor` with no, broken and real services; and of `kerneldyno doctor verl` without verl.

tests/trainers tests the latter with verl installed.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from pathlib import Path

import pytest

from kerneldyno.client import LocalServices
from kerneldyno.client.errors import PermissionDeniedError
from kerneldyno.doctor import software
from kerneldyno.rpc import installing
from kerneldyno.v1 import fleet_service_pb2 as fleet
from tests.client.command import NOBODY, Ran, invoke, run
from tests.client.fake_fleet import FakeFleet
from tests.rpc.certificates import Authority

STATES = {"ok", "note", "failed"}


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the check of torch, which takes seconds."""
    monkeypatch.setattr(software, "torch", lambda: iter(()))


async def doctor(*arguments: object, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Run the command; return its status and its findings by name."""
    ran = await invoke("doctor", "--json", *arguments, **environment)
    assert ran.err == ""
    for check in ran.json:
        assert check.keys() == {"name", "state", "detail", "remedy"}
        assert check["state"] in STATES
        assert check["detail"]
        assert "\n" not in check["remedy"]
        assert check["remedy"] or check["state"] != "failed"
    found = {check["name"]: check for check in ran.json}
    assert len(found) == len(ran.json)
    failed = [check for check in ran.json if check["state"] == "failed"]
    assert ran.status == (1 if failed else 0)
    return ran.status, found


@pytest.mark.usefixtures("without_torch")
class TestUnhappy:
    async def test_nothing_is_running(self) -> None:
        status, found = await doctor("--address", NOBODY)
        assert status == 1
        assert "Connection refused" in found["scheduler"]["detail"]
        assert "kerneldyno up" in found["scheduler"]["remedy"]
        assert found.keys() >= {"python", "system", "sandbox here", "journal", "scratch", "clock", "credentials"}
        assert "canary" not in found

    async def test_a_port_that_another_program_holds(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            status, found = await doctor("--address", address)
        assert (status, found["scheduler"]["state"]) == (1, "failed")
        assert f"(pid {os.getpid()}), which does not answer as a scheduler" in found["scheduler"]["detail"]

    async def test_no_node(self, scheduler: FakeFleet) -> None:
        scheduler.nodes = {}
        _, found = await doctor("--address", scheduler.address)
        assert (found["nodes"]["state"], found["nodes"]["detail"]) == ("failed", "no evaluator is registered")
        assert found["canary"]["state"] == "note"

    async def test_no_node_that_is_ready(self, scheduler: FakeFleet) -> None:
        scheduler.nodes["node-a"].devices[0].ready = False
        _, found = await doctor("--address", scheduler.address)
        assert found["nodes"]["state"] == "failed"
        assert "node-a is without a ready device, node-b is lost" in found["nodes"]["detail"]

    async def test_a_judge_that_finds_everything_correct(self, scheduler: FakeFleet) -> None:
        status, found = await doctor("--address", scheduler.address)
        assert (status, found["canary (cpu)"]["state"]) == (1, "failed")
        assert found["canary (cpu)"]["detail"].startswith("the wrong candidate got CORRECT")
        assert found["canary (cpu)"]["remedy"].startswith("`kerneldyno trace doctor-")

    async def test_nodes_that_differ_and_quarantines_are_notes(self, scheduler: FakeFleet) -> None:
        other = scheduler.nodes["node-c"] = fleet.Node()
        other.CopyFrom(scheduler.nodes["node-a"])
        other.node_id, other.address, other.environment.torch_version = "node-c", "", "2.9.1"
        scheduler.quarantines = [fleet.Quarantine(node_id="node-b")]
        _, found = await doctor("--no-canary", "--address", scheduler.address)
        assert "canary (cpu)" not in found
        assert {name for name in ("nodes", "versions of nodes", "quarantines") if found[name]["state"] == "note"} == {
            *("nodes", "versions of nodes", "quarantines")
        }
        assert "all layers are active" in found["sandbox of node-c"]["detail"]
        assert found["sandbox of node-a"]["state"] == "ok"

    async def test_a_scheduler_that_shows_no_snapshots(self, scheduler: FakeFleet) -> None:
        scheduler.refusals.append(PermissionDeniedError("the role read is needed"))
        _, found = await doctor("--no-canary", "--address", scheduler.address)
        assert found["scheduler"]["state"] == "ok"
        assert found["scheduler's clock"]["state"] == "note"

    @pytest.mark.parametrize(("seconds", "state"), [(-3, "ok"), (-600, "note"), (600, "note")])
    async def test_a_clock_that_goes_wrong(self, scheduler: FakeFleet, seconds: int, state: str) -> None:
        heard = scheduler.nodes["node-a"].last_synchronize_time
        heard.FromSeconds(int(time.time()) + seconds)
        _, found = await doctor("--no-canary", "--address", scheduler.address)
        assert found["scheduler's clock"]["state"] == state

    async def test_an_expired_certificate(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        pair = authority.issue("alice", days=-1)
        files = {"KERNELDYNO_TLS_CERT": pair.cert, "KERNELDYNO_TLS_KEY": pair.key}
        _, found = await doctor("--address", NOBODY, KERNELDYNO_TLS_CA=authority.cert, **files)
        assert found["own certificate"]["state"] == "failed"
        assert "expired at" in found["own certificate"]["detail"]
        assert (found["credentials"]["state"], found["scheduler"]["state"]) == ("ok", "failed")

    async def test_a_token_that_everybody_may_read(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("secret-word")
        (tmp_path / "token").chmod(0o644)
        _, found = await doctor("--address", NOBODY, "--token-file", tmp_path / "token")
        assert found["credentials"]["state"] == "failed"
        assert "chmod 600" in found["credentials"]["detail"]
        assert "secret-word" not in str(found)

    async def test_services_of_its_own_that_do_not_start(self) -> None:
        _, found = await doctor("--local", "--devices", "cuda:99")
        assert found["local services"]["state"] == "failed"
        assert "cuda" in found["local services"]["detail"]

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--devices", "cpu"], "need --local"),
            (["verl", "--local"], "cannot be used with verl"),
            (["--timeout", "0"], "--timeout"),
        ],
    )
    async def test_usage(self, arguments: list[str], says: str) -> None:
        ran = await invoke("doctor", *arguments, "--address", NOBODY)
        assert ran.status == 2
        assert says in ran.err


class TestRealServices:
    async def test_a_canary_comes_back_and_can_be_traced(self, cpu_services: LocalServices) -> None:
        ran = await run("doctor", "--address", cpu_services.address)
        lines = {line[7:29].strip(): line for line in ran.out.splitlines()}
        assert lines["canary (cpu)"].startswith("ok "), ran.out
        assert "the right one is CORRECT, the wrong one INCORRECT" in lines["canary (cpu)"]
        for name in ("torch, triton", "scheduler", "scheduler's clock", "nodes", "quarantines"):
            assert lines[name].startswith(("ok ", "note ")), ran.out
        assert "\x1b" not in ran.out
        failed = sum(line.startswith("failed ") for line in ran.out.splitlines())
        assert ran.status == (1 if failed else 0)
        assert ran.out.splitlines()[-1].endswith(" to note")
        await self._traced(cpu_services.address)

    async def _traced(self, address: str) -> None:
        listed = (await invoke("evaluations", "--label", "kerneldyno=doctor", "--json", "--address", address)).json
        right = next(one["id"] for one in listed["evaluations"] if one["result"]["outcome"] == "CORRECT")
        (evaluation,) = (await invoke("trace", right, "--json", "--address", address)).json["evaluations"]
        steps = [step["step"] for step in evaluation["timeline"] if not step["gap"]]
        assert steps[0] == "queued"
        assert steps.index("loading") < steps.index("compiling") < steps.index("checking") < steps.index("timing")
        took = sum(step["seconds"] for step in evaluation["timeline"])
        ends = max(step["start_seconds"] + step["seconds"] for step in evaluation["timeline"])
        assert took == pytest.approx(ends, rel=0.05)
        shown: Ran = await invoke("trace", right, "--address", address, COLUMNS="80")
        assert max(map(len, shown.out.splitlines())) <= 80
        assert "timing" in shown.out


@pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed here")
class TestWithoutVerl:
    async def test_it_says_what_to_install(self) -> None:
        ran = await run("doctor", "verl")
        assert ran.status == 1
        assert "not installed" in ran.out
        assert installing.command("verl") in ran.out

    async def test_as_json(self) -> None:
        ran = await run("doctor", "verl", "--json")
        assert ran.status == 1
        assert [(check["name"], check["state"]) for check in ran.json] == [("verl", "failed")]

    async def test_another_trainer_is_a_usage_error(self) -> None:
        ran = await run("doctor", "openrlhf")
        assert ran.status == 2
        assert "verl" in ran.err
