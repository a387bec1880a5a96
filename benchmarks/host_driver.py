"""Simulate, in virtual time, how the lock of a host's GPU driver limits the candidates a minute on 1, 2, 4 and 8 GPUs.

`python -m benchmarks.host_driver [--births] [--drivers host|gpu] [--early 0.5] [--at-once 2] [--calls-factor 0.3]` prints
Markdown tables. Nothing is evaluated and nothing sleeps. `--births` prints births a second of processes that only get a
CUDA context and die. Otherwise two tables compare the model with runs of benchmarks/throughput.py, and the last one
predicts; the options change only this one.

The driver has one lock for all GPUs of a host, first come, first served, and each of its calls holds it. Virtual machines
for each GPU would have a lock each (`--drivers gpu`). A GPU has 8 lanes, 8 spare runners, one judge, and a turn: either
the judge works, or one candidate is timed. Meanwhile the GPU's other processes stand still, also those that are being
born; one that waits for the lock or holds it ends its call first. No birth begins. The model has no memory, network or
scheduler, and gives every process a processor of its own.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import random
import statistics
from collections import deque
from collections.abc import Generator
from typing import NamedTuple

# Measured on H200s, driver 580, 2026-11-27, unless said otherwise. "A trace": one run, one GPU, maybe an H100.
_LANES, _SPARES, _PROBLEMS, _A_GPU = 8, 8, 8, 128
#: A modelled call stands for so many in a row, to be quick; it holds the lock as long as they, and waits as long as they.
_TOGETHER = 20
#: A birth: 425 real calls. Alone, one with its death takes 169 ms (5.9 a second), of which 61 ms are in the birth's calls
#: and 33 ms are the death. With many at once, 13.1 a second, both hold the lock for 76 ms; a death does it in one piece.
_BIRTH_CALLS, _BIRTH_LOCK, _BIRTH_USER, _BARE_DEATH_LOCK, _DEATH_USER = 425, 0.060, 0.086, 0.018, 0.012
#: Seconds that a real call of a warm process holds the lock: 131 calls in a timing took 4.3 ms (a trace).
_CALL_LOCK = 33e-6
#: The judge makes 428 calls outside timings for a mean candidate (a trace), here in 10.7 pieces. Of the 0.162 s of a
#: processor that it uses for one, 3 ms a piece are taken to be left after timings, calls and first runs.
_PIECE_CALLS, _PIECE_USER = 40, 0.003
_PREPARING_PIECES, _CHECKING_PIECES, _TIMED_PIECES = 1, 8, 6
#: Calls of a runner that loads and compiles, and of all in a timing (a trace). Most rehearsals take less than 0.1 s.
_COMPILING_CALLS, _TIMING_CALLS, _REHEARSAL = 45, 131, 0.1
#: On each GPU the judge runs each problem once for the first time, and keeps two runners for its reference.
_FIRST_RUN, _REFERENCES = (1.0, 3.0), 2
#: Durations vary as a gamma distribution of this shape. The middle half of all compilations took 0.43 to 0.82 s.
_SHAPE = 4.0
#: Free constants that fit the first row of `MEASURED`, one GPU: seconds of running alone to open a runner, to compile, to
#: run beside each piece of the judge's checking, and to time.
_OPENING, _COMPILING, _CHECKING, _LEASE = 0.082, 0.405, 0.013, 0.146
#: What the service adds to a birth: sandbox, first kernels, measurement of the pace (the trace).
_SERVICE_BIRTH = 0.16
#: Free constants that fit the rates of all rows with one and two GPUs: a lane's seconds between two candidates, outside
#: all stages; and for how much longer a birth and a death hold the lock on GPUs that are busy. Together they hold it for
#: 138 ms, so a host can have 7.2 a second. Of these 60 ms 16 were seen in a birth that was alone; the rest stands for
#: calls that the model does not have, and for a birth's wait for its turn on the GPU, which holds no lock.
_BETWEEN, _BUSY_BIRTH, _BUSY_DEATH = 0.25, 0.030, 0.030

Process = Generator["float | deque[Process]", None, None]


class Batch(NamedTuple):
    """Shares of the candidates that get a runner, that are checked, and that are timed."""

    born: float
    checked: float
    timed: float


#: Those of benchmarks/batches.py. A syntax error needs no runner, and an error of compilation or the first call no check.
MIXED, EARLY = Batch(31 / 32, 26 / 32, 17 / 32), Batch(1 / 2, 1 / 2, 13 / 32)


class Options(NamedTuple):
    """What is simulated."""

    gpus: int = 1
    drivers: str = "host"
    batch: Batch = MIXED
    at_once: int = 8
    rehearsed: bool = False
    calls_factor: float = 1.0
    birth_lock: float = _BIRTH_LOCK + _BUSY_BIRTH
    death_lock: float = _BARE_DEATH_LOCK + _BUSY_DEATH
    seed: int = 0


class Row(NamedTuple):
    """A measured run: candidates a minute, and seconds of its stages (`STAGES`), means over all candidates."""

    name: str
    options: Options
    minute: float
    stages: tuple[float, ...] = ()
    used: str = ""  # what was calibrated with it


STAGES = ("preparing", "compiling", "checking", "awaiting lease", "timing")
#: 0.3 of the judge's calls are left: 680 of 816 were for mappings, which now hold 128 MiB and not 20 MiB (calculated).
_NEWER = Options(rehearsed=True, calls_factor=0.3)
_TWO = _NEWER._replace(at_once=2)
MEASURED = (
    Row("8 births at once", Options(), 250, (0.198, 0.637, 0.604, 0.020, 0.272), "stages, rate"),
    Row("the same", Options(2), 346, (0.487, 0.722, 0.896, 0.034, 0.447), "rate"),
    Row("the same, 2026-11-22", Options(4), 426),
    Row("8 at once, rehearsals, larger mappings", _NEWER, 243, (0.414, 0.688, 0.416, 0.018, 0.241), "rate"),
    Row("the same, 354 and 299", _NEWER._replace(gpus=2), 326, (0.657, 0.808, 0.752, 0.038, 0.440), "rate"),
    Row("4 at once", _NEWER._replace(gpus=2, at_once=4), 345, (0.826, 0.604, 0.796, 0.019, 0.317), "rate"),
    Row("2 at once, rehearsals, larger mappings", _TWO, 196, (0.809, 0.522, 0.771, 0.007, 0.195), "rate"),
    Row("the same", _TWO._replace(gpus=2), 324, (1.023, 0.548, 0.897, 0.015, 0.254), "rate"),
    Row("the same, half fail early", _TWO._replace(batch=EARLY), 318, (0.433, 0.363, 0.426, 0.007, 0.168), "rate"),
    Row("the same", _TWO._replace(gpus=2, batch=EARLY), 593, (0.613, 0.297, 0.390, 0.010, 0.163), "rate"),
    # Later the same day, on another host.
    Row("8 at once, mixed", _NEWER, 217),
    Row("4 at once, mixed", _NEWER._replace(gpus=2, at_once=4), 317),
    Row("8 at once, half fail early", _NEWER._replace(batch=EARLY), 343),
    Row("4 at once, half fail early", _NEWER._replace(gpus=2, at_once=4, batch=EARLY), 584),
    # A third host, the same day.
    Row("8 at once, mixed", _NEWER, 247),
    Row("2 at once, mixed", _NEWER._replace(gpus=4, at_once=2), 403),
    Row("8 at once, half fail early", _NEWER._replace(batch=EARLY), 395),
    Row("2 at once, half fail early", _NEWER._replace(gpus=4, at_once=2, batch=EARLY), 716),
)
#: Births a second by number of GPUs and births at once on each.
BIRTHS = dict(zip(itertools.product((1, 2), (1, 2, 4, 8)), (5.9, 9.4, 11.5, 12.4, 9.2, 11.6, 12.9, 13.1), strict=True))


class Clock:
    """Virtual time. A process yields the seconds that it sleeps, or a queue in which it waits until it is woken."""

    def __init__(self) -> None:
        self.now, self._events, self._numbers = 0.0, list[tuple[float, int, Process]](), itertools.count()

    def start(self, process: Process) -> None:
        """Let a process run, or go on, at the present time."""
        heapq.heappush(self._events, (self.now, next(self._numbers), process))

    def run(self, until: float = math.inf) -> None:
        """Run until nothing happens any more, or until that time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, process = heapq.heappop(self._events)
            wish = next(process, None)
            if isinstance(wish, deque):
                wish.append(process)
            elif wish is not None:
                heapq.heappush(self._events, (self.now + wish, next(self._numbers), process))


