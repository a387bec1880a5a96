"""Position of a request in a distributed trace: read, write and pass on W3C Trace Context.

Client, scheduler and evaluator use it whether or not they export spans (kerneldyno.rpc.tracing): a process that exports
nothing still passes the context on, so that the trace continues behind it. A malformed context counts as none, as the
recommendation requires. Pure; imports no tracing library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

from kerneldyno.v1 import evaluation_pb2 as pb

#: Metadata keys of a call, and the headers that the recommendation defines.
PARENT_KEY, STATE_KEY = "traceparent", "tracestate"
MAX_STATE_CHARS = 512
#: Flag: the caller records this trace.
SAMPLED = 1
_KNOWN_FLAGS = 3  # sampled, and random trace id

# Versions after 00 may have more fields behind another hyphen; the known fields are the same.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span of a trace."""

    trace_id: int
    span_id: int
    flags: int
    state: str = ""
    parent_id: int | None = None
    """For a span made by this process, its parent's id, or 0 at the root of a trace. None for spans made elsewhere."""

    @property
    def sampled(self) -> bool:
        """Return True if the span is recorded."""
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        """Return the header `traceparent`."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"

    @property
    def text(self) -> str:
        """Return all fields as text, the form that journals keep; `decode` reads it."""
        own = "" if self.parent_id is None else f"-{self.parent_id:016x}"
        return f"{self.traceparent}{own} {self.state}".rstrip()

    @property
    def message(self) -> pb.TraceContext:
        """Return the fields that the contract's message holds."""
        return pb.TraceContext(traceparent=self.traceparent, tracestate=self.state)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the fields as metadata of a call."""
        return (PARENT_KEY, self.traceparent), *(((STATE_KEY, self.state),) if self.state else ())


def parse(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Return the context in two headers, or None if they are malformed."""
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
    """Return the context in a message as text; empty if there is none, or a malformed one."""
    found = parse(message.traceparent, message.tracestate)
    return found.text if found is not None else ""


def note_call(metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
    """Store the context in the metadata of the call that is being handled. The interceptor does this for every call."""
    found = {key: str(value) for key, value in metadata or () if key in (PARENT_KEY, STATE_KEY)}
    context = parse(found.get(PARENT_KEY, ""), found.get(STATE_KEY, ""))
    _of_call.set(context.text if context is not None else "")


def of_call() -> str:
    """Return the context of the call that is being handled as text, also in tasks that its handler started."""
    return _of_call.get()


_of_call: ContextVar[str] = ContextVar("kerneldyno_trace", default="")


@lru_cache(maxsize=4096)  # the scheduler decodes each text several times
def decode(text: str) -> TraceContext | None:
    """Read what `TraceContext.text` wrote; None for an empty text, which means no trace."""
    if not text:
        return None
    head, _, state = text.partition(" ")
    _, trace, span, flags, *parent = head.split("-")
    return TraceContext(int(trace, 16), int(span, 16), int(flags, 16), state, int(parent[0], 16) if parent else None)


def trace_id_of(text: str) -> str:
    """Return the trace id in what `TraceContext.text` wrote, 32 hexadecimal digits; empty if there is no trace."""
    return text[3:35]
