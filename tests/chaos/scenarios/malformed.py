"""Row 31: ten thousand malformed messages, to every call of the scheduler."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from kerneldyno.rpc import channel
from kerneldyno.v1 import fleet_service_pb2 as fleet
from kerneldyno.v1 import reward_service_pb2 as rewards
from kerneldyno.v1 import scheduler_service_pb2 as front
from kerneldyno.v1.evaluation_pb2 import STAGE_LOADING, EvalResult
from tests.chaos.clients import request
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_least, at_most, audit_all, exactly, kept, percentile, run_clients

ROWS = (31,)
TITLE = "Malformed messages to every call"
#: Longest wait for an answer. This ends calls that would go on for ever because nothing is wrong with them.
PATIENCE_SECONDS = 2.0
IN_FLIGHT = 16
#: More bytes than any message may have.
TOO_MUCH_BYTES = 17 * 2**20
#: Calls whose requests, or only whose answers, are a stream.
STREAMS = frozenset({"Evaluate", "StreamRewards", "Work"})
WATCHES = frozenset({"WatchCluster"})
OURS = frozenset({"INTERNAL", "UNKNOWN"})


def seeds() -> list[tuple[str, str, list[Message]]]:
    """Return calls with well-formed messages: service, method, messages."""
    one = request("fuzz", "fuzz", labels={"a": "b"}, salt="s")
    one.timeouts.load_timeout.FromSeconds(5)
    one.tolerance.atol = 0.1
    one.device.kind = "cpu"
    node = fleet.SynchronizeRequest(
        node_id="ghost", instance_id="i", backends=["none"], toolkits=["none"], labels={"a": "b"}
    )
    node.devices.add(name="cpu:0", kind="cpu", model="x", memory_bytes=1, lanes=1, ready=True)
    work = fleet.WorkRequest(node_id="ghost", instance_id="i", held_attempt_tokens=["t"])
    work.events.add(attempt_token="t", stage=STAGE_LOADING, device="cpu:0").result.outcome = EvalResult.CORRECT
    work.refusals.add(attempt_token="t", why=1, detail="no").violations.add(field="f", description="d")
    listing = front.ListEvaluationsRequest(
        page_size=10, page_token="x", labels={"a": "b"}, digest="00", outcomes=[EvalResult.CORRECT]
    )
    listing.accepted_after.FromSeconds(1)
    turn = rewards.Turn(group="g", sample=1, turn_index=2, request=one, response_text="```python\nx = 1\n```")
    paid = rewards.RewardSpec(preset="drkernel", coverage_weight=0.5, feedback_chars=100)
    scheduler, nodes = "SchedulerService", "FleetService"
    return [
        (
            scheduler,
            "Evaluate",
            [front.EvaluateRequest(client_id="f", requests=[one], cancel_ids=["a"], attach_ids=["b"])],
        ),
        (scheduler, "EvaluateOnce", [front.EvaluateOnceRequest(client_id="f", request=one)]),
        (scheduler, "GetEvaluation", [front.GetEvaluationRequest(client_id="f", id="a")]),
        (scheduler, "ListEvaluations", [listing]),
        (scheduler, "CancelEvaluation", [front.CancelEvaluationRequest(client_id="f", id="a")]),
        (scheduler, "CancelEvaluations", [front.CancelEvaluationsRequest(client_id="f", ids=["a", "b"])]),
        (scheduler, "ValidateRequest", [front.ValidateRequestRequest(request=one)]),
        (scheduler, "GetCapabilities", [front.SchedulerServiceGetCapabilitiesRequest()]),
        (nodes, "Synchronize", [node]),
        (nodes, "Work", [work]),
        (nodes, "DrainNode", [fleet.DrainNodeRequest(node_id="ghost")]),
        (nodes, "UndrainNode", [fleet.UndrainNodeRequest(node_id="ghost")]),
        (nodes, "ReleaseQuarantine", [fleet.ReleaseQuarantineRequest(digest="00")]),
        (nodes, "ListNodes", [fleet.ListNodesRequest()]),
        (nodes, "ListQuarantines", [fleet.ListQuarantinesRequest()]),
        (nodes, "WatchCluster", [fleet.WatchClusterRequest()]),
        ("RewardService", "StreamRewards", [rewards.StreamRewardsRequest(client_id="f", turns=[turn], reward=paid)]),
    ]


def mutated(text: bytes, draw: random.Random) -> bytes:
    """Return `text` after some changes: flipped bits, cuts, repeats, bad UTF-8, large varints or random bytes."""
    data = bytearray(text)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << draw.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = data[at // 2 : at]
            case 3:
                data[at : at + 2] = b"\xff\xfe"
            case 4:
                data[at:at] = b"\xff" * 9 + b"\x01"
            case 5:
                data[at:at] = draw.randbytes(draw.randint(1, 40))
            case _:
                del data[at : at + draw.randint(1, 8)]
    return bytes(data)


async def run(plan: Plan) -> list[Figure]:
    """Check that no answer blames the scheduler, that refusals come at once, and that good work goes on meanwhile."""
    count = plan.count(10_000, 1_000)
    draw = random.Random(plan.seed)
    codes: Counter[str] = Counter()
    bad: list[str] = []
    refusals: list[float] = []
    async with Cluster(plan.directory, nodes=2, seed=plan.seed) as cluster:
        options = channel.client_options(own_connection=True)
        async with grpc.aio.insecure_channel(channel.target(cluster.address), options=options) as connection:
            calls = seeds()
            turns = asyncio.Semaphore(IN_FLIGHT)

            async def send(service: str, method: str, text: bytes) -> None:
                async with turns:
                    start = time.monotonic()
                    code, detail = await _call(connection, service, method, text)
                    codes[code] += 1
                    if code == "INVALID_ARGUMENT":
                        refusals.append(1000 * (time.monotonic() - start))
                    if code in OURS:
                        bad.append(f"{method}: {code} {detail}")

            good = asyncio.create_task(
                run_clients(cluster, {"good": [request(f"g{i}", f"g{i}") for i in range(200)]}, limit_seconds=300)
            )
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    service, method, messages = draw.choice(calls)
                    text = mutated(draw.choice(messages).SerializeToString(), draw)
                    group.create_task(send(service, method, text))
                    await asyncio.sleep(0)
                for _, method, _messages in calls[:3]:
                    group.create_task(send("SchedulerService", method, b"\x0a" + b"\xff" * TOO_MUCH_BYTES))
            await good
            refusals.clear()
            for _ in range(plan.count(1_000, 200)):  # one at a time, to see how long one takes
                await send("SchedulerService", "GetEvaluation", b"\x0a\xff\xff" + draw.randbytes(20))
        went_on = cluster.scheduler.alive
        restarts = cluster.scheduler.starts - 1
        events = [e for e in await audit_all(cluster) if e.get("client") != "f"]
        tracebacks = cluster.scheduler_log().count("Traceback")
    print("    codes:", ", ".join(f"{code} {number}" for code, number in codes.most_common()))
    for one in bad[:5]:
        print("   ", one[:300])
    return [
        exactly(31, "8", f"answers INTERNAL or UNKNOWN, of {sum(codes.values())} answers", len(bad), 0),
        at_least(31, "", "answered by INVALID_ARGUMENT", codes["INVALID_ARGUMENT"], 1),
        at_most(31, "", "duration of these answers, one at a time, p99", percentile(refusals, 0.99), 5, "ms"),
        exactly(31, "", "tracebacks in the scheduler's log", tracebacks, 0),
        exactly(31, "1", "the scheduler still runs and was not restarted", went_on and not restarts, True),
        *kept(31, "1", events),
    ]


async def _call(connection: grpc.aio.Channel, service: str, method: str, text: bytes) -> tuple[str, str]:
    path = f"/kerneldyno.v1.{service}/{method}"
    call: Any
    try:
        if method in STREAMS:
            call = connection.stream_stream(path)(timeout=PATIENCE_SECONDS)
            await call.write(text)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
        elif method in WATCHES:  # a good one never ends
            call = connection.unary_stream(path)(text, timeout=PATIENCE_SECONDS)
            await call.read()
            call.cancel()
        else:
            call = connection.unary_unary(path)
            await call(text, timeout=PATIENCE_SECONDS)
    except grpc.aio.AioRpcError as error:
        if error.details() == "Internal error from Core":  # an error of this side: the stream ended during a write
            return "CANCELLED", ""
        return error.code().name, error.details() or ""
    except asyncio.InvalidStateError:  # the stream ended during a write
        code = await call.code()
        return code.name, await call.details() or ""
    return "OK", ""