class Lock:
    """A lock that its waiters get in the order in which they came; `holds` has begin and end of each hold."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.holds, self._waiting = clock, list[tuple[float, float]](), deque[Process]()
        self._since: float | None = None

    def take(self) -> Process:
        """Wait for the lock and hold it."""
        if self._since is not None:
            yield self._waiting  # `drop` hands it over
        self._since = self.clock.now

    def drop(self) -> None:
        """Release the lock to the first waiter."""
        assert self._since is not None, "nobody holds the lock"
        self.holds.append((self._since, self.clock.now))
        self._since = self.clock.now if self._waiting else None
        if self._waiting:
            self.clock.start(self._waiting.popleft())

    def hold(self, seconds: float) -> Process:
        """Wait for the lock, hold it for that long, and release it."""
        yield from self.take()
        yield seconds
        self.drop()


class Gpu:
    """A GPU: its driver's lock, the turn of its judge and timings, and its runners."""

    def __init__(self, clock: Clock, driver: Lock, options: Options, dice: random.Random) -> None:
        self.clock, self.driver, self.turn, self.options, self.dice = clock, driver, Lock(clock), options, dice
        self.ready, self.births, self._births_wanted = _SPARES, 0, 0
        self.references, self.unknown = [_REFERENCES] * _PROBLEMS, set(range(_PROBLEMS))
        self._wanting_spare, self._idle, self._stopped = deque[Process](), deque[Process](), deque[Process]()
        self._leased, self._leased_since = 0.0, math.inf
        for _ in range(options.at_once):
            clock.start(self._refill())

    def vary(self, mean: float) -> float:
        """Return a random duration with this mean."""
        return self.dice.gammavariate(_SHAPE, mean / _SHAPE) if mean else 0.0

    def run(self, seconds: float) -> Process:
        """Let a process of this GPU run for that long; it stands still while another one is timed."""
        while seconds > 0:
            while self._leased_since < math.inf:
                yield self._stopped
            before = self._leased
            yield seconds
            seconds = self._leased + max(0.0, self.clock.now - self._leased_since) - before

    def calls(self, number: float, user: float, each: float = _CALL_LOCK, *, stops: bool = True) -> Process:
        """Make that many calls that hold the driver's lock for `each` seconds, with `user` seconds of work between."""
        pieces = int(number / _TOGETHER + self.dice.random())
        for _ in range(max(1, pieces)):
            work = self.dice.expovariate(max(1, pieces) / user)
            yield from self.run(work) if stops else iter((work,))
            if pieces:
                yield from self.driver.hold(self.dice.expovariate(1 / (_TOGETHER * each)))

    def birth(self, added: float = 0.0) -> Process:
        """Make a process with a CUDA context."""
        yield from self.calls(_BIRTH_CALLS, _BIRTH_USER, self.options.birth_lock / _BIRTH_CALLS)
        yield from self.run(added)

    def death(self) -> Process:
        """End a process."""
        yield from self.run(_DEATH_USER)
        yield from self.driver.hold(self.options.death_lock)

    def spare(self) -> Process:
        """Take a spare runner, and want a new one."""
        while not self.ready:
            yield self._wanting_spare
        self.ready -= 1
        self._births_wanted += 1
        if self._idle:
            self.clock.start(self._idle.popleft())

    def _refill(self) -> Process:
        while True:
            while not self._births_wanted:
                yield self._idle
            self._births_wanted -= 1
            yield from self.birth(self.vary(_SERVICE_BIRTH))
            self.births += 1
            self.ready += 1
            if self._wanting_spare:
                self.clock.start(self._wanting_spare.popleft())

    def judge(self, pieces: int, beside: float = 0.0) -> Process:
        """Let the judge work for a candidate, whose runner runs for `beside` seconds after each piece."""
        for _ in range(pieces):
            yield from self.turn.take()
            yield from self.calls(_PIECE_CALLS * self.options.calls_factor, self.vary(_PIECE_USER), stops=False)
            self.turn.drop()
            yield from self.run(self.vary(beside))

    def lease(self) -> Process:
        """Time a candidate, which has the turn already, while all others stand still."""
        self._leased_since = self.clock.now
        yield from self.calls(_TIMING_CALLS * self.options.calls_factor, self.vary(_LEASE), stops=False)
        self._leased, self._leased_since = self._leased + self.clock.now - self._leased_since, math.inf
        while self._stopped:
            self.clock.start(self._stopped.popleft())
        self.turn.drop()


