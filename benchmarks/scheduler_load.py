"""Measure the capacity of one scheduler with real sockets, processes and a journal on disk; only judging is scripted.

    python -m benchmarks.scheduler_load [--seconds 20] [--rate 1000] [--only steady,peak] [--store sqlite] [--json FILE]

Every row starts a new scheduler (journal in a temporary folder) and one process that simulates the nodes
(`python -m kerneldyno.testing`: one connection for each node). This process is the client: it sends requests of 5 kB
over Evaluate streams and measures the time to each result. All share the machine's cores, so the figures depend on the
machine. `--store sqlite,postgres` runs each row with both kinds of journal, one after the other. The PostgreSQL server is
started for that, on a Unix socket, with fsync; it shares the cores as well.

Rows:
    half, steady   `rate`/2 and `rate` requests a second, evenly; added latency is the time beyond scripted judging
    peak           as many requests as possible, with 2,000 unfinished
    overload       three times the nodes' capacity; goodput, and how long EvaluateOnce takes to refuse
    fleet          `rate`/2 on 125 nodes with 8 devices each
    soak           (only if named) `rate`/5 for an hour; growth of the scheduler's memory
    takeover       (only if named, with postgres) kill -9 of the active scheduler under load; how long nobody served
    fair           one client floods, another sends slowly; the slow client's wait, compared with its wait alone
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil

from benchmarks.service import spawned
from kerneldyno.rpc import channel, errors
from kerneldyno.v1.evaluation_pb2 import EvalRequest
from kerneldyno.v1.fleet_service_pb2 import ListNodesRequest
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest, EvaluateRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.postgres import PostgresServer

#: Seconds of scripted judging in most rows.
JUDGING_SECONDS = 0.05
#: Seconds between two sends of a client with an even rate.
BEAT_SECONDS = 0.002
REFERENCES = ["# reference\n" + "x" * 2000 + str(i) for i in range(32)]
FILL = "# candidate\n" + "y" * 2900


@dataclass
class Service:
    """The processes of one row."""

    address: str
    scheduler: psutil.Process
    nodes: psutil.Process
    journal: Path
    database: psutil.Process | None = None
    memory: list[tuple[float, int]] = field(default_factory=list)
    """Resident bytes of the scheduler, by time."""

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far, by process."""
        processes = {"scheduler": self.scheduler, "nodes": self.nodes, "client": psutil.Process()}
        found = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
        if self.database is not None:  # each connection has a process of its own
            family = [self.database, *self.database.children()]
            found["database"] = sum(sum(process.cpu_times()[:2]) for process in family)
        return found


@dataclass
class Measured:
    """Measurements of a client."""

    sent: dict[str, float] = field(default_factory=dict)
    accepted_after: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """Seconds beyond the scripted judging, in order of completion."""
    done_at: list[float] = field(default_factory=list)
    wrong: int = 0


#: The server of the rows that run with a journal in PostgreSQL.
database: PostgresServer | None = None


@asynccontextmanager
async def service(nodes: int = 8, devices: int = 1, lanes: int = 8, **options: Any) -> AsyncIterator[Service]:
    """Start a scheduler and its nodes. Its journal is in `database`, if there is one."""
    with tempfile.TemporaryDirectory(prefix="kerneldyno-load-") as folder, contextlib.ExitStack() as stack:
        journal = Path(folder) / "scheduler.sqlite"
        command = [sys.executable, "-m", "kerneldyno.scheduler", "--listen", "127.0.0.1:0", "--metrics", "off"]
        store = database.schema() if database is not None else f"sqlite:{journal}"
        command += ["--store", store, "--log-level", "ERROR", "--exit-with-parent"]
        command += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        scheduler = stack.enter_context(spawned(command, stdout=subprocess.PIPE))
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().decode().split("grpc=")[1].split()[0]
        command = [sys.executable, "-m", "kerneldyno.testing", "--scheduler", address, "--node-id", "n"]
        command += ["--nodes", str(nodes), "--devices", str(devices), "--lanes", str(lanes)]
        simulated = stack.enter_context(spawned(command))
        async with _open(address) as peer:
            stub = FleetServiceStub(peer)
            async with asyncio.timeout(60):
                while True:
                    listed = (await stub.ListNodes(ListNodesRequest(), wait_for_ready=True, timeout=30)).nodes
                    if len(listed) == nodes and all(node.connected for node in listed):
                        break
                    await asyncio.sleep(0.1)
        found = Service(address, psutil.Process(scheduler.pid), psutil.Process(simulated.pid), journal)
        if database is not None and database.process is not None:
            found.journal, found.database = database.data / "PG_VERSION", psutil.Process(database.process.pid)
        watcher = asyncio.create_task(_watch_memory(found))
        try:
            yield found
        finally:
            watcher.cancel()


