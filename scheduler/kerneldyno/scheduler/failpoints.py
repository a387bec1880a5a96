"""Failpoints: places where tests make the scheduler crash, stall or fail. A disarmed one costs one lookup in an empty dict.

`KERNELDYNO_FAILPOINTS` arms them at the start of the process. It has `PLACE=ACTION` pairs, separated by commas. Actions are

    kill            send SIGKILL to this process: no handler runs, no buffer is flushed
    sleep:SECONDS   block the calling thread, as a slow disk would
    error           raise OSError(EIO), as a failing disk would

and may end in `@P`, the probability (0 to 1) that a pass acts, or `#N`, to act on the Nth pass only. `seed=N` makes the
probabilities repeatable. Example: `seed=7,after_commit=kill@0.01,during_commit=error#3`. An unknown place is an error.
"""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

ENVIRONMENT = "KERNELDYNO_FAILPOINTS"

#: All places, in the order in which an evaluation passes them. tests/chaos crashes the scheduler at each.
PLACES = (
    "before_commit",  # a batch was taken from the journal; nothing of it is written
    "during_commit",  # its rows are written, the transaction is open
    "after_commit",  # the batch is durable, and no callback was made
    "before_accepted_sent",
    "after_accepted_sent",
    "before_assignment_sent",
    "after_assignment_sent",
    "on_result_received",  # a node's result has arrived and is not processed yet
    "before_acknowledgement_sent",
    "after_acknowledgement_sent",
    "before_result_sent",
    "after_result_sent",
    "on_node_lost",  # the attempts of a lost node are being dropped, in memory only
    "during_recovery",  # the store was read; the state machine is being filled
    "after_recovery",  # the state machine is complete; no client can connect yet
    "during_trim",  # old results were deleted, the transaction is open
)


@dataclass(slots=True)
class _Action:
    place: str
    act: Callable[[str], None]
    probability: float
    pass_number: int
    draw: random.Random
    passes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def passed(self) -> None:
        with self.lock:
            self.passes += 1
            due = self.passes == self.pass_number if self.pass_number else self.draw.random() < self.probability
        if due:
            self.act(self.place)


def failpoint(place: str) -> None:
    """Act as KERNELDYNO_FAILPOINTS says for `place`; do nothing if it does not name the place."""
    if _armed and (action := _armed.get(place)) is not None:
        action.passed()


def is_armed(place: str) -> bool:
    """Return True if `failpoint` may act there. For places that exist only in a slower way of doing the same."""
    return place in _armed


def parse(text: str) -> dict[str, _Action]:
    """Parse the value of `KERNELDYNO_FAILPOINTS`.

    Raises:
        ValueError: The message quotes the part that is invalid.
    """
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    seed = next((int(pair[5:]) for pair in pairs if re.fullmatch(r"seed=\d+", pair)), None)
    return {
        action.place: action
        for action in (_action(pair, seed) for pair in pairs if not re.fullmatch(r"seed=\d+", pair))
    }


def _action(pair: str, seed: int | None) -> _Action:
    match = re.fullmatch(r"(\w+)=(kill|error|sleep:([\d.]+))(?:@([\d.]+)|#(\d+))?", pair)
    if match is None or match[1] not in PLACES:
        known = f"; the places are {', '.join(PLACES)}" if match is not None else ""
        raise ValueError(f"{ENVIRONMENT}: {pair!r} is not PLACE=kill|sleep:SECONDS|error[@PROBABILITY|#PASS]{known}")
    place, word, seconds, probability, pass_number = match.groups()
    acts = {"kill": _kill, "error": _fail}
    act = acts.get(word) or (lambda _: time.sleep(float(seconds)))
    # Each place has a random generator of its own, so that threads do not change each other's sequence.
    draw = random.Random(None if seed is None else f"{seed} {place}")
    return _Action(place, act, float(probability or 1), int(pass_number or 0), draw)


def _kill(place: str) -> None:
    os.write(2, f"failpoint {place}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # the signal may reach another thread first, and this one must not go on meanwhile


def _fail(place: str) -> None:
    raise OSError(errno.EIO, f"failpoint {place}")


_armed = parse(os.environ.get(ENVIRONMENT, ""))
