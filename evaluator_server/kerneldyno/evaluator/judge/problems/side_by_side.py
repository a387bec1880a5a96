"""Several trials prepared side by side: what they ask their problem travels together.

Each order to a problem's process costs two switches of the device between processes, and on a busy device each switch
waits for the turns of all others (docs/lessons.md). A trial takes three orders. Here several trials take three orders
together. Each runs as a greenlet up to its next question; when all have asked, the questions are sent together, and
the greenlets go on with the answers.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import torch
from greenlet import getcurrent, greenlet

from ...shared.running_problem import Answer, Answering, Call, Draw, PreciseRun, RunningProblem

T = TypeVar("T")

#: What a track may ask: for one input set, for one answer, or for some answers in float64.
_Question = Draw | Call | Sequence[PreciseRun]


def side_by_side(
    problem: RunningProblem, works: Sequence[Callable[[Answering], T]], at_once: int | None = None
) -> list[T | BaseException]:
    """Do each of the `works`, which ask what they are given, and return what each returned or raised.

    At most `at_once` of them wait for an answer at the same time. Raises what the problem raises if it cannot answer at
    all; then all of them have ended.
    """
    tracks = [_Track(work) for work in works]
    waiting, asked = deque(tracks), dict[_Track[T], _Question]()
    try:
        while asked or waiting:
            while waiting and (at_once is None or len(asked) < at_once):
                track = waiting.popleft()
                if (question := track.begin()) is not None:
                    asked[track] = question
            if not asked:
                break
            kind = _kind(next(iter(asked.values())))
            some = {track: question for track, question in asked.items() if _kind(question) is kind}
            for track in some:
                del asked[track]
            for track, question in _answer(problem, some):
                asked[track] = question
    except BaseException as error:
        for track in tracks:
            track.stop(error)
        raise
    return [cast("T | BaseException", track.result) for track in tracks]


def raised(found: Sequence[T | BaseException]) -> list[T]:
    """Return what all of them returned, or raise the first exception."""
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return cast("list[T]", found)


def _kind(question: _Question) -> type[Any]:
    return type(question) if isinstance(question, Draw | Call) else Sequence


def _answer(problem: RunningProblem, some: Mapping[_Track[Any], _Question]) -> list[tuple[_Track[Any], _Question]]:
    """Put questions of one kind together, let their tracks go on, and return what those ask next."""
    tracks, questions = list(some), list(some.values())
    if isinstance(questions[0], Draw):
        with problem.drawn_together(cast("list[Draw]", questions)) as sets:
            return _go_on(tracks, sets)
    if isinstance(questions[0], Call):
        return _go_on(tracks, problem.answer_together(cast("list[Call]", questions)))
    lists = cast("list[Sequence[PreciseRun]]", questions)
    found = iter(problem.precise_together([run for runs in lists for run in runs]))
    return _go_on(tracks, [[next(found) for _ in runs] for runs in lists])


def _go_on(tracks: Sequence[_Track[Any]], answers: Sequence[Any]) -> list[tuple[_Track[Any], _Question]]:
    asked = [(track, track.go_on(answer)) for track, answer in zip(tracks, answers, strict=True)]
    return [(track, question) for track, question in asked if question is not None]


@dataclass(eq=False)
class _Track(Generic[T]):
    """One piece of work between its questions."""

    work: Callable[[Answering], T]
    result: T | BaseException | None = None
    _greenlet: greenlet | None = None

    def begin(self) -> _Question | None:
        """Work up to the first question, and return that; None if there is none."""
        self._greenlet = greenlet(self._run)
        self._greenlet.gr_context = getcurrent().gr_context
        return self.go_on(None)

    def go_on(self, answer: Any) -> _Question | None:
        """Go on with an answer up to the next question, and return that; None if there is none."""
        assert self._greenlet is not None
        return cast("_Question | None", self._greenlet.switch(answer))

    def stop(self, error: BaseException) -> None:
        """End it with an exception where it waits, and again if it asks on. Raises nothing: the caller does.

        One that were left waiting could never be freed, nor its tensors: the collector does not see into it.
        """
        while self._greenlet is not None and not self._greenlet.dead:
            with contextlib.suppress(BaseException):
                self._greenlet.throw(error)

    def _run(self, _: None) -> None:
        try:
            self.result = self.work(_Asked())
        except Exception as error:  # a cancellation ends the whole piece of work
            self.result = error


class _Asked(Answering):
    """The problem as a track sees it."""

    @contextlib.contextmanager
    def drawn(self, number: int, seed: int) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        yield _ask(Draw(number, seed))

    def answer(self, call: Call) -> Answer:
        return cast(Answer, _raised(_ask(call)))

    def precise(self, runs: Sequence[PreciseRun]) -> list[tuple[Any, list[torch.Tensor]] | None]:
        return [_raised(each) for each in _ask(list(runs))]


def _ask(question: _Question) -> Any:
    parent = getcurrent().parent
    assert parent is not None
    return parent.switch(question)


def _raised(found: Any) -> Any:
    """Return an answer, or raise the exception that is in its place."""
    if isinstance(found, BaseException):
        raise found
    return found
