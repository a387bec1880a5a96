"""Charts: inline SVG that scales with its box, takes its colours from the page's style, and needs no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from xml.etree.ElementTree import Element

from kerneldyno.report.figures import Curve
from kerneldyno.report.markup import node
from kerneldyno.rewards.factors import factor
from kerneldyno.rewards.roofline import scaled

#: Size of a chart in its own units, and its margins: left for the labels of the y axis, below for those of the x axis.
_WIDTH, _HEIGHT = 440.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 430.0, 12.0, 226.0
#: Height of the line between the histogram and the single candidates of a distribution.
_MIDDLE = 104.0
_BINS = 30
#: Most candidates that are drawn individually.
_DOTS = 120
#: Number of different styles of curves.
CURVE_STYLES = 6

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Log:
    """A logarithmic x axis."""

    low: float
    high: float

    def at(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return _LEFT + share * (_RIGHT - _LEFT)

    def ticks(self) -> list[float]:
        """Return at most eight round values."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            values = [factor * 10.0**decade for decade in decades for factor in factors]
            inside = [value for value in values if self.low <= value * 1.0001 and value <= self.high * 1.0001]
            if len(inside) <= 8:
                return inside
        return inside[:: math.ceil(len(inside) / 8)]


def bar(share: float, style: str) -> Element:
    """Return a horizontal bar that fills a share (0 to 1) of its box."""
    width = max(100 * share, 0.5) if share else 0
    box = {"viewBox": "0 0 100 10", "preserveAspectRatio": "none", "aria_hidden": "true"}
    return node("svg", node("rect", width=width, height=10, class_=style), class_="bar", **box)


def fast_at_p(grid: Sequence[float], curves: Sequence[Curve]) -> Element:
    """Return fast@p over p, on a logarithmic axis, with the band of the intervals if there are any."""
    axis = _Log(grid[0], grid[-1])
    top = _round_share(max(max(curve.high or curve.shares) for curve in curves))

    def y(share: float) -> float:
        return _BOTTOM - share / top * (_BOTTOM - _TOP)

    parts = [*_shares_axis(top, y), *_speedup_axis(axis, _TOP)]
    for index, curve in enumerate(curves):
        style = f"c{index % CURVE_STYLES}"
        if curve.low:
            upper = [_point(axis.at(p), y(share)) for p, share in zip(grid, curve.high, strict=True)]
            lower = [_point(axis.at(p), y(share)) for p, share in zip(grid, curve.low, strict=True)]
            parts.append(node("polygon", points=" ".join([*upper, *reversed(lower)]), class_=f"band {style}"))
    for index, curve in enumerate(curves):
        line = " ".join(_point(axis.at(p), y(share)) for p, share in zip(grid, curve.shares, strict=True))
        parts.append(node("polyline", node("title", curve.name), points=line, class_=f"line c{index % CURVE_STYLES}"))
    return _chart(f"fast@p of {', '.join(curve.name for curve in curves)}", parts)


def distribution(grid: Sequence[float], timed: Sequence[tuple[float, float | None, float | None, str]]) -> Element:
    """Return a histogram of the speedups of correct candidates, and below it each of them by rank.

    Args:
        grid: thresholds of the axis.
        timed: for each candidate its speedup, both ends of the interval, and its name.
    """
    axis = _Log(grid[0], grid[-1])
    parts = _speedup_axis(axis, _TOP)
    step = (_RIGHT - _LEFT) / _BINS
    counts = [0] * _BINS
    for speedup, _, _, _ in timed:
        counts[min(int((axis.at(speedup) - _LEFT) / step), _BINS - 1)] += 1
    for index, count in enumerate(counts):
        height = count / max(counts) * (_MIDDLE - 10 - _TOP)
        if count:
            place = {"x": _LEFT + index * step + 0.5, "y": _MIDDLE - 10 - height}
            parts.append(
                node(
                    "rect", node("title", f"{count} candidates"), **place, width=step - 1, height=height, class_="count"
                )
            )
    parts.append(node("text", str(max(counts)), x=_LEFT - 6, y=_TOP + 10, class_="tick end"))
    parts.append(node("line", x1=_LEFT, x2=_RIGHT, y1=_MIDDLE - 10, y2=_MIDDLE - 10, class_="grid"))
    shown = _spread(sorted(timed, key=lambda one: one[0]))
    for rank, (speedup, low, high, name) in enumerate(shown):
        y = _BOTTOM - 4 - (rank + 0.5) / len(shown) * (_BOTTOM - _MIDDLE - 4)
        if low is not None and high is not None:
            parts.append(node("line", x1=axis.at(low), x2=axis.at(high), y1=y, y2=y, class_="whisker"))
        told = f"{name}: {factor(speedup)}x" + (
            "" if low is None or high is None else f" ({factor(low)} to {factor(high)})"
        )
        parts.append(node("circle", node("title", told), cx=axis.at(speedup), cy=y, r=2.2, class_="dot"))
    return _chart(f"Speedups of {len(timed)} right candidates", parts)


