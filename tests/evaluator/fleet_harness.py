"""A small FleetService on a real socket, for tests of the node.

It gives the answers that the test sets, and records all messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from kerneldyno.rpc import channel
from kerneldyno.rpc.validation import effective
from kerneldyno.v1 import evaluation_pb2 as eval_pb
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2_grpc as pb_grpc
from tests.accepting import stop_accepting
from tests.evaluator.node_harness import request


def assignment(token: str, *steps: str, **fields: Any) -> pb.Assignment:
    """Return an assignment as a scheduler sends it: its request is effective, and a script for the fake judge."""
    return pb.Assignment(attempt_token=token, request=effective(request(*steps, **fields)))


class Stream:
    """One Work stream of a node. `messages` holds what the node sent; `say` answers, and `end` closes with a status."""

    def __init__(self) -> None:
        self.messages: list[pb.WorkRequest] = []
        self.half_closed = False
        self._out: asyncio.Queue[pb.WorkResponse | grpc.StatusCode] = asyncio.Queue()

    @property
    def events(self) -> list[eval_pb.AttemptEvent]:
        """Return all events that the node sent, in order."""
        return [event for message in self.messages for event in message.events]

    @property
    def refusals(self) -> dict[str, pb.AttemptRefusal]:
        """Return all refusals that the node sent, by token."""
        return {refusal.attempt_token: refusal for message in self.messages for refusal in message.refusals}

    def results(self, token: str) -> list[eval_pb.EvalResult]:
        """Return every result that the node sent for `token`."""
        return [event.result for event in self.events if event.attempt_token == token and event.HasField("result")]

    def assign(self, token: str, *steps: str, **fields: Any) -> None:
        """Assign an attempt to the node. Its script for the fake judge has these steps."""
        self.say(assignments=[assignment(token, *steps, **fields)])

    def say(self, **fields: Any) -> None:
        """Send one WorkResponse."""
        self._out.put_nowait(pb.WorkResponse(**fields))

    def end(self, code: grpc.StatusCode) -> None:
        """Close the stream with a status."""
        self._out.put_nowait(code)

    async def serve(self, requests: AsyncIterator[pb.WorkRequest], context: Any, heard: Callable[[], None]) -> None:
        """Serve one Work call: record the node's messages, and send what the test says."""

        async def read() -> None:
            async for message in requests:
                self.messages.append(message)
                heard()
            self.half_closed = True
            self._out.put_nowait(grpc.StatusCode.OK)

        reading = asyncio.get_running_loop().create_task(read())
        try:
            while not isinstance(item := await self._out.get(), grpc.StatusCode):
                await context.write(item)
            if item is not grpc.StatusCode.OK:
                await context.abort(item, "the test says so")
        finally:
            reading.cancel()


class Fleet(pb_grpc.FleetServiceServicer):
    """A scheduler that records what nodes report, and gives the answers that the test sets."""

    def __init__(self) -> None:
        self.heard: list[pb.SynchronizeRequest] = []
        self.answer = pb.SynchronizeResponse(desired_state=pb.NODE_STATE_SERVING)
        self.answer.next_synchronize.FromMilliseconds(100)
        self.answer.lease.FromSeconds(10)
        self.refuse: grpc.StatusCode | None = None
        self.streams: list[Stream] = []
        self.refuse_work: grpc.StatusCode | None = None
        self.acknowledges = False
        """True: acknowledge each result when it arrives."""

    @property
    def last(self) -> pb.SynchronizeRequest:
        """Return the latest report of any node."""
        return self.heard[-1]

    @property
    def stream(self) -> Stream:
        """Return the newest Work stream."""
        return self.streams[-1]

    async def Synchronize(self, request: pb.SynchronizeRequest, context: Any) -> pb.SynchronizeResponse:  # noqa: N802
        self.heard.append(request)
        if self.refuse is not None:
            await context.abort(self.refuse, "no")
        return self.answer

    async def Work(self, requests: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        if self.refuse_work is not None:
            await context.abort(self.refuse_work, "no")
        stream = Stream()
        self.streams.append(stream)

        def heard() -> None:
            done = [event.attempt_token for event in stream.messages[-1].events if event.HasField("result")]
            if self.acknowledges and done:
                stream.say(acknowledged_attempt_tokens=done)

        await stream.serve(requests, context, heard)


@asynccontextmanager
async def serving(fleet: Fleet, port: int = 0) -> AsyncIterator[int]:
    """Serve `fleet`, and yield the port. At the end, stop at once, without warning."""
    server = grpc.aio.server(options=channel.server_options())
    pb_grpc.add_FleetServiceServicer_to_server(fleet, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


class Proxy:
    """A TCP proxy in front of a server. A test can make it hold data back, drop it, or reset connections."""

    def __init__(self) -> None:
        self.port = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._swallowed: set[asyncio.StreamWriter] = set()

    def hold(self) -> None:
        """Let nothing through until `release` is called."""
        self._flows.clear()

    def release(self) -> None:
        """Let everything through, first the data that was held back."""
        self._flows.set()

    def reset(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def swallow(self) -> None:
        """From now on, drop all data of the present connections. New connections work."""
        self._swallowed.update(self._writers)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """Connect to `port`, and pass the data of one connection on in both directions."""
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", port)
        self._writers += [writer, onward]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(reader, onward))
            group.create_task(self._pump(onward_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._flows.wait()
                if writer not in self._swallowed:
                    writer.write(data)
                    await writer.drain()
        if writer not in self._swallowed:
            writer.close()


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """Run a proxy to `port` of this machine."""
    proxy = Proxy()
    carrying: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(proxy.carry(reader, writer, port))
        carrying.add(task)
        task.add_done_callback(carrying.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        await stop_accepting(server)
        proxy.reset()
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)
