"""How much is measured: as many calls as the answer needs, in as little of everybody's time as that takes. Pure arithmetic.

While a candidate is timed nobody else gets on. Timing stops when the speedup is known as precisely as was asked for,
when as many calls have been made as were allowed, or when the time is up: two seconds for calls of less than a tenth
of a second, for others five seconds or ten calls.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Time that the bursts of one lease may take, in seconds; the rest is for what lies around them.
_LEASE_SECONDS = 1.75
_LONG_LEASE_SECONDS = 4.0
#: Calls of both sides together in a lease of calls that take this long.
_SLOW, _SLOW_CALLS = 0.1, 9
#: How much longer than others the first calls may have taken, as a factor.
_FIRST_ARE_SLOWER = 1.5
#: Share of the limit of the timing stage that it may take.
_SHARE = 0.3
#: Calls of each kind and side in one round take about so long, with the drawing of their inputs, in seconds.
_ROUND_SECONDS = 0.012
#: Fewest of them, but for calls that take long themselves.
_FEWEST = 4
#: Lengths that are chosen from: bursts of nothing are kept by their length, and held against others as long.
_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 40)
#: From here on end-to-end times are chased, in seconds; and calls of one round that are made for them below it.
_CHASED, _UNCHASED = 0.3e-3, 8
#: Processors of which a quick one is chosen where end-to-end times are not chased.
_FEW_PROCESSORS = 3
#: Batches that one timing makes, about: what can be drawn ahead is divided among them.
_BATCHES = 8
#: From here on no cache matters, nor what a burst costs, nor waking up.
_LONG = 0.02
#: From here on it matters where memory lies (seen from 2 ms on).
_DISPLACED = 0.2e-3
#: Rounds that allowed calls are divided into, at the least.
_DIVIDED = 6
#: Untimed calls where nothing but the host is timed: the second one after waking is still slower than those after it.
_LEAD_IN_OF_A_HOST = 2
#: Rounds that are made even where one would be enough, and those that are enough when the time is up.
_LEAST_ROUNDS, FEWEST_ROUNDS = 3, 2


@dataclass(frozen=True, slots=True)
class Effort:
    """What one timing may spend, and how it spends it."""

    #: From here on no round is begun that would not be over by then, in seconds after the first call.
    seconds: float
    #: Calls of one side in one round: mean length of a queued burst, and length of a paced one.
    queued: int
    paced: int
    #: Timed calls of one side and kind, at the most.
    calls: int
    #: Whether rounds go on for end-to-end times alone when device times are known. Those of short calls are at the
    #: mercy of the host, and no number of calls that could be afforded would make them certain.
    chased: bool
    least_rounds: int
    #: Of how many processors a quick one is chosen, at the most; None: of all.
    processors: int | None
    #: Untimed calls whenever a side has been woken.
    lead_in: int
    #: Whether calls find a cold cache.
    cold: bool
    #: Whether memory is somewhere else in each round.
    displaced: bool

    @property
    def long(self) -> bool:
        """Whether calls take so long that the judge's clock is sharp without more bursts."""
        return not self.cold


def lease_seconds(per_call: float, limit: float) -> float:
    """Return how many seconds the bursts of a lease may take whose calls take `per_call` or more; see `plan`."""
    seconds = max(_LONG_LEASE_SECONDS, _SLOW_CALLS * per_call) if per_call >= _SLOW else _LEASE_SECONDS
    return min(seconds, _SHARE * limit)


def plan(
    per_call: float,
    *,
    per_set: float,
    calls: int,
    longest: int,
    limit: float,
    ahead: int = 1 << 20,
    queued: bool = True,
    displaces: bool = True,
) -> Effort:
    """Return the effort for calls that take `per_call` seconds from end to end, and whose inputs take `per_set` to draw.

    `calls` are allowed of each side and kind, `longest` fit one burst, the timing stage may take `limit` seconds, and
    `ahead` input sets can be drawn before anything is timed. Unless calls are `queued` there is no other time than
    end-to-end time, and unless the device `displaces` memory it stays where it is.
    """
    long = per_call >= _LONG
    each = int(_ROUND_SECONDS / max(per_call + per_set, 1e-7))
    each = max(each, min(_FEWEST, int(_ROUND_SECONDS / max(per_call, 1e-7))))
    most = max(1, min(each, longest, calls // _DIVIDED, max(_FEWEST, ahead // _BATCHES)))
    each = max(length for length in _LENGTHS if length <= most)
    chased = per_call >= _CHASED or not queued
    return Effort(
        seconds=lease_seconds(per_call / _FIRST_ARE_SLOWER, limit),
        queued=each,
        paced=each if chased else min(each, _UNCHASED),
        calls=calls,
        chased=chased,
        least_rounds=FEWEST_ROUNDS if per_call >= _SLOW else _LEAST_ROUNDS,
        processors=None if chased else _FEW_PROCESSORS,
        lead_in=0 if long else 1 if queued else _LEAD_IN_OF_A_HOST,
        cold=not long,
        displaced=displaces and per_call >= _DISPLACED,
    )
