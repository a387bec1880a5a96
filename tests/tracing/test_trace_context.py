"""Tests of W3C Trace Context: reading, writing, storing; and that it does not change which request or turn it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.client import turn
from kerneldyno.rpc import trace_context
from kerneldyno.rpc.trace_context import TraceContext, decode, parse
from kerneldyno.rpc.turns import turn_id
from kerneldyno.scheduler.core.model import ClientKind
from kerneldyno.scheduler.service.translate import spec_of, submit_request_of
from kerneldyno.v1.evaluation_pb2 import EvalRequest
from kerneldyno.v1.evaluation_pb2 import TraceContext as Message

pytestmark = pytest.mark.pure

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_the_example_of_the_recommendation() -> None:
    found = parse(GOOD, "congo=t61rcWkgMzE")
    assert found == TraceContext(int(TRACE, 16), int(SPAN, 16), 1, "congo=t61rcWkgMzE")
    assert (found.traceparent, found.sampled) == (GOOD, True)
    assert found.metadata == (("traceparent", GOOD), ("tracestate", "congo=t61rcWkgMzE"))
    assert trace_context.trace_id_of(found.text) == TRACE


@pytest.mark.parametrize(
    "malformed",
    [
        "",
        "00",
        GOOD.upper(),
        GOOD + "-",
        GOOD + "-more",
        "ff" + GOOD[2:],
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        GOOD[:-1] + "x",
        GOOD + "\n",
        " " + GOOD,
    ],
)
def test_a_malformed_one_is_none(malformed: str) -> None:
    assert parse(malformed, "a=b") is None
    assert trace_context.of_message(Message(traceparent=malformed)) == ""


def test_a_later_version_may_say_more() -> None:
    found = parse(f"01{GOOD[2:]}-what-ever")
    assert found is not None
    assert found.traceparent == GOOD


@pytest.mark.parametrize("state", ["x" * 513, "a=\x00", "a=ä", "a=\n"])
def test_a_state_of_no_use_is_left_out(state: str) -> None:
    assert parse(GOOD, state) == parse(GOOD)


@given(
    st.builds(
        TraceContext,
        trace_id=st.integers(1, 2**128 - 1),
        span_id=st.integers(1, 2**64 - 1),
        flags=st.integers(0, 3),
        state=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=512).map(str.strip),
        parent_id=st.none() | st.integers(0, 2**64 - 1),
    )
)
def test_what_a_journal_keeps_is_read_back(context: TraceContext) -> None:
    assert decode(context.text) == context
    if context.parent_id is None:
        assert parse(context.traceparent, context.state) == context


def test_a_request_under_another_trace_is_the_same_request() -> None:
    plain = EvalRequest(id="a", reference_code="r", kernel_code="k")
    traced = EvalRequest(id="a", reference_code="r", kernel_code="k", trace_context=Message(traceparent=GOOD))
    one, other = (submit_request_of(request, "c", ClientKind.STREAM) for request in (plain, traced))
    assert (one.digest, one.fingerprint, one.spec) == (other.digest, other.fingerprint, other.spec)
    assert (one.trace, other.trace) == ("", GOOD)
    assert spec_of(other.spec.payload) == one.spec


def test_a_turn_under_another_trace_has_the_same_name() -> None:
    plain = turn("g", 0, 0, reference_code="r", kernel_code="k")
    traced = turn("g", 0, 0, reference_code="r", kernel_code="k", trace_context=Message(traceparent=GOOD))
    assert turn_id(plain) == turn_id(traced)
    assert traced.request.HasField("trace_context")