def over_workloads(
    lines: Sequence[tuple[str, Sequence[tuple[int, float, float | None, float | None, str]]]],
) -> Element:
    """Return the speedups of candidates over the workloads of their problem: a line for each candidate.

    Args:
        lines: for each candidate its name, and for each of its workloads the number of the workload (from 1), the
            speedup, both ends of the interval, and the workload's name.
    """
    points = [point for _, line in lines for point in line]
    ends = [end for point in points for end in point[1:4] if end is not None]
    low, high = min(0.5, *ends), max(2.0, *ends)
    count = max(point[0] for point in points)

    def x(number: int) -> float:
        return _LEFT + (number - 0.5) / count * (_RIGHT - _LEFT)

    def y(speedup: float) -> float:
        return _BOTTOM - math.log(speedup / low) / math.log(high / low) * (_BOTTOM - _TOP)

    parts = []
    for value in _Log(low, high).ticks():
        parts.append(node("line", x1=_LEFT, x2=_RIGHT, y1=y(value), y2=y(value), class_="grid"))
        parts.append(node("text", f"{value:g}x", x=_LEFT - 6, y=y(value) + 4, class_="tick end"))
    parts.append(node("line", x1=_LEFT, x2=_RIGHT, y1=y(1), y2=y(1), class_="even"))
    for number in range(1, count + 1, math.ceil(count / 20)):
        parts.append(node("text", str(number), x=x(number), y=_BOTTOM + 16, class_="tick middle"))
    parts.append(node("text", "workload", x=_RIGHT, y=_HEIGHT - 2, class_="tick end"))
    for index, (candidate, line) in enumerate(lines):
        style = f"c{index % CURVE_STYLES}"
        for number, _, least, most, _ in line:
            if least is not None and most is not None:
                parts.append(node("line", x1=x(number), x2=x(number), y1=y(least), y2=y(most), class_="whisker"))
        drawn = " ".join(_point(x(number), y(speedup)) for number, speedup, _, _, _ in line)
        parts.append(node("polyline", node("title", candidate), points=drawn, class_=f"line {style}"))
        for number, speedup, _, _, workload in line:
            told = f"{candidate}, {workload}: {factor(speedup)}x"
            parts.append(node("circle", node("title", told), cx=x(number), cy=y(speedup), r=2.2, class_="dot"))
    return _chart(f"Speedups over {count} workloads of {', '.join(name for name, _ in lines)}", parts)


