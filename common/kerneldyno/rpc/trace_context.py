"""Where a request is in a distributed trace: W3C Trace Context, read, written and passed on.

Client, scheduler and evaluator use it whether or not spans are exported (kerneldyno.rpc.tracing): one that exports nothing
passes the context on, so that a trace does not end at it. A malformed context counts as none, as the recommendation asks.
Pure; knows no tracing library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

from kerneldyno.v1 import evaluation_pb2 as pb

#: Metadata keys of a call, and the headers of the recommendation.
PARENT_KEY, STATE_KEY = "traceparent", "tracestate"
MAX_STATE_CHARS = 512
#: Flag: whoever asks records this trace.
SAMPLED = 1
_KNOWN_FLAGS = 3  # sampled, and that the trace id is random

# Versions after 00 may go on behind another hyphen; what is known of them is the same.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span of a trace."""

    trace_id: int
    span_id: int
    flags: int
    state: str = ""
    parent_id: int | None = None
    """Of a span that this process makes: its parent's id, 0 at the root of a trace. None for spans of others."""

    @property
    def sampled(self) -> bool:
        """Whether it is recorded."""
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        """The header `traceparent`."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"

    @property
    def text(self) -> str:
        """The whole of it, as journals keep it; `decode` reads it."""
        own = "" if self.parent_id is None else f"-{self.parent_id:016x}"
        return f"{self.traceparent}{own} {self.state}".rstrip()

    @property
    def message(self) -> pb.TraceContext:
        """What the contract has of it."""
        return pb.TraceContext(traceparent=self.traceparent, tracestate=self.state)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call carries of it."""
        return (PARENT_KEY, self.traceparent), *(((STATE_KEY, self.state),) if self.state else ())


def parse(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Return what two headers say, or None when they are malformed."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id or (more and version == "00"):
        return None
    usable = len(tracestate) <= MAX_STATE_CHARS and tracestate.isascii() and tracestate.isprintable()
    return TraceContext(trace_id, span_id, int(flags, 16) & _KNOWN_FLAGS, tracestate.strip() if usable else "")


def of_message(message: pb.TraceContext) -> str:
    """Return a context of the contract as text; empty when there is none, or a malformed one."""
    found = parse(message.traceparent, message.tracestate)
    return found.text if found is not None else ""


def note_call(metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
    """Note what the metadata of the call that is being handled says. The interceptor does, for every call."""
    found = {key: str(value) for key, value in metadata or () if key in (PARENT_KEY, STATE_KEY)}
    context = parse(found.get(PARENT_KEY, ""), found.get(STATE_KEY, ""))
    _of_call.set(context.text if context is not None else "")


def of_call() -> str:
    """Return the context of the call that is being handled as text, also in tasks that its handler started."""
    return _of_call.get()


_of_call: ContextVar[str] = ContextVar("kerneldyno_trace", default="")


@lru_cache(maxsize=4096)  # the scheduler reads each a handful of times
def decode(text: str) -> TraceContext | None:
    """Read what `TraceContext.text` wrote; None for the empty text, which says that there is no trace."""
    if not text:
        return None
    head, _, state = text.partition(" ")
    _, trace, span, flags, *parent = head.split("-")
    return TraceContext(int(trace, 16), int(span, 16), int(flags, 16), state, int(parent[0], 16) if parent else None)


def trace_id_of(text: str) -> str:
    """Return the trace id of such a text, 32 hexadecimal digits; empty when there is no trace."""
    return text[3:35]