class Host:
    """A host that evaluates a batch."""

    def __init__(self, options: Options) -> None:
        self.options, self.clock, dice = options, Clock(), random.Random(options.seed)
        self.drivers = [Lock(self.clock) for _ in range(options.gpus if options.drivers == "gpu" else 1)]
        self.gpus = [Gpu(self.clock, self.drivers[i % len(self.drivers)], options, dice) for i in range(options.gpus)]
        #: The numbers of candidates say how far they come: shares are exact, and the order is random.
        self.queue = deque(dice.sample(range(_A_GPU * options.gpus), _A_GPU * options.gpus))
        #: Candidates that have a verdict, the seconds until the last one, and seconds of all of them in each stage.
        self.judged, self.seconds, self.stages = list[int](), 0.0, dict.fromkeys(STAGES, 0.0)

    def evaluate(self) -> Host:
        """Evaluate the batch."""
        for gpu in self.gpus * _LANES:
            self.clock.start(self._lane(gpu))
        self.clock.run()
        return self

    @property
    def minute(self) -> float:
        """Candidates a minute."""
        return 60 * len(self.judged) / self.seconds

    @property
    def lock_busy(self) -> float:
        """Share of the time for which a driver's lock was held."""
        holds = itertools.chain.from_iterable(lock.holds for lock in self.drivers)
        held = sum(min(end, self.seconds) - begin for begin, end in holds if begin < self.seconds)
        return held / len(self.drivers) / self.seconds

    def _lane(self, gpu: Gpu) -> Process:
        while self.queue:
            number = self.queue.popleft()
            yield from self._candidate(gpu, (number + 0.5) / (_A_GPU * self.options.gpus), number % _PROBLEMS)
            self.judged.append(number)
            self.seconds = self.clock.now
            yield gpu.vary(_BETWEEN)

    def _candidate(self, gpu: Gpu, rank: float, problem: int) -> Process:
        begin = self.clock.now
        born, checked, timed = (rank < share for share in self.options.batch)

        def passed(stage: str) -> None:
            nonlocal begin
            self.stages[stage] += self.clock.now - begin
            begin = self.clock.now

        yield from gpu.judge(_PREPARING_PIECES)
        if self.options.rehearsed:
            yield gpu.vary(_REHEARSAL)
        if born:
            yield from gpu.spare()
            yield from gpu.run(gpu.vary(_OPENING))
        passed("preparing")
        if not born:
            return
        yield from gpu.calls(_COMPILING_CALLS, gpu.vary(_COMPILING))
        if checked:
            passed("compiling")
            if problem in gpu.unknown:
                gpu.unknown.remove(problem)
                yield gpu.dice.uniform(*_FIRST_RUN)
            yield from gpu.judge(_CHECKING_PIECES, _CHECKING)
        if timed:
            if gpu.references[problem]:
                gpu.references[problem] -= 1
                yield from gpu.spare()
            passed("checking")
            yield from gpu.turn.take()
            passed("awaiting lease")
            yield from gpu.lease()
            yield from gpu.judge(_TIMED_PIECES)
        yield from gpu.death()
        passed("timing" if timed else "checking" if checked else "compiling")