def roofline(points: Sequence[tuple[float, float, str]], memory: float | None, compute: float | None) -> Element:
    """Return kernels by their place under the roofs of a device, on two logarithmic axes.

    Args:
        points: for each kernel its operations for each byte, its operations a second, and its name.
        memory: bytes that the device can move in a second; None if it is not known.
        compute: operations that it can do in a second; None if it is not known.
    """
    intensities, rates = [point[0] for point in points], [point[1] for point in points]
    ridge = [compute / memory] if compute and memory else []
    axis = _Log(min(intensities) / 3, 3 * max(*intensities, *ridge, 3 * min(intensities)))
    top = 1.5 * max(*rates, compute or (memory or 0.0) * axis.high, 3 * min(rates))
    height = _Log(min(rates) / 3, top)

    def y(rate: float) -> float:
        inside = min(max(rate, height.low), height.high)
        return _BOTTOM - math.log(inside / height.low) / math.log(height.high / height.low) * (_BOTTOM - _TOP)

    parts = []
    for value in height.ticks():
        parts.append(node("line", x1=_LEFT, x2=_RIGHT, y1=y(value), y2=y(value), class_="grid"))
        parts.append(node("text", scaled(value, "").strip(), x=_LEFT - 6, y=y(value) + 4, class_="tick end"))
    for value in axis.ticks():
        parts.append(node("line", x1=axis.at(value), x2=axis.at(value), y1=_TOP, y2=_BOTTOM, class_="grid"))
        parts.append(node("text", f"{value:g}", x=axis.at(value), y=_BOTTOM + 16, class_="tick middle"))
    parts.append(node("text", "FLOP/s", x=_LEFT + 4, y=_TOP + 8, class_="tick"))
    parts.append(node("text", "FLOP a byte", x=_RIGHT, y=_HEIGHT - 2, class_="tick end"))
    if memory:
        first = max(axis.low, height.low / memory)
        last = min(axis.high, height.high / memory, *(ridge or [axis.high]))
        drawn = [_point(axis.at(at), y(memory * at)) for at in (first, last)]
        parts.append(node("polyline", node("title", "memory"), points=" ".join(drawn), class_="line c1"))
    if compute:
        drawn = [_point(axis.at(at), y(compute)) for at in (ridge[0] if ridge else axis.low, axis.high)]
        parts.append(node("polyline", node("title", "compute"), points=" ".join(drawn), class_="line c1"))
    for intensity, rate, name in _spread(points):
        parts.append(node("circle", node("title", name), cx=axis.at(intensity), cy=y(rate), r=2.6, class_="dot"))
    return _chart(f"Roofline of {len(points)} kernels", parts)


def shown_of(count: int) -> int:
    """Return how many of `count` candidates or kernels are drawn individually."""
    return min(count, _DOTS)


def _spread(ranked: Sequence[T]) -> list[T]:
    """Return some of many, evenly spread, including the first and the last."""
    if len(ranked) <= _DOTS:
        return list(ranked)
    return [ranked[round(index * (len(ranked) - 1) / (_DOTS - 1))] for index in range(_DOTS)]


def _chart(label: str, parts: Sequence[Element]) -> Element:
    box = {"viewBox": f"0 0 {_WIDTH:g} {_HEIGHT:g}", "role": "img", "aria_label": label}
    return node("svg", *parts, class_="chart", **box)


def _speedup_axis(axis: _Log, top: float) -> list[Element]:
    parts = []
    for value in axis.ticks():
        x = axis.at(value)
        parts.append(node("line", x1=x, x2=x, y1=top, y2=_BOTTOM, class_="grid"))
        parts.append(node("text", f"{value:g}x", x=x, y=_BOTTOM + 16, class_="tick middle"))
    parts.append(node("line", x1=axis.at(1), x2=axis.at(1), y1=top, y2=_BOTTOM, class_="even"))
    parts.append(node("text", "speedup", x=_RIGHT, y=_HEIGHT - 2, class_="tick end"))
    return parts


def _shares_axis(top: float, y: Callable[[float], float]) -> list[Element]:
    parts = []
    for quarter in range(5):
        share = top * quarter / 4
        height = y(share)
        parts.append(node("line", x1=_LEFT, x2=_RIGHT, y1=height, y2=height, class_="grid"))
        parts.append(node("text", f"{100 * share:g} %", x=_LEFT - 6, y=height + 4, class_="tick end"))
    return parts


def _round_share(largest: float) -> float:
    """Return the end of an axis of shares that must include `largest`."""
    return next(end for end in (0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if largest <= end)


def _point(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"
