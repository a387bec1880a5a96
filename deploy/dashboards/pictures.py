"""Pictures of the dashboards, drawn from a Prometheus' answers to the panels' own queries. They are not Grafana's.

    python -m deploy.dashboards.pictures --prometheus http://127.0.0.1:9090 --minutes 60 --out docs/images

Colours, units, stacking and places are those of the JSON; Grafana's own look, its tooltips and its variables are not there:
every instance and every device is shown.
"""

from __future__ import annotations

import argparse
import io
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from .reading import Panel, Prometheus, PrometheusError, dashboards, filled, panels

#: Inches of one grid unit, and how far panels stay apart.
_ACROSS, _DOWN, _GAP = 0.62, 0.32, 0.1
_DPI = 90
#: Points in time of one panel.
_POINTS = 240
#: At most so many names below a panel.
_NAMES = 4
#: Seconds between two marks of the time axis.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_COLOURS = {
    "green": "#56a64b",
    "orange": "#ff9830",
    "yellow": "#e0b400",
    "red": "#e02f44",
    "purple": "#a352cc",
    "blue": "#3274d9",
}
_SHADES = {"dark": 0.65, "light": 1.35, "": 1.0}
_CYCLE = ("#56a64b", "#3274d9", "#e0b400", "#e02f44", "#a352cc", "#ff9830", "#19a2a8", "#8c6d46", "#7b8ea8", "#c15c17")

Series = tuple[str, list[float], list[float]]


def draw(prometheus: Prometheus, dashboard: Mapping[str, Any], start: float, end: float) -> Figure:
    """One dashboard between two Unix times."""
    placed = panels(dashboard)
    across, down = 24 * _ACROSS, max(panel.y + panel.height for panel in placed) * _DOWN + 0.5
    figure = pyplot.figure(figsize=(across, down), facecolor="#f4f5f5")
    span = f"{time.strftime('%H:%M', time.gmtime(start))} to {time.strftime('%H:%M', time.gmtime(end))} UTC"
    figure.text(0.008, 1 - 0.28 / down, f"{dashboard['title']}    {span}", fontsize=12, weight="bold", va="center")
    step = max(1.0, (end - start) / _POINTS)
    window = f"{max(15, math.ceil(4 * step))}s"
    variables = {"instance": ".+", "device": ".+", "__rate_interval": window, "__range": f"{math.ceil(end - start)}s"}
    for panel in placed:
        low = down - 0.5 - (panel.y + panel.height) * _DOWN
        box = (panel.x * _ACROSS + _GAP / 2, low + _GAP / 2, panel.width * _ACROSS - _GAP, panel.height * _DOWN - _GAP)
        place = (box[0] / across, box[1] / down, box[2] / across, box[3] / down)
        if panel.kind == "row":
            figure.text(place[0], place[1] + place[3] / 2, panel.title, fontsize=9.5, weight="bold", va="center")
            continue
        frame = figure.add_axes(place, facecolor="white", xticks=[], yticks=[])
        frame.spines[:].set_color("#d8d9da")
        frame.text(
            *(0.08 / box[2], 1 - 0.13 / box[3]), panel.title, transform=frame.transAxes, fontsize=7.5, va="center"
        )
        ask = _asker(prometheus, variables, start, end, step)
        inner = (0.5 / box[2], 0.62 / box[3], 1 - 0.62 / box[2], 1 - 0.95 / box[3])
        _DRAWERS[panel.kind](frame, inner, panel, ask)
    return figure


