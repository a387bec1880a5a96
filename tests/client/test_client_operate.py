"""The commands of operators: nodes, drain, undrain, evaluations, cancel, quarantines, release."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kerneldyno.cli.evaluations import _time
from kerneldyno.cli.nodes import _state
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_END_TO_END, EvalRequest
from tests.client.command import NOBODY, finished, invoke, started
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually

DIGESTS = ("abcdef01" * 8, "abcdef02" * 8)


@pytest.fixture
async def history(scheduler: FakeFleet) -> FakeFleet:
    """Two evaluations of one client, one of which never ends, and one evaluation of another client."""
    for client_id, id, code, step in (
        ("trainer", "a", "ok", "1"),
        ("trainer", "b", "hang", "2"),
        ("x", "c", "ok", "1"),
    ):
        scheduler.submit(client_id, EvalRequest(id=id, kernel_code=code, labels={"step": step, "seed": "[red]7"}))
    await eventually(lambda: sum(work.task.done() for work in scheduler.work.values()) == 2)
    return scheduler


class TestNodes:
    async def test_for_a_person_and_for_a_program(self, scheduler: FakeFleet) -> None:
        ran = await invoke("nodes", "--address", scheduler.address, COLUMNS="160")
        assert ran.status == 0
        here, gone = (next(line for line in ran.out.splitlines() if node in line) for node in ("node-a", "node-b"))
        assert all(word in here for word in ("serving", "1 x A processor", "pool=a, zone=z1"))
        assert "lost" in gone
        ran = await invoke("nodes", "--json", "--address", scheduler.address)
        here, gone = ran.json["nodes"]
        assert (here["state"], here["drained"], here["running"]) == ("NODE_STATE_SERVING", False, 0)
        assert here["labels"] == {"pool": "a", "zone": "z1"}
        assert gone["connected"] is False

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"state": pb.NODE_STATE_SERVING, "connected": True}, "serving"),
            ({"state": pb.NODE_STATE_SERVING}, "serving, not connected"),
            ({"state": pb.NODE_STATE_DRAINING, "drained": True, "running": 1}, "draining"),
            ({"state": pb.NODE_STATE_DRAINING, "drained": True}, "drained"),
            ({"state": pb.NODE_STATE_DRAINING, "running": 1}, "stopping"),
            ({"state": pb.NODE_STATE_LOST, "drained": True}, "lost, drained"),
            (
                {"state": pb.NODE_STATE_QUARANTINED, "failures": 3, "connected": True},
                "quarantined, 3 failures in a row",
            ),
        ],
    )
    def test_states_in_words(self, fields: dict[str, int], words: str) -> None:
        assert _state(pb.Node(**fields)) == words


class TestDrain:
    async def test_there_and_back(self, scheduler: FakeFleet) -> None:
        scheduler.nodes["node-a"].running = 2
        ran = await invoke("drain", "node-a", "--address", scheduler.address)
        assert (ran.status, ran.out) == (0, "node-a: draining, 2 running\n")
        assert scheduler.nodes["node-a"].drained
        ran = await invoke("undrain", "node-a", "--json", "--address", scheduler.address)
        assert (ran.status, ran.json["node"]["drained"]) == (0, False)

    async def test_waiting_ends_when_nothing_runs_there(self, scheduler: FakeFleet) -> None:
        node = scheduler.nodes["node-a"]
        node.running = 2
        async with started("drain", "node-a", "--wait", "--address", scheduler.address) as process:
            await eventually(lambda: scheduler.watching == 1)
            node.running = 1
            scheduler.change()
            await scheduler.break_streams()
            await asyncio.sleep(0.5)
            assert process.returncode is None
            node.running = 0
            scheduler.change()
            ran = await finished(process)
        assert (ran.status, ran.out) == (0, "node-a: drained, 0 running\n")

    async def test_waiting_for_an_idle_node_is_over_at_once(self, scheduler: FakeFleet) -> None:
        ran = await invoke("drain", "node-a", "--wait", "--address", scheduler.address)
        assert (ran.status, ran.out) == (0, "node-a: drained, 0 running\n")

    @pytest.mark.parametrize("what", ["undrained", "forgotten"])
    async def test_waiting_in_vain_is_said(self, scheduler: FakeFleet, what: str) -> None:
        scheduler.nodes["node-a"].running = 2
        command = asyncio.create_task(invoke("drain", "node-a", "--wait", "--address", scheduler.address))
        await eventually(lambda: scheduler.watching == 1)
        if what == "undrained":
            scheduler.nodes["node-a"].drained = False
        else:
            del scheduler.nodes["node-a"]
        scheduler.change()
        ran = await command
        assert ran.status == 1
        assert ("undrained" if what == "undrained" else "no longer knows node-a") in ran.err

    async def test_a_node_that_nobody_knows(self, scheduler: FakeFleet) -> None:
        for command in ("drain", "undrain"):
            ran = await invoke(command, "node-x", "--address", scheduler.address)
            assert (ran.status, ran.err.count("\n")) == (1, 1)
            assert "no node 'node-x' is registered" in ran.err


class TestEvaluations:
    async def test_for_a_person(self, history: FakeFleet) -> None:
        ran = await invoke("evaluations", "--address", history.address, COLUMNS="160")
        assert ran.status == 0
        lines = [line for line in ran.out.splitlines() if "step=" in line]
        assert [line.split()[0] for line in lines] == ["c", "b", "a"]
        assert "queued" in lines[1]
        assert "CORRECT" in lines[2]
        assert "2.00x" in lines[2]
        assert "seed=[red]7" in lines[2]
        ran = await invoke("evaluations", "--limit", 2, "--address", history.address)
        assert "Only the newest 2 are shown" in ran.out
        assert history.lists[-1].page_size == 3

    async def test_the_speedup_is_the_one_that_counts(self, history: FakeFleet) -> None:
        history.submit("x", EvalRequest(id="ended", kernel_code="ok", speedup_kind=SPEEDUP_KIND_END_TO_END))
        await eventually(lambda: history.work["x", "ended"].task.done())
        ran = await invoke("evaluations", "--address", history.address, COLUMNS="160")
        lines = {line.split()[0]: line for line in ran.out.splitlines() if "CORRECT" in line}
        assert "3.00x end to end" in lines["ended"]
        assert "2.00x" in lines["c"]
        assert "end to end" not in lines["c"]

    async def test_json_has_whole_results(self, history: FakeFleet) -> None:
        ran = await invoke("evaluations", "--json", "--limit", 3, "--address", history.address)
        assert [one["id"] for one in ran.json["evaluations"]] == ["c", "b", "a"]
        assert ran.json["more"] is False
        assert ran.json["evaluations"][2]["result"]["logs"] == "what it wrote"
        assert len(ran.json["evaluations"][2]["digest"]) == 64
        assert "result" not in ran.json["evaluations"][1]

    async def test_options_become_filters(self, history: FakeFleet) -> None:
        options = ["--client", "trainer", "--outcome", "correct", "--outcome", "OUT_OF_MEMORY", "--unfinished"]
        options += [
            "--label",
            "step=1",
            "--label",
            "note=a=b",
            "--digest",
            "ab",
            "--since",
            "2h",
            "--until",
            "2100-01-01",
        ]
        ran = await invoke("evaluations", *options, "--json", "--address", history.address)
        assert (ran.status, ran.json) == (0, {"evaluations": [], "more": False})
        (asked,) = history.lists
        assert (asked.client_id, list(asked.outcomes), asked.unfinished) == ("trainer", [1, 6], True)
        assert (dict(asked.labels), asked.digest) == ({"step": "1", "note": "a=b"}, "ab")
        age = datetime.now(UTC) - asked.accepted_after.ToDatetime(UTC)
        assert timedelta(hours=2) <= age < timedelta(hours=2, minutes=5)
        assert asked.accepted_before.ToDatetime().year in (2099, 2100)

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (["--outcome", "RIGHT"], "choose one of CORRECT, INCORRECT"),
            (["--outcome", "OUTCOME_UNSPECIFIED"], "choose one of CORRECT"),
            (["--label", "step"], "KEY=VALUE"),
            (["--since", "yesterday"], "90s, 30m, 2h, 7d"),
            (["--limit", "0"], "--limit"),
        ],
    )
    async def test_usage(self, options: list[str], says: str) -> None:
        ran = await invoke("evaluations", *options, "--address", NOBODY)
        assert ran.status == 2
        assert says in ran.err

    def test_times(self) -> None:
        assert _time("", "2026-01-02T03:04:05+02:00") == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)
        assert _time("", "2026-01-02").astimezone().hour == 0
        for text, age in (("90s", 90), ("30m", 1800), ("7d", 604800)):
            assert abs((datetime.now(UTC) - _time("", text)).total_seconds() - age) < 60


class TestCancel:
    async def test_by_id(self, history: FakeFleet) -> None:
        ran = await invoke("cancel", "a", "b", "b", "--client", "trainer", "--address", history.address)
        assert (ran.status, ran.out) == (0, "1 of 2 cancelled; the others are finished, or unknown\n")
        assert history.cancelled == ["b"]

    async def test_everything_of_a_client(self, history: FakeFleet) -> None:
        ran = await invoke("cancel", "--all", "--client", "trainer", "--json", "--address", history.address)
        assert (ran.status, ran.json) == (0, {"cancelled": 1})
        assert history.cancelled == ["b"]

    async def test_a_client_may_have_no_name(self, scheduler: FakeFleet) -> None:
        """An evaluation of EvaluateOnce has no client name if the caller gives none."""
        scheduler.submit("", EvalRequest(id="a", kernel_code="hang"))
        ran = await invoke("cancel", "a", "--client", "", "--address", scheduler.address)
        assert (ran.status, ran.out) == (0, "1 cancelled\n")

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--client", "c"], "give the ids to cancel, or --all"),
            (["a", "--all", "--client", "c"], "give the ids to cancel, or --all"),
            (["a"], "--client CLIENT_ID"),
        ],
    )
    async def test_usage(self, arguments: list[str], says: str) -> None:
        ran = await invoke("cancel", *arguments, "--address", NOBODY)
        assert (ran.status, ran.out) == (2, "")
        assert says in ran.err


class TestQuarantines:
    @pytest.fixture(autouse=True)
    def quarantined(self, scheduler: FakeFleet) -> None:
        since = Timestamp(seconds=1_800_000_000)
        scheduler.quarantines = [
            pb.Quarantine(node_id="node-a", reason="3 attempts in a row failed on it", start_time=since),
            *(pb.Quarantine(digest=digest, reason="killed \x1b[2J2 nodes", start_time=since) for digest in DIGESTS),
        ]

    async def test_for_a_person_and_for_a_program(self, scheduler: FakeFleet) -> None:
        ran = await invoke("quarantines", "--address", scheduler.address, COLUMNS="160")
        assert ran.status == 0
        assert "node node-a" in ran.out
        assert "work abcdef01abcdef01" in ran.out
        assert "2027-01-1" in ran.out
        assert "\x1b" not in ran.out
        ran = await invoke("quarantines", "--json", "--address", scheduler.address)
        assert [one["digest"] for one in ran.json["quarantines"]] == ["", *DIGESTS]

    async def test_release(self, scheduler: FakeFleet) -> None:
        ran = await invoke("release", "node-a", "--address", scheduler.address)
        assert (ran.status, ran.out) == (0, "released node node-a\n")
        ran = await invoke("release", "ABCDEF01", "--address", scheduler.address)
        assert (ran.status, ran.out) == (0, f"released work {DIGESTS[0]}\n")
        ran = await invoke("release", DIGESTS[1], "--json", "--address", scheduler.address)
        assert (ran.status, ran.json["released"]["digest"]) == (0, DIGESTS[1])
        assert scheduler.quarantines == []
        assert (await invoke("quarantines", "--address", scheduler.address)).out == "Nothing is in quarantine.\n"

    @pytest.mark.parametrize(
        ("target", "status", "says"),
        [
            ("abcdef", 2, "2 digests begin with this"),
            ("abcde", 1, "not in quarantine"),
            ("node-b", 1, "not in quarantine"),
        ],
    )
    async def test_what_names_nothing_or_too_much(
        self, scheduler: FakeFleet, target: str, status: int, says: str
    ) -> None:
        ran = await invoke("release", target, "--address", scheduler.address)
        assert (ran.status, ran.err.count("\n")) == (status, 1)
        assert says in ran.err
        assert len(scheduler.quarantines) == 3


@pytest.mark.parametrize(
    "arguments",
    [["nodes"], ["drain", "n"], ["evaluations"], ["cancel", "a", "--client", "c"], ["quarantines"], ["release", "n"]],
    ids=lambda arguments: arguments[0],
)
async def test_nobody_there(arguments: list[str]) -> None:
    ran = await invoke(*arguments, "--address", NOBODY)
    assert (ran.status, ran.out, ran.err.count("\n")) == (3, "", 1)
    assert NOBODY in ran.err
