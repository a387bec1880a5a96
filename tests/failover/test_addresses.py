"""Tests of lists of addresses, and of the order in which they are tried. No sockets."""

from __future__ import annotations

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from kerneldyno.rpc import channel
from kerneldyno.rpc.errors import AddressError, StandbyError, from_rpc_error, to_status
from kerneldyno.rpc.failover import is_dns_name
from kerneldyno.rpc.rotation import Endpoint, Rotation

pytestmark = pytest.mark.pure

A, B, C = (Endpoint(f"10.0.0.{number}:1") for number in (1, 2, 3))
ELSEWHERE = Endpoint("10.9.9.9:1")


def rotation(*endpoints: Endpoint) -> Rotation:
    return Rotation(endpoints or (A, B, C), lambda: 100.0)


# Lists


def test_a_list_may_have_spaces_names_and_ipv6() -> None:
    assert channel.addresses("a:1") == ("a:1",)
    assert channel.addresses("a:1, [::1]:2 ,10.0.0.1:3") == ("a:1", "[::1]:2", "10.0.0.1:3")
    assert channel.addresses("unix:/run/a,dns:///b:1") == ("unix:/run/a", "dns:///b:1")
    assert channel.addresses("ipv4:10.0.0.1:1,10.0.0.2:1") == ("ipv4:10.0.0.1:1,10.0.0.2:1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not the address of a service: give HOST:PORT"),
        ("a:1,", "'a:1,' has nothing before or after a comma"),
        (",a:1", "nothing before or after a comma"),
        ("a:1,,b:2", "nothing before or after a comma"),
        ("a:1,b", "'b' is not the address of a service"),
        ("a:1,b:0", "'b:0' is not the address"),
        ("a:1,http://b:1", "'http://b:1' is a URL"),
        ("a:1,::1:2", "write an IPv6 address in brackets"),
        ("a:1;b:1", "write an IPv6 address in brackets"),
        ("a:1,b:1, a:1", "'a:1,b:1, a:1' has a:1 twice"),
    ],
)
def test_a_bad_list_is_refused_with_the_part_that_is_wrong(text: str, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        channel.addresses(text)
    assert said in str(caught.value)


def test_a_list_stays_here_if_every_address_does() -> None:
    assert channel.stays_here("127.0.0.1:1,localhost:2")
    assert not channel.stays_here("127.0.0.1:1,10.0.0.1:2")


def test_which_addresses_have_a_name_that_may_stand_for_several() -> None:
    named = ["schedulers:1", "dns:///schedulers:1", "a.example:1"]
    others = ["10.0.0.1:1", "[::1]:1", "localhost:1", "unix:/run/a", "dns://8.8.8.8/a:1", "ipv4:10.0.0.1:1"]
    assert [one for one in named + others if is_dns_name(one)] == named


# The order


def test_each_is_tried_once_then_comes_a_pause() -> None:
    turn = rotation()
    assert turn.current == A
    turn.failed(A, "gone")
    assert turn.current == B
    turn.failed(B, "gone")
    assert (turn.current, turn.rounds, turn.resume_at) == (C, 0, 0.0)
    turn.failed(C, "gone", retry_seconds=2.0)
    assert (turn.current, turn.rounds) == (A, 1)
    assert 102.0 <= turn.resume_at <= 102.4
    assert list(turn.said) == [A, B, C]


def test_failures_of_many_calls_at_one_place_turn_only_once() -> None:
    turn = rotation()
    for _ in range(100):
        turn.failed(A, "gone")
    assert turn.current == B


def test_the_one_that_served_last_is_kept_and_what_failed_before_is_forgotten() -> None:
    turn = rotation()
    turn.failed(A, "gone")
    turn.served(B)
    assert (turn.current, turn.said) == (B, {})
    turn.failed(B, "gone")
    assert turn.current == C


def test_late_answers_change_nothing_once_the_next_one_serves() -> None:
    turn = rotation()
    turn.failed(A, "gave no answer")
    assert turn.served(A), "it was only slow"
    turn.failed(A, "gone")
    assert turn.served(B)
    assert not turn.served(A)
    turn.failed(A, "gone")
    assert (turn.current, turn.said) == (B, {})


def test_the_pause_is_the_longest_that_was_asked_for() -> None:
    turn = rotation(A, B)
    turn.failed(A, "standby", retry_seconds=2.0)
    turn.failed(B, "gone")
    assert turn.resume_at >= 102.0


def test_a_hint_is_tried_next_and_a_wrong_one_leads_back_to_the_list() -> None:
    turn = rotation()
    turn.failed(A, "standby", hint=C)
    assert turn.current == C
    turn.failed(C, "standby", hint=ELSEWHERE)
    assert turn.current == ELSEWHERE
    assert turn.several
    turn.failed(ELSEWHERE, "gone")
    assert turn.current == B
    turn.failed(B, "gone")
    assert (turn.current, turn.rounds) == (C, 1)


def test_standbys_that_name_each_other_are_tried_once_a_round() -> None:
    turn = rotation(A, B)
    tried = []
    for _ in range(6):
        tried.append(turn.current)
        turn.failed(turn.current, "standby", hint=B if turn.current == A else A)
    assert tried == [A, B, A, B, A, B]
    assert turn.rounds == 3


def test_a_hint_of_the_only_address_may_be_left_again() -> None:
    turn = rotation(A)
    turn.failed(A, "standby", hint=ELSEWHERE)
    turn.served(ELSEWHERE)
    turn.failed(ELSEWHERE, "gone")
    assert (turn.current, turn.several) == (A, False)


def test_a_caller_with_one_address_is_paced_only_if_the_address_asks_for_it() -> None:
    turn = rotation(A)
    turn.failed(A, "gone")
    assert turn.resume_at == 0.0
    turn.failed(A, "standby", retry_seconds=1.0)
    assert turn.resume_at >= 101.0


def test_new_addresses_of_a_name_are_tried_at_once() -> None:
    name = Endpoint("schedulers:1")
    turn = rotation(name)
    turn.failed(name, "standby", retry_seconds=1.0)
    assert turn.replace([Endpoint("10.0.0.1:1", "schedulers:1"), Endpoint("10.0.0.2:1", "schedulers:1")])
    assert (turn.current.address, turn.resume_at, turn.several) == ("10.0.0.1:1", 0.0, True)
    assert str(turn.current) == "10.0.0.1:1 (schedulers:1)"
    assert turn.of("dns:///schedulers:1") == turn.of("schedulers:1")
    turn.failed(turn.current, "gone")
    assert turn.current.address == "10.0.0.2:1"
    turn.failed(turn.current, "gone")
    assert not turn.replace([Endpoint("10.0.0.3:1", "schedulers:1"), Endpoint("10.0.0.2:1", "schedulers:1")])
    assert turn.resume_at > 100.0, "a name that changes does not end the pause"
    assert turn.current.address == "10.0.0.3:1"
    assert not turn.replace([Endpoint("10.0.0.2:1", "schedulers:1")])
    assert turn.current.address == "10.0.0.2:1"


# On the wire


@pytest.mark.parametrize("serving", ["10.0.0.1:50051", ""])
def test_a_standbys_refusal_keeps_its_hint_on_the_wire(serving: str) -> None:
    status = to_status(StandbyError("a standby", serving=serving, retry_seconds=1.5))
    error = AioRpcError(StatusCode.UNAVAILABLE, Metadata(), Metadata(*status.trailing_metadata), status.details)
    found = from_rpc_error(error)
    assert isinstance(found, StandbyError)
    assert (found.serving, found.retry_seconds) == (serving, 1.5)