async def _watch_memory(found: Service) -> None:
    while True:
        found.memory.append((time.monotonic(), found.scheduler.memory_info().rss))
        await asyncio.sleep(0.5)


def _open(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(channel.target(address), options=channel.client_options(own_connection=True))


def request(name: str, seconds: float) -> EvalRequest:
    """Return a request of 5 kB that equals no other."""
    return EvalRequest(
        id=name, reference_code=random.choice(REFERENCES), kernel_code=f"sleep={seconds:.4f} id={name} \n{FILL}"
    )


class Client:
    """A client with one Evaluate stream."""

    def __init__(self, peer: grpc.aio.Channel, name: str, judging: float = JUDGING_SECONDS) -> None:
        self.name = name
        self.measured = Measured()
        self._judging = judging
        self._call = SchedulerServiceStub(peer).Evaluate()
        self._reader = asyncio.create_task(self._read())
        self._left = asyncio.Event()

    @property
    def under_way(self) -> int:
        """Number of requests without a result."""
        return len(self.measured.sent)

    async def send(self, count: int) -> None:
        """Send `count` requests."""
        first = len(self.measured.done_at) + self.under_way
        message = EvaluateRequest(client_id=self.name)
        now = time.monotonic()
        for index in range(first, first + count):
            message.requests.append(request(f"{self.name}-{index}", self._judging))
            self.measured.sent[f"{self.name}-{index}"] = now
        await self._call.write(message)

    async def finish(self, limit_seconds: float = 120) -> None:
        """Wait for every result."""
        await self._call.done_writing()
        await asyncio.wait_for(self._reader, limit_seconds)

    def give_up(self) -> None:
        """Close the stream."""
        self._call.cancel()
        self._reader.cancel()

    async def room(self, window: int) -> None:
        """Wait until fewer than `window` requests are unfinished."""
        while self.under_way >= window:
            self._left.clear()
            await self._left.wait()

    async def _read(self) -> None:
        measured = self.measured
        response: Any
        while (response := await self._call.read()) is not grpc.aio.EOF:
            now = time.monotonic()
            if response.HasField("accepted"):
                measured.accepted_after += [now - measured.sent[one] for one in response.accepted.ids[:1]]
                continue
            result = response.result
            measured.waits.append(now - measured.sent.pop(result.id) - self._judging)
            measured.done_at.append(now)
            measured.wrong += result.outcome != result.CORRECT
            self._left.set()


async def paced(client: Client, rate: float, seconds: float) -> None:
    """Send at an even rate, independent of the answers."""
    start = time.monotonic()
    sent = 0
    while (now := time.monotonic()) - start < seconds:
        due = int((now - start) * rate) - sent
        if due:
            await client.send(min(due, 500))
            sent += min(due, 500)
        await asyncio.sleep(BEAT_SECONDS)


async def steady(rate: float, seconds: float, **fleet: Any) -> dict[str, Any]:
    """Run a row with an even rate."""
    async with service(**fleet) as found, _open(found.address) as peer:
        warm = Client(peer, "warm")
        await warm.send(500)
        await warm.finish()
        client, before, start = Client(peer, "load"), found.cpu_seconds(), time.monotonic()
        await paced(client, rate, seconds)
        sent_until = time.monotonic()
        await client.finish()
        return _row(found, [client], before, start, sent_until) | {"asked for": f"{rate:g}/s"}


async def peak(seconds: float, window: int = 2_000) -> dict[str, Any]:
    """Run the row with as many requests as possible."""
    async with service(nodes=8, lanes=64) as found, _open(found.address) as peer:
        client, before, start = Client(peer, "load", 0.01), found.cpu_seconds(), time.monotonic()
        while time.monotonic() - start < seconds:
            await client.room(window)
            await client.send(50)
        sent_until = time.monotonic()
        await client.finish()
        return _row(found, [client], before, start, sent_until) | {"asked for": f"{window} under way"}


async def overload(seconds: float) -> dict[str, Any]:
    """Run the row with just enough requests for the nodes, then with three times their capacity."""
    capacity = 8 * 4 / 0.1
    goodput, rows = {}, {}
    for factor in (0.95, 3.0):
        async with service(nodes=8, lanes=4, max_queued=1_000) as found, _open(found.address) as peer:
            clients = [Client(peer, f"load{index}", 0.1) for index in range(4)]
            before, start = found.cpu_seconds(), time.monotonic()
            refused: list[float] = []
            probing = asyncio.create_task(_probe(peer, refused))
            sending = [asyncio.create_task(paced(one, factor * capacity / 4, seconds)) for one in clients]
            await asyncio.sleep(seconds)
            for task in (probing, *sending):
                task.cancel()
            middle = [t for one in clients for t in one.measured.done_at if start + seconds / 4 <= t <= start + seconds]
            goodput[factor] = len(middle) / (seconds * 3 / 4)
            rows[factor] = _row(found, clients, before, start, time.monotonic())
            rows[factor]["refusals"] = len(refused)
            if refused:
                rows[factor]["refusal p50/p99 ms"] = _percentiles(refused)
            for one in clients:
                one.give_up()
    share = goodput[3.0] / goodput[0.95] * 0.95
    return rows[3.0] | {
        "asked for": f"3 x {capacity:g}/s",
        "goodput": f"{goodput[3.0]:.0f}/s of {capacity:g}/s ({share:.0%} of what just enough gets)",
    }


async def _probe(peer: grpc.aio.Channel, refused: list[float]) -> None:
    """Call EvaluateOnce every 50 ms; record how long each refusal took."""
    stub = SchedulerServiceStub(peer)
    for number in range(1_000_000):
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        try:
            await stub.EvaluateOnce(EvaluateOnceRequest(request=request(f"once{number}", 0.0)), timeout=1.0)
        except grpc.aio.AioRpcError as error:
            if isinstance(errors.from_rpc_error(error), errors.QueueFullError):
                refused.append(time.monotonic() - begun)


async def fair(seconds: float) -> dict[str, Any]:
    """Run the row with one client that floods and one that sends slowly."""
    waits: dict[bool, list[float]] = {}
    async with service(nodes=4, lanes=4) as found, _open(found.address) as peer:
        before, start = found.cpu_seconds(), time.monotonic()
        flood = Client(peer, "flood")
        trickle = Client(peer, "trickle")
        for flooded in (False, True):
            if flooded:
                for _ in range(8):
                    await flood.send(500)
            trickle = Client(peer, f"trickle{flooded}")
            await paced(trickle, 10, seconds / 2)
            await trickle.finish()
            waits[flooded] = trickle.measured.waits
        row = _row(found, [trickle], before, start, time.monotonic())
        flood.give_up()
    alone, beside = (statistics.quantiles(waits[flooded], n=100)[98] for flooded in (False, True))
    return row | {
        "asked for": "10/s beside a flood",
        "trickler p99": f"{alone * 1e3:.1f} ms alone, {beside * 1e3:.1f} ms",
    }


async def soak(rate: float, seconds: float) -> dict[str, Any]:
    """Run the row with a moderate rate for a long time, to see whether the scheduler's memory grows."""
    async with service(nodes=8, lanes=16) as found, _open(found.address) as peer:
        client, before, start = Client(peer, "load"), found.cpu_seconds(), time.monotonic()
        threads, files = found.scheduler.num_threads(), found.scheduler.num_fds()
        await paced(client, rate, seconds)
        until = time.monotonic()
        await client.finish()
        after_warm_up = [(at - start, rss) for at, rss in found.memory if at - start > seconds / 3]
        slope = statistics.linear_regression(*zip(*after_warm_up, strict=True)).slope * 600
        mean = statistics.mean(rss for _, rss in after_warm_up)
        return _row(found, [client], before, start, until) | {
            "asked for": f"{rate:g}/s for {seconds:g} s",
            "RSS slope": f"{slope / mean:+.2%} in 10 min, after the first third",
            "threads, files": f"{threads} -> {found.scheduler.num_threads()}, {files} -> {found.scheduler.num_fds()}",
        }


def _row(found: Service, clients: list[Client], before: dict[str, float], start: float, until: float) -> dict[str, Any]:
    after = found.cpu_seconds()
    done = [time for one in clients for time in one.measured.done_at]
    waits = [wait for one in clients for wait in one.measured.waits]
    in_time = [time for time in done if time <= until]
    count = max(1, len(done))
    return {
        "done": len(done),
        "wrong": sum(one.measured.wrong for one in clients),
        "per second": round(len(in_time) / (until - start)),
        "added p50/p99 ms": _percentiles(waits),
        "accepted p50/p99 ms": _percentiles([wait for one in clients for wait in one.measured.accepted_after]),
        **{f"{name} CPU us": round((after[name] - before[name]) / count * 1e6) for name in after},
        "scheduler RSS MiB": round(max(rss for _, rss in found.memory) / 2**20),
        "journal MiB": round(sum(p.stat().st_size for p in found.journal.parent.rglob("*") if p.is_file()) / 2**20),
    }


def _percentiles(seconds: list[float]) -> str:
    if len(seconds) < 2:
        return "-"
    cuts = statistics.quantiles(seconds, n=100)
    return f"{cuts[49] * 1e3:.1f} / {cuts[98] * 1e3:.1f}"


async def takeover(seconds: float, times: int = 10) -> dict[str, Any]:
    """Kill the active one of two schedulers under load, and measure for how long none served; several times."""
    found: list[tuple[float, int]] = []
    while len(found) < times:
        # What a run leaves unfinished fills the queue of the next one.
        found += await _take_overs(min(10, times - len(found)))
    gaps = [gap for gap, _ in found]
    return {
        "take-overs": len(gaps),
        "unfinished then": f"{min(sent for _, sent in found)} to {max(sent for _, sent in found)}",
        "nobody served, median s": round(statistics.median(gaps), 2),
        "nobody served, worst s": round(max(gaps), 2),
    }


async def _take_overs(times: int) -> list[tuple[float, int]]:
    """Return for several take-overs on one store the seconds in which nobody served, and the number of unfinished ones."""
    assert database is not None, "the row needs --store postgres"
    store, found = database.schema(), []
    with contextlib.ExitStack() as stack:

        def start() -> tuple[subprocess.Popen[bytes], str]:
            command = [sys.executable, "-m", "kerneldyno.scheduler", "--listen", "127.0.0.1:0", "--metrics", "off"]
            command += ["--store", store, "--log-level", "ERROR", "--exit-with-parent"]
            process = stack.enter_context(spawned(command, stdout=subprocess.PIPE))
            assert process.stdout is not None
            return process, process.stdout.readline().decode().split("grpc=")[1].split()[0]

        active, address = start()
        sent = 0
        for _ in range(times):
            standby, next_address = start()
            async with _open(address) as peer, _open(next_address) as next_peer:
                stub = FleetServiceStub(peer)
                await stub.ListNodes(ListNodesRequest(), wait_for_ready=True, timeout=30)
                client = Client(peer, f"load{sent}")
                while len(client.measured.accepted_after) < 10:
                    await client.send(100)
                    sent += 100
                    await asyncio.sleep(0.05)
                await asyncio.sleep(random.random())
                active.kill()
                died = time.monotonic()
                client.give_up()
                while True:
                    try:
                        await FleetServiceStub(next_peer).ListNodes(ListNodesRequest(), timeout=1)
                        break
                    except grpc.aio.AioRpcError:
                        await asyncio.sleep(0.01)
                found.append((time.monotonic() - died, sent))
            active, address = standby, next_address
    return found


def main() -> int:
    """Run the rows and print them."""
    global database
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each row")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second of the row `steady`")
    parser.add_argument("--only", default="half,steady,peak,overload,fleet,fair", help="rows, separated by commas")
    parser.add_argument(
        "--store", default="sqlite", help="where the journal is: sqlite, postgres, or both, with a comma"
    )
    parser.add_argument("--times", type=int, default=10, help="take-overs of the row `takeover`")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument(
        "--soak-seconds", type=float, default=3600.0, help="length of the row `soak`, if it is requested"
    )
    chosen = parser.parse_args()
    seconds, rate = chosen.seconds, chosen.rate
    rows = {
        "half": lambda: steady(rate / 2, seconds, nodes=8, lanes=16),
        "steady": lambda: steady(rate, seconds, nodes=8, lanes=16),
        "peak": lambda: peak(seconds),
        "overload": lambda: overload(seconds),
        "fleet": lambda: steady(rate / 2, seconds, nodes=125, devices=8, lanes=4),
        "fair": lambda: fair(seconds),
        "takeover": lambda: takeover(seconds, chosen.times),
        "soak": lambda: soak(rate / 5, chosen.soak_seconds),
    }
    print(
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}; each row {seconds:g} s"
    )
    measured = {}
    for name in chosen.only.split(","):
        for store in chosen.store.split(","):
            database = PostgresServer(durable=True) if store == "postgres" else None
            try:
                row = measured[name if store == "sqlite" else f"{name}, {store}"] = asyncio.run(rows[name]())
            finally:
                if database is not None:
                    database.close()
            print(f"\n{name}, {store}")
            for what, value in row.items():
                print(f"  {what:<24} {value}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(measured, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
