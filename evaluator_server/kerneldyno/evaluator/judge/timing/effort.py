"""How many calls are timed: as many as the answer needs, in as little time as possible. Pure arithmetic.

While one candidate is timed, all others wait. Timing stops when the speedup is known as precisely as requested, when
the allowed number of calls has been made, or when the time is up: two seconds for calls of less than a tenth of a
second, for others five seconds or ten calls.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds that the bursts of one lease may take, for short and for long calls; the rest of the lease goes to other
#: work.
_LEASE_SECONDS = 1.75
_LONG_LEASE_SECONDS = 4.0
#: Calls that take this long, in seconds, are slow; a lease of slow calls has room for this many of both sides together.
_SLOW, _SLOW_CALLS = 0.1, 9
#: Factor by which the first calls may have been slower than others.
_FIRST_ARE_SLOWER = 1.5
#: Share of the timing stage's time limit that one lease may take.
_SHARE = 0.3
#: Target for the calls of each kind and side in one round, with the drawing of their inputs, in seconds.
_ROUND_SECONDS = 0.012
#: Least number of such calls, except for calls that take long themselves.
_FEWEST = 4
#: Allowed burst lengths. Empty bursts are kept by length, and compared with bursts of the same length.
_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 40)
#: From this call time on, in seconds, end-to-end times are pursued; and calls per round for them below it.
_CHASED, _UNCHASED = 0.3e-3, 8
#: Number of processors from which a quick one is chosen if end-to-end times are not pursued.
_FEW_PROCESSORS = 3
#: Approximate number of batches in one timing; the sets that can be drawn ahead are divided among them.
_BATCHES = 8
#: From this call time on, in seconds, neither the cache, nor a burst's fixed cost, nor waking up matters.
_LONG = 0.02
#: From this call time on, in seconds, the place of memory matters (seen from 2 ms on).
_DISPLACED = 0.2e-3
#: Least number of rounds into which the allowed calls are divided.
_DIVIDED = 6
#: Untimed calls if only the host is timed: the second call after waking is still slower than the later ones.
_LEAD_IN_OF_A_HOST = 2
#: Rounds that are made even if one would be enough, and rounds that are enough when the time is up.
_LEAST_ROUNDS, FEWEST_ROUNDS = 3, 2


@dataclass(frozen=True, slots=True)
class Effort:
    """What one timing may spend, and on what."""

    #: No round starts that would end later than this many seconds after the first call.
    seconds: float
    #: Calls of one side in one round: the mean length of a queued burst, and the length of a paced one.
    queued: int
    paced: int
    #: Most timed calls of one side and kind.
    calls: int
    #: True if rounds continue for end-to-end times alone when device times are known. End-to-end times of short calls
    #: depend on the host, and no affordable number of calls would make them certain.
    chased: bool
    least_rounds: int
    #: Most processors from which a quick one is chosen; None for all.
    processors: int | None
    #: Untimed calls each time a side has been woken.
    lead_in: int
    #: True if calls find a cold cache.
    cold: bool
    #: True if memory is at another place in each round.
    displaced: bool

    @property
    def long(self) -> bool:
        """True if calls take so long that the judge's clock is precise without more bursts."""
        return not self.cold


def lease_seconds(per_call: float, limit: float) -> float:
    """Return the time limit in seconds for the bursts of a lease whose calls take `per_call` or more.

    `limit` is the timing stage's limit in seconds; see `plan`.
    """
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
    """Return the effort for calls of one timing.

    Args:
        per_call: The end-to-end time of a call, in seconds.
        per_set: The time to draw the inputs of a call, in seconds.
        calls: The most calls of each side and kind.
        longest: The most calls in one burst.
        limit: The time limit of the timing stage, in seconds.
        ahead: The most input sets that can be drawn before the timing starts.
        queued: Whether calls are queued ahead; if not, the only time is end-to-end time.
        displaces: Whether the device moves memory; if not, memory stays where it is.
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
