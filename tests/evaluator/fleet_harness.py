"""A small FleetService on a real socket for the tests of the node's side: it says what the test wants, and writes down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from kerneldyno.rpc import channel
from kerneldyno.v1 import evaluation_pb2 as eval_pb
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2_grpc as pb_grpc
from tests.accepting import stop_accepting
from tests.evaluator.node_harness import request


class Stream:
    """One Work stream of a node: `messages` as they came; `say` answers, `end` closes it with a status."""

    def __init__(self) -> None:
        self.messages: list[pb.WorkRequest] = []
        self.half_closed = False
        self._out: asyncio.Queue[pb.WorkResponse | grpc.StatusCode] = asyncio.Queue()

    @property
    def events(self) -> list[eval_pb.AttemptEvent]:
        """All events, in order."""
        return [event for message in self.messages for event in message.events]

    @property
    def refusals(self) -> dict[str, pb.AttemptRefusal]:
        """All refusals, by token."""
        return {refusal.attempt_token: refusal for message in self.messages for refusal in message.refusals}

    def results(self, token: str) -> list[eval_pb.EvalResult]:
        """Every result that came for `token`."""
        return [event.result for event in self.events if event.attempt_token == token and event.HasField("result")]

    def assign(self, token: str, *steps: str, **fields: Any) -> None:
        """Hand the node a script for the fake judge."""
        self.say(assignments=[pb.Assignment(attempt_token=token, request=request(*steps, **fields))])

    def say(self, **fields: Any) -> None:
        """Send one WorkResponse."""
        self._out.put_nowait(pb.WorkResponse(**fields))

    def end(self, code: grpc.StatusCode) -> None:
        """Close the stream."""
        self._out.put_nowait(code)

    async def serve(self, requests: AsyncIterator[pb.WorkRequest], context: Any, heard: Callable[[], None]) -> None:
        """Be the handler of the call."""

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
    """A scheduler that writes down what nodes say and answers what the test wants."""

    def __init__(self) -> None:
        self.heard: list[pb.SynchronizeRequest] = []
        self.answer = pb.SynchronizeResponse(desired_state=pb.NODE_STATE_SERVING)
        self.answer.next_synchronize.FromMilliseconds(100)
        self.answer.lease.FromSeconds(10)
        self.refuse: grpc.StatusCode | None = None
        self.streams: list[Stream] = []
        self.refuse_work: grpc.StatusCode | None = None
        self.acknowledges = False
        """Whether each result is acknowledged as it comes."""

    @property
    def last(self) -> pb.SynchronizeRequest:
        """What a node said last."""
        return self.heard[-1]

    @property
    def stream(self) -> Stream:
        """The newest Work stream."""
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
    """Serve `fleet`; leaving is sudden."""
    server = grpc.aio.server(options=channel.server_options())
    pb_grpc.add_FleetServiceServicer_to_server(fleet, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


class Wire:
    """A TCP connection's way to a server, which a test can hold up, cut, or make a black hole."""

    def __init__(self) -> None:
        self.port = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._swallowed: set[asyncio.StreamWriter] = set()

    def hold(self) -> None:
        """Let nothing through until `release`."""
        self._flows.clear()

    def release(self) -> None:
        """Let everything through, what was held up first."""
        self._flows.set()

    def reset(self) -> None:
        """End every connection at once."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def swallow(self) -> None:
        """Let what comes on the connections there are disappear; new ones work."""
        self._swallowed.update(self._writers)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """Be the handler of one connection."""
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
async def wire(port: int) -> AsyncIterator[Wire]:
    """A way to `port` of this machine."""
    between = Wire()
    carrying: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(between.carry(reader, writer, port))
        carrying.add(task)
        task.add_done_callback(carrying.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    between.port = server.sockets[0].getsockname()[1]
    try:
        yield between
    finally:
        await stop_accepting(server)
        between.reset()
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)
