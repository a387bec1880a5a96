"""The asyncio client, for trainers and tools.

An AsyncClient holds one channel to a scheduler, or to whichever of several serves. evaluate() is the main method: it
takes any number of requests, yields results as they arrive, and repairs broken connections. rewards() and
reward_stream() do the same for trainers; the other methods are single calls. The client never inspects or judges
candidates.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

import grpc
import grpc.aio

from kerneldyno.client.errors import ClientClosedError, check_loop, from_call
from kerneldyno.client.evaluation_ledger import EvaluationLedger
from kerneldyno.client.history import MAX_CANCEL_IDS, Outcome, listing, pages
from kerneldyno.client.item_spans import ItemSpans
from kerneldyno.client.request_tracing import item_spans
from kerneldyno.client.reward_ledger import RewardLedger
from kerneldyno.client.rewarding import OnMissing, RewardSession, RewardStream, rewards_of
from kerneldyno.client.session import Session, Terms
from kerneldyno.client.sources import Requests, Turns, open_source, open_turns
from kerneldyno.client.watching import watch_cluster
from kerneldyno.rewards import presets
from kerneldyno.rpc import channel, credentials
from kerneldyno.rpc.failover import FailoverChannel
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.fleet_service_pb2 import (
    DrainNodeRequest,
    ListNodesRequest,
    ListQuarantinesRequest,
    Node,
    Quarantine,
    ReleaseQuarantineRequest,
    UndrainNodeRequest,
    WatchClusterResponse,
)
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsResponse, Turn
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceStub
from kerneldyno.v1.scheduler_service_pb2 import (
    CancelEvaluationRequest,
    CancelEvaluationsRequest,
    EvaluateOnceRequest,
    Evaluation,
    GetEvaluationRequest,
    ListEvaluationsRequest,
    ListEvaluationsResponse,
    SchedulerServiceGetCapabilitiesRequest,
    SchedulerServiceGetCapabilitiesResponse,
    ValidateRequestRequest,
    ValidateRequestResponse,
)
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub

if TYPE_CHECKING:  # these exist in the stubs' .pyi only
    from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceAsyncStub
    from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceAsyncStub
    from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub

DEFAULT_ADDRESS = "127.0.0.1:50051"

#: Detail of the result of an EvaluateOnce call whose connection ended before the verdict.
_CALLER_GONE = "the caller went away"
#: Limit in seconds of a call that has native code compiled, if its caller gives none.
_COMPILE_SECONDS = 600.0

_log = logging.getLogger(__name__)

_List = list  # the method AsyncClient.list hides the name
_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class AsyncClient:
    """A connection to a scheduler, for asyncio.

        async with AsyncClient("127.0.0.1:50051") as client:
            async for result in client.evaluate(requests):
                print(result.id, EvalResult.Outcome.Name(result.outcome))

    Args:
        address: HOST:PORT of the scheduler, or HOST:PORT,HOST:PORT,... if standbys can take over from it; a DNS name
            with several addresses counts as a list. Any gRPC target with a scheme will do too.
        client_id: scope of request ids; None for a random one. Give the same one again to find the work of an earlier
            process by its ids.
        window: most requests of one evaluate() call, or turns of one rewards() call or reward_stream(), in progress:
            taken from the source, and the result not yet taken by the caller. It limits the client's memory and the
            part of the scheduler's queue that one call uses.
        reconnect_timeout: longest time, in seconds, that evaluate(), rewards(), reward_stream() and watch() try to
            reach an unreachable scheduler. With several addresses single calls, too, wait so long for one that serves,
            but no longer than their own limit.
        call_timeout: limit of each single call except evaluate_once, in seconds.
        tls_ca: PEM file of the CA of the scheduler's certificate, or "public" for the public root CAs; turns on TLS.
        tls_cert, tls_key: PEM files of the client's own certificate, for a scheduler that requires one.
        token: bearer token. It is sent over TLS or to this machine only.
        on_stalled: called while evaluate(), rewards() or reward_stream() wait: with the reason when the scheduler
            cannot write its journal, so that no work proceeds, and with "" when it can again. None logs a line.

    If one of tls_ca, tls_cert, tls_key and token is None, its value comes from KERNELDYNO_TLS_CA, _TLS_CERT, _TLS_KEY
    and _TOKEN (or _TOKEN_FILE); "" means none. Entering the block raises CredentialsError if they cannot be used, and
    AddressError if the address is not valid.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        client_id: str | None = None,
        window: int = 256,
        reconnect_timeout: float = 60.0,
        call_timeout: float = 10.0,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        token: str | None = None,
        on_stalled: Callable[[str], None] | None = None,
    ) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1, not {window}")
        self.address = address
        self.client_id = uuid.uuid4().hex if client_id is None else client_id
        self._window = window
        self._reconnect_timeout = reconnect_timeout
        self._call_timeout = call_timeout
        self._on_stalled = on_stalled or self._log_stalled
        self._credentials = credentials.choose(tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, token=token)
        self._channel: FailoverChannel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop of the channel
        self._sessions: WeakSet[Session[Any, Any, Any, Any]] = WeakSet()  # each lives as long as its iterator

    async def __aenter__(self) -> Self:
        # Not in __init__: a channel belongs to the event loop in which it is made.
        self._loop = asyncio.get_running_loop()
        self._channel = channel.open(self.address, self._credentials, patience=self._reconnect_timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every open evaluate() and rewards() call, cancelling its work, and close the channel."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    def evaluate(self, requests: Requests, *, timeout: float | None = None) -> AsyncGenerator[EvalResult, None]:
        """Evaluate `requests` and yield each result when it arrives, in completion order.

        Every request taken from `requests` gets exactly one result, also across broken connections and restarts of
        the scheduler. Requests without an id get a random one; they are copied, never changed. Ending the iteration
        early (break, an exception, cancellation, aclose) cancels all outstanding requests.

        Args:
            requests: an iterable or async iterable. It is read only as fast as the window allows. A plain iterable that
                blocks also blocks the event loop; give an async one in that case.
            timeout: limit of the whole call, in seconds. When it passes, outstanding requests are cancelled and
                reported as INFRASTRUCTURE_ERROR with cause DEADLINE_EXCEEDED. So is the rest of a collection; a
                generator is not read any further. The iteration then ends without an exception.

        Raises:
            DuplicateIdError: an id is used twice. For a collection (a list, a tuple) this is raised here, before
                anything is sent; for other iterables when the second one is reached.
            UnavailableError: the scheduler was unreachable for longer than `reconnect_timeout`; `outstanding` lists
                ids.
            KernelDynoError: the scheduler refused the stream.
        """
        connection = self._open_channel()
        terms = self._terms(timeout, finite=isinstance(requests, Collection))
        ledger = EvaluationLedger(self.client_id)
        spans, source = self._spans("SchedulerService/Evaluate"), open_source(requests)
        session = Session(connection, self._loop, self._scheduler().Evaluate, ledger, source, terms, spans)
        self._sessions.add(session)
        return session.results()

    def rewards(
        self,
        turns: Turns,
        reward: RewardSpec | str = "drkernel",
        *,
        timeout: float | None = None,
        retries: int = 2,
        on_missing: OnMissing = "raise",
    ) -> AsyncGenerator[StreamRewardsResponse, None]:
        """Evaluate `turns` and yield each answer, with its reward, when it arrives, in completion order.

        Every turn taken from `turns` gets exactly one answer, also across broken connections and restarts of the
        scheduler. Turns without an id get one derived from their contents (kerneldyno.rpc.turns); they are copied,
        never changed. Ending the iteration early cancels all outstanding turns.

        Args:
            turns: an iterable or async iterable, read only as fast as the window allows; as for evaluate().
            reward: the name of a preset, or a RewardSpec.
            timeout: limit of the whole call, in seconds. Turns outstanding then are cancelled, and have no reward.
            retries: how often a turn that failed because of infrastructure is sent again, under another id. The answer
                has the turn's own id in any case.
            on_missing: how to handle answers without a reward (infrastructure failed even after retries, the reference
                failed, or the turn is malformed): "raise" a NoRewardError that holds them after all others were
                yielded, or "yield" them with the others.

        Raises:
            InvalidRequestError: `reward` is malformed; raised here, before anything is sent.
            NoRewardError: see `on_missing`.
            DuplicateIdError, UnavailableError, KernelDynoError: as for evaluate().
        """
        if on_missing not in ("raise", "yield"):
            raise ValueError(f'on_missing must be "raise" or "yield", not {on_missing!r}')
        finite = isinstance(turns, Collection)
        return rewards_of(self._reward_session(open_turns(turns), reward, retries, timeout, finite=finite), on_missing)

    def reward_stream(
        self, reward: RewardSpec | str = "drkernel", *, retries: int = 2, timeout: float | None = None
    ) -> RewardStream:
        """Make a stream for turns that come one by one, as in agent loops; use it in an `async with` block.

            async with client.reward_stream("drkernel") as stream:
                answer = await stream.score(turn)

        Args:
            reward, retries: as for rewards().
            timeout: limit of each score() call, in seconds.

        Raises:
            InvalidRequestError: `reward` is malformed.
        """
        whole = presets.spec(reward)
        return RewardStream(lambda turns: self._reward_session(turns, whole, retries, None, finite=False), timeout)

    def _reward_session(
        self,
        turns: AsyncIterator[Turn],
        reward: RewardSpec | str,
        retries: int,
        timeout: float | None,
        *,
        finite: bool,
    ) -> RewardSession:
        connection = self._open_channel()
        terms = self._terms(timeout, finite=finite)
        ledger = RewardLedger(self.client_id, presets.spec(reward), retries)
        stub: RewardServiceAsyncStub = RewardServiceStub(connection)
        spans = self._spans("RewardService/StreamRewards")
        session = Session(connection, self._loop, stub.StreamRewards, ledger, turns, terms, spans)
        self._sessions.add(session)
        return session

    async def evaluate_once(self, request: EvalRequest, timeout: float = 600.0) -> EvalResult:
        """Evaluate one request with a single call, and wait for its result.

        Unlike evaluate() it fails when its connection breaks and the client has one address only; with several it asks
        the scheduler that serves then for the same evaluation. A malformed request is an exception, not a result.

        Raises:
            InvalidRequestError: the request is malformed; `violations` names each field.
            QueueFullError: retry after `retry_seconds`.
            NoMatchingDeviceError, IdReusedError, UnavailableError: as their names say.
            DeadlineExceededError: `timeout` passed; the evaluation is cancelled.
        """
        message = EvaluateOnceRequest(request=request, client_id=self.client_id)
        message.request.id = id = request.id or uuid.uuid4().hex
        spans = self._spans("SchedulerService/EvaluateOnce")
        spans.begin(message.request)
        end = time.monotonic() + timeout
        try:
            while True:
                answer = await self._call(self._scheduler().EvaluateOnce, message, end - time.monotonic())
                if answer.result.infrastructure_error.detail != _CALLER_GONE:
                    break
                # The caller is still here. The scheduler took a connection that broke for a caller that left.
                message.request.id = uuid.uuid4().hex
        except BaseException as error:
            spans.close(type(error).__name__)
            raise
        answer.result.id = id
        spans.end(answer.result)
        return answer.result

    async def get(self, id: str) -> Evaluation:
        """Return the state of an evaluation of this client id; it has `result` once its stage is STAGE_DONE.

        Raises:
            EvaluationNotFoundError: no such id, or its result is no longer kept.
        """
        message = GetEvaluationRequest(id=id, client_id=self.client_id)
        return (await self._call(self._scheduler().GetEvaluation, message)).evaluation

    async def cancel(self, id: str) -> None:
        """Cancel an evaluation of this client id; its result has outcome INFRASTRUCTURE_ERROR, cause CANCELLED.

        Raises:
            EvaluationNotFoundError: no such id.
            AlreadyFinishedError: it already has its result. If the scheduler changed during this call, it may be this
                call that cancelled it.
        """
        message = CancelEvaluationRequest(id=id, client_id=self.client_id)
        await self._call(self._scheduler().CancelEvaluation, message)

    async def cancel_many(self, ids: Iterable[str]) -> int:
        """Cancel evaluations of this client id, and return how many. Unknown and finished ones are ignored."""
        cancelled, remaining = 0, list(ids)
        while remaining:
            batch, remaining = remaining[:MAX_CANCEL_IDS], remaining[MAX_CANCEL_IDS:]
            message = CancelEvaluationsRequest(client_id=self.client_id, ids=batch)
            cancelled += (await self._call(self._scheduler().CancelEvaluations, message)).cancelled
        return cancelled

    async def cancel_all(self) -> int:
        """Cancel every evaluation of this client id that has not finished, and return how many."""
        message = CancelEvaluationsRequest(client_id=self.client_id, all=True)
        return (await self._call(self._scheduler().CancelEvaluations, message)).cancelled

    def list(
        self,
        *,
        client_id: str = "",
        outcomes: Iterable[Outcome] = (),
        unfinished: bool = False,
        labels: Mapping[str, str] | None = None,
        accepted_after: datetime | None = None,
        accepted_before: datetime | None = None,
        digest: str = "",
        full_results: bool = False,
        page_size: int = 100,
    ) -> AsyncGenerator[Evaluation, None]:
        """Yield the evaluations that the scheduler knows, newest first, of all clients, without their requests.

        Pages are fetched as they are needed, so taking only the first few costs little.

        Args:
            client_id: only evaluations of this client id.
            outcomes: only those with one of these outcomes, by name ("TIMEOUT") or number.
            unfinished: only those that have not finished.
            labels: only those with all of these labels.
            accepted_after, accepted_before: only those accepted at or after, and before; with a time zone.
            digest: only those whose work has this digest, in hexadecimal.
            full_results: yield complete results. Otherwise a result has id, outcome, message, both speedups, labels and
                times only.
            page_size: evaluations per call, 1 to 1000.

        Raises:
            ValueError: an outcome does not exist, or a time has no time zone.
            KernelDynoError: as for single calls, while iterating.
        """
        request = listing(
            client_id=client_id,
            outcomes=outcomes,
            unfinished=unfinished,
            labels=labels or {},
            accepted_after=accepted_after,
            accepted_before=accepted_before,
            digest=digest,
            full_results=full_results,
            page_size=page_size,
        )

        async def ask(message: ListEvaluationsRequest) -> ListEvaluationsResponse:
            return await self._call(self._scheduler().ListEvaluations, message)

        return pages(request, ask)

    async def capabilities(self) -> SchedulerServiceGetCapabilitiesResponse:
        """Return the scheduler's limits and what its evaluators can do. This is also the cheapest connection test."""
        return await self._call(self._scheduler().GetCapabilities, SchedulerServiceGetCapabilitiesRequest())

    async def validate(
        self, request: EvalRequest, *, compile: bool = False, timeout: float | None = None
    ) -> ValidateRequestResponse:
        """Return what is wrong with the fields of a request, and what it means in full; nothing is judged.

        Args:
            request: the request; its id may be empty.
            compile: also have the native code compiled by a node's builder, without a device. `compilation` of the answer
                says what became of it.
            timeout: limit of the call, in seconds; without one `call_timeout`, and 600 with `compile`.

        Raises:
            PermissionDeniedError: `compile`, and the token may not submit work.
            QueueFullError: `compile`, and too many builds wait.
            DeadlineExceededError: the limit passed. The build is stopped.
        """
        message = ValidateRequestRequest(request=request, compile=compile, client_id=self.client_id if compile else "")
        limit = _COMPILE_SECONDS if compile and timeout is None else timeout
        return await self._call(self._scheduler().ValidateRequest, message, limit)

    async def nodes(self) -> _List[Node]:
        """List the registered evaluators, by id."""
        return _List((await self._call(self._fleet().ListNodes, ListNodesRequest())).nodes)

    def watch(self) -> AsyncGenerator[WatchClusterResponse, None]:
        """Yield a snapshot of nodes, queue and counts whenever something has changed, until the caller stops.

        Broken connections are repaired. A slow caller misses intermediate snapshots, never the newest.

        Raises:
            UnavailableError: the scheduler was unreachable for longer than `reconnect_timeout`.
            ClientClosedError: the client was closed meanwhile.
            KernelDynoError: the scheduler refused the watch.
        """
        return watch_cluster(self._open_channel(), self.address, self._credentials, self._reconnect_timeout)

    async def drain(self, node_id: str) -> Node:
        """Give a node no more work until undrain(), even across restarts; running work continues. Return the node.

        Raises:
            NodeNotFoundError: no such node is registered.
        """
        return (await self._call(self._fleet().DrainNode, DrainNodeRequest(node_id=node_id))).node

    async def undrain(self, node_id: str) -> Node:
        """Let a drained node accept work again. Return the node.

        Raises:
            NodeNotFoundError: no such node is registered.
            NodeStoppingError: it drains because it is being stopped; start it again instead.
        """
        return (await self._call(self._fleet().UndrainNode, UndrainNodeRequest(node_id=node_id))).node

    async def quarantines(self) -> _List[Quarantine]:
        """List quarantined nodes (they kept failing) and work (it kept killing nodes), oldest first."""
        return _List((await self._call(self._fleet().ListQuarantines, ListQuarantinesRequest())).quarantines)

    async def release(self, *, node_id: str = "", digest: str = "") -> None:
        """Let a quarantined node, or quarantined work (by its digest in hexadecimal), run again at once.

        Raises:
            ValueError: neither or both are given.
            QuarantineNotFoundError: it is not in quarantine.
        """
        if bool(node_id) == bool(digest):
            raise ValueError("give either node_id or digest")
        await self._call(self._fleet().ReleaseQuarantine, ReleaseQuarantineRequest(node_id=node_id, digest=digest))

    def _terms(self, timeout: float | None, *, finite: bool) -> Terms:
        return Terms(
            *(self.address, self._credentials, self._window, self._reconnect_timeout, timeout),
            finite=finite,
            on_stalled=self._on_stalled,
        )

    def _log_stalled(self, why: str) -> None:
        if why:
            _log.warning(
                "event=journal_stalled scheduler=%s reason=%r detail='no work proceeds until it can be written'",
                self.address,
                why,
            )
        else:
            _log.warning("event=journal_written_again scheduler=%s", self.address)

    def _open_channel(self) -> FailoverChannel:
        if self._channel is None:
            raise ClientClosedError("the client is not open; use it in an `async with` block")
        return self._channel

    def _spans(self, method: str) -> ItemSpans:
        return item_spans(self._open_channel().address, self.client_id, method)

    def _scheduler(self) -> SchedulerServiceAsyncStub:
        return SchedulerServiceStub(self._open_channel())

    def _fleet(self) -> FleetServiceAsyncStub:
        return FleetServiceStub(self._open_channel())

    async def _call(
        self,
        method: Callable[..., Awaitable[_Response]],
        message: _Request,
        timeout: float | None = None,
    ) -> _Response:
        check_loop("client", self._loop)
        try:
            return await method(message, timeout=self._call_timeout if timeout is None else timeout)
        except grpc.aio.AioRpcError as error:
            raise from_call(error, self.address, self._credentials) from error