def save(figure: Figure, path: Path) -> None:
    """As a PNG of few colours: a fifth of the size, and nothing is lost in flat drawings."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    pyplot.close(figure)
    Image.open(buffer).convert("RGB").quantize(96).save(path, optimize=True)


def _asker(
    prometheus: Prometheus, variables: Mapping[str, str], start: float, end: float, step: float
) -> Callable[[Panel], list[Series]]:
    def ask(panel: Panel) -> list[Series]:
        found = []
        for target in panel.targets:
            for one in prometheus.query_range(filled(target.expr, variables), start, end, step):
                times, values = zip(*((float(at), float(value)) for at, value in one["values"]), strict=True)
                found.append((_name(target.legend, one["metric"], panel.title), list(times), list(values)))
        return found

    return ask


def _name(legend: str, labels: Mapping[str, str], otherwise: str) -> str:
    if legend == "__auto":
        return ", ".join(value for key, value in labels.items() if key != "__name__") or otherwise
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)


def _lines(
    frame: Axes, inner: tuple[float, float, float, float], panel: Panel, ask: Callable[[Panel], list[Series]]
) -> None:
    axes = frame.inset_axes(inner)
    found = [one for one in ask(panel) if any(math.isfinite(value) for value in one[2])]
    custom = panel.raw["fieldConfig"]["defaults"].get("custom", {})
    fixed = {
        override["matcher"]["options"]: property_["value"]["fixedColor"]
        for override in panel.raw["fieldConfig"]["overrides"]
        for property_ in override["properties"]
    }
    # What is 0 throughout says nothing in a picture, unless there is nothing else.
    found = [one for one in found if any(value for value in one[2] if math.isfinite(value))] or found[:_NAMES]
    chosen = [_colour(fixed.get(name, "")) or _CYCLE[index % len(_CYCLE)] for index, (name, _, _) in enumerate(found)]
    if custom.get("stacking", {}).get("mode") == "normal" and found:
        clock = sorted({at for _, times, _ in found for at in times})
        rows = [[dict(zip(times, values, strict=True)).get(at, 0.0) for at in clock] for _, times, values in found]
        rows = [[value if math.isfinite(value) else 0.0 for value in row] for row in rows]
        axes.stackplot(_dates(clock), rows, colors=chosen, alpha=0.75, linewidth=0)
    else:
        for (_, times, values), colour in zip(found, chosen, strict=True):
            axes.plot(_dates(times), values, color=colour, linewidth=1.1)
    shown = [value for _, _, values in found for value in values if math.isfinite(value)]
    least, most = min([0.0, *shown]), max([0.0, axes.get_ylim()[1] if any(shown) else 1.0])
    axes.set_ylim(1.05 * least, most)
    if not shown:
        frame.text(0.5, 0.5, "no data", transform=frame.transAxes, fontsize=8, color="#8e8e8e", ha="center")
        axes.set_xticks([])
    _dress(axes, panel.unit)
    _legend(frame, found, chosen, panel.unit)


def _number(
    frame: Axes, inner: tuple[float, float, float, float], panel: Panel, ask: Callable[[Panel], list[Series]]
) -> None:
    values = [value for _, _, numbers in ask(panel) for value in numbers if math.isfinite(value)]
    steps = panel.raw["fieldConfig"]["defaults"]["thresholds"]["steps"]
    last = values[-1] if values else math.nan
    passed = [step["color"] for step in steps if step.get("value") is None or last >= step["value"]]
    colour = _colour(passed[-1] if passed else "blue") or "#333333"
    axes = frame.inset_axes((0, 0, 1, 0.3))
    axes.axis("off")
    axes.fill_between(range(len(values)), values, color=colour, alpha=0.2, linewidth=0)
    text = _said(last, panel.unit) if values else "no data"
    frame.text(0.5, 0.5, text, transform=frame.transAxes, fontsize=19, color=colour, ha="center", va="center")


def _heat(
    frame: Axes, inner: tuple[float, float, float, float], panel: Panel, ask: Callable[[Panel], list[Series]]
) -> None:
    axes = frame.inset_axes(inner)
    found = sorted(ask(panel), key=lambda one: float(one[0].replace("+Inf", "inf")))
    clock = found[0][1] if found else []
    totals = [dict(zip(times, values, strict=True)) for _, times, values in found]
    below = [[total.get(at, 0.0) for at in clock] for total in totals]
    alone = [
        [max(0.0, here - less) for here, less in zip(row, under, strict=True)]
        for row, under in zip(below, [[0.0] * len(clock), *below], strict=False)
    ]
    if alone and len(clock) > 1:
        axes.pcolormesh(_dates(clock), range(len(found)), alone, cmap="Blues", shading="nearest")
    axes.set_yticks(range(len(found)), [f"≤ {name}" for name, _, _ in found], fontsize=5.5)
    _dress(axes, panel.unit, values=False)


def _table(
    frame: Axes, inner: tuple[float, float, float, float], panel: Panel, ask: Callable[[Panel], list[Series]]
) -> None:
    raw = [(name, values[-1]) for name, _, values in ask(_named_by_labels(panel))]
    room = int((panel.height * _DOWN - 0.45) / 0.16)
    rows = [f"{name}   {value:g}" for name, value in raw]
    if len(rows) > room:
        rows = [*rows[: room - 1], f"... and {len(rows) - room + 1} more"]
    text = "\n".join(rows) or "no data"
    frame.text(0.02, 0.86, text, transform=frame.transAxes, fontsize=6.5, family="monospace", va="top", clip_on=True)


def _named_by_labels(panel: Panel) -> Panel:
    targets = tuple(type(target)(target.ref, target.expr, "__auto") for target in panel.targets)
    return type(panel)(**{name: getattr(panel, name) for name in panel.__dataclass_fields__} | {"targets": targets})


_DRAWERS = {"timeseries": _lines, "stat": _number, "heatmap": _heat, "table": _table}


def _dress(axes: Axes, unit: str, *, values: bool = True) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#d8d9da")
    axes.tick_params(labelsize=6, length=2, color="#c7c8c9")
    axes.margins(x=0)
    low, high = (round(86400 * day) for day in axes.get_xlim())
    step = next((step for step in _STEPS if high - low <= 5 * step), _STEPS[-1])
    ticks = range(-(-low // step) * step, high + 1, step)
    form = "%H:%M" if step % 60 == 0 else "%H:%M:%S"
    axes.set_xticks(_dates(ticks), [time.strftime(form, time.gmtime(at)) for at in ticks])
    if values:
        axes.grid(axis="y", color="#ececec", linewidth=0.6)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(lambda value, _: _said(value, unit))


def _legend(frame: Axes, found: Sequence[Series], chosen: Sequence[str], unit: str) -> None:
    """Names below the panel, with the newest value."""
    order = sorted(range(len(found)), key=lambda index: -max(v for v in found[index][2] if math.isfinite(v)))[:_NAMES]
    columns = 2 if len(order) > 2 else max(1, len(order))
    for position, index in enumerate(order):
        name, _, values = found[index]
        last = next((value for value in reversed(values) if math.isfinite(value)), math.nan)
        x, y = 0.02 + position % columns * 0.98 / columns, (0.13, 0.05)[position // columns]
        frame.plot([x, x + 0.018], [y, y], color=chosen[index], linewidth=3, transform=frame.transAxes)
        said = f"{name[:46]}  {_said(last, unit)}"
        frame.text(x + 0.026, y, said, transform=frame.transAxes, fontsize=6, va="center")


def _dates(times: Sequence[float]) -> list[float]:
    """Unix times as matplotlib has them: days since 1970."""
    return [at / 86400 for at in times]


def _colour(name: str) -> str | None:
    """Grafana's name for a colour as matplotlib takes it; None for none."""
    shade, _, plain = name.rpartition("-")
    if plain not in _COLOURS:
        return None
    parts = [int(_COLOURS[plain][at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{min(255, round(part * _SHADES[shade])):02x}" for part in parts)


def _said(value: float, unit: str) -> str:
    """A value with its unit, short."""
    if not math.isfinite(value):
        return "-"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "us")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return "0 s"
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and unit in ("hertz", "bytes", "none"):
            return f"{value / size:.3g} {name}{ {'hertz': 'Hz', 'bytes': 'B'}.get(unit, '') }"
    return f"{value:.3g}" + {"celsius": " °C", "watt": " W", "hertz": " Hz", "bytes": " B"}.get(unit, "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.dashboards.pictures", description=__doc__)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", metavar="URL")
    parser.add_argument("--minutes", type=float, default=60.0, help="how far back (%(default)g)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    end = time.time()
    try:
        for name, dashboard in dashboards().items():
            path = options.out / f"{name}.png"
            save(draw(Prometheus(options.prometheus), dashboard, end - 60 * options.minutes, end), path)
            print(path)
    except PrometheusError as error:
        print(f"pictures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
