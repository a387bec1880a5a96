"""The section on kernels: what limits the slowest one of each candidate, its place under the roofs, and errors of memory."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from kerneldyno.report import charts
from kerneldyno.report.candidates import Candidate, SeenKernel
from kerneldyno.report.markup import Child, node
from kerneldyno.report.sections import number, section, table
from kerneldyno.report.units import seconds
from kerneldyno.rewards.counters import MEMORY_FINDINGS

#: Most candidates in the table.
_ROWS = 100
_HEADS = ("candidate", "slowest kernel", "duration", "DRAM", "SM", "roof", "occupancy", "limiter", "memory errors")
_TOLD = (
    "By hardware counters: the candidate's own kernel that takes longest. DRAM and SM are shares of the peaks of device"
    " memory and of the multiprocessors; roof is the share of the nearer limit (m: memory, c: compute); occupancy is what"
    " was reached of what registers, shared memory and the size of a block allow. Memory errors are the findings M01 to M05."
)
#: Places and roofs outside of these are no device's, and are not drawn.
_INTENSITIES, _RATES = (1e-6, 1e6), (1.0, 1e18)


def kernels(found: Iterable[Candidate]) -> Element | None:
    """Return a table of candidates with counters or errors of memory, and a chart; None if there is no such candidate."""
    seen = [one for one in found if one.kernels or _errors(one)]
    if not seen:
        return None
    more = len(seen) - _ROWS
    return section(
        "kernels",
        "Kernels",
        *_chart(seen),
        table(_HEADS, [_row(one) for one in seen[:_ROWS]]),
        node("p", f"{more} more candidates have counters or memory errors.", class_="note") if more > 0 else None,
        node("p", _TOLD, class_="note"),
    )


def _row(one: Candidate) -> list[Element]:
    errors = node("td", _errors(one), class_="n")
    slowest = max(one.kernels, key=lambda kernel: kernel.seconds or 0.0, default=None)
    if slowest is None:
        return [node("td", one.id), node("td", "no counters"), *(number("") for _ in _HEADS[3:]), errors]
    occupancy = f"{_percent(slowest.occupancy)} of {_percent(slowest.possible_occupancy)}"
    return [
        node("td", one.id),
        node("td", slowest.name),
        number(seconds(slowest.seconds) if slowest.seconds else ""),
        number(_percent(slowest.dram)),
        number(_percent(slowest.sm)),
        number(f"{_percent(slowest.roof)} {slowest.bound[:1]}".strip()),
        number(occupancy),
        node("td", slowest.limiter or "none", class_="n"),
        errors,
    ]


def _chart(seen: Sequence[Candidate]) -> list[Child]:
    """Return all kernels under the roofs, with a note; nothing if no kernel has a place."""
    placed = [(one, kernel) for one in seen for kernel in one.kernels if _is_placed(kernel)]
    if not placed:
        return []
    points = [
        (kernel.intensity or 0.0, kernel.rate or 0.0, f"{one.id}: {kernel.name}, {_percent(kernel.roof)} of the roof")
        for one, kernel in placed
    ]
    places = Counter(one.environment for one, _ in placed)
    where = places.most_common(1)[0][0]
    here = [kernel for one, kernel in placed if one.environment == where]
    memory = statistics.median(roofs) if (roofs := _known(kernel.memory_roof for kernel in here)) else None
    compute = max(_known(kernel.compute_roof for kernel in here), default=None)
    shown = charts.shown_of(len(points))
    told = [
        f"{shown} of {len(points)} kernels." if shown < len(points) else f"{len(points)} kernels.",
        "The roofs are those that the counters give: of device memory, and of arithmetic"
        + ("." if compute else ", which is not known here: no kernel is bound by it."),
        "Arithmetic has several roofs (float32, tensor cores); the highest is drawn." if compute else "",
        f"They are those of {where or 'the first environment'}; kernels elsewhere are drawn too."
        if len(places) > 1
        else "",
    ]
    return [charts.roofline(points, memory, compute), node("p", " ".join(filter(None, told)), class_="note")]


def _is_placed(kernel: SeenKernel) -> bool:
    return _inside(kernel.intensity, _INTENSITIES) and _inside(kernel.rate, _RATES)


def _inside(value: float | None, limits: tuple[float, float]) -> bool:
    return value is not None and limits[0] <= value <= limits[1]


def _errors(one: Candidate) -> str:
    return ", ".join(sorted({finding.id for finding in one.findings} & set(MEMORY_FINDINGS)))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and _inside(value, _RATES)]


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"