def births_a_second(gpus: int, at_once: int, seconds: float = 60.0) -> float:
    """Return the births a second of a host whose processes do nothing but get a context and die."""
    host = Host(Options(gpus=gpus, at_once=0, birth_lock=_BIRTH_LOCK, death_lock=_BARE_DEATH_LOCK))
    born = 0

    def cycle(gpu: Gpu) -> Process:
        nonlocal born
        while True:
            yield from gpu.birth()
            yield from gpu.death()
            born += 1

    for gpu in host.gpus * at_once:
        host.clock.start(cycle(gpu))
    host.clock.run(seconds)
    return born / seconds


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Simulate hosts whose GPUs share a driver's lock, in virtual time.")
    add = parser.add_argument
    add("--births", action="store_true", help="only births and deaths of processes that do nothing else")
    add("--drivers", choices=("host", "gpu"), help="predict only for a driver for each host, or each GPU")
    add("--early", type=float, help="share that a rehearsal ends before it needs a context (default: no rehearsals)")
    add("--at-once", type=int, default=8, help="births at once on each GPU (default: 8)")
    add("--calls-factor", type=float, default=1.0, help="factor for driver calls of the judge and of timings")
    add("--birth-ms", type=float, default=1e3 * Options().birth_lock, help="lock time of a birth")
    add("--death-ms", type=float, default=1e3 * Options().death_lock, help="lock time of a used runner's death")
    add("--runs", type=int, default=4, help="simulated runs of each row, whose mean is printed (default: 4)")
    add("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.births:
        print("| GPUs | at once on each | measured, a second | simulated | error |")
        print("| ---: | ---: | ---: | ---: | ---: |")
        for (gpus, at_once), measured in BIRTHS.items():
            born = births_a_second(gpus, at_once)
            print(f"| {gpus} | {at_once} | {measured} | {born:.1f} | {born / measured - 1:+.1%} |")
        return
    # Candidates that end early replace first those that are not checked, then those that are not timed.
    batch = Batch(*(min(1 - (given.early or 0.0), share) for share in MIXED))
    options = Options(1, "host", batch, given.at_once, given.early is not None, given.calls_factor)
    options = options._replace(birth_lock=given.birth_ms / 1e3, death_lock=given.death_ms / 1e3, seed=given.seed)
    _print_measured(given.runs, given.seed)
    _print_predicted(options, (given.drivers,) if given.drivers else ("host", "gpu"), given.runs)


def _runs(options: Options, count: int) -> list[Host]:
    return [Host(options._replace(seed=options.seed + number)).evaluate() for number in range(count)]


def _print_measured(count: int, seed: int) -> None:
    stages = [f"| variant | GPUs | {' | '.join(STAGES)} |", f"| --- | ---: |{' ---: |' * len(STAGES)}"]
    print("| variant | GPUs | measured, a minute | simulated | error | used for |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for row in MEASURED:
        hosts = _runs(row.options._replace(seed=seed), count)
        minute = statistics.mean(host.minute for host in hosts)
        name = f"| {row.name} | {row.options.gpus} |"
        print(f"{name} {row.minute:.0f} | {minute:.0f} | {minute / row.minute - 1:+.1%} | {row.used} |")
        means = [statistics.mean(host.stages[stage] / len(host.judged) for host in hosts) for stage in STAGES]
        if row.stages:
            pairs = (f"{measured:.2f}, {mean:.2f}" for measured, mean in zip(row.stages, means, strict=True))
            stages.append(f"{name} {' | '.join(pairs)} |")
    print("\nStage means in seconds over all candidates: measured, simulated.\n", *stages, "", sep="\n")


def _print_predicted(options: Options, drivers: tuple[str, ...], count: int) -> None:
    print("Predicted:\n\n| one driver for each | GPUs | a minute | of one GPU's | births a second | lock held |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    alone = statistics.mean(host.minute for host in _runs(options, count))
    for driver, gpus in itertools.product(drivers, (1, 2, 4, 8)):
        hosts = _runs(options._replace(gpus=gpus, drivers=driver), count)
        seen = [(host.minute, sum(gpu.births for gpu in host.gpus) / host.seconds, host.lock_busy) for host in hosts]
        minute, births, busy = map(statistics.mean, zip(*seen, strict=True))
        print(f"| {driver} | {gpus} | {minute:.0f} | {minute / alone:.2f} | {births:.1f} | {busy:.0%} |")


if __name__ == "__main__":
    main()
