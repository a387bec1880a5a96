"""Plot the results of the benchmarks, from the dictionaries that their `--json` option writes.

`python -m benchmarks.plots FILE.json PLOT.png` draws a plot again. The kind of benchmark is recognised from the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

_SERVICE, _BASELINE = "#1f6f8b", "#c8553d"
_DPI = 150


def throughput(measured: dict[str, Any], path: Path) -> Path:
    """Plot candidates a minute and wrong verdicts, and the service's time by stage."""
    figure, (rates, stages) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(2, 3))
    runs = measured["service"]
    bars = [(_number(runs[-1]), statistics.median(run["a_minute"] for run in runs), runs[-1])]
    bars += [(_number(run), run["a_minute"], run) for run in measured["one_device"]]
    for base in measured.get("baseline", []):
        bars.append((f"{base['workers']} persistent\nworker{'s'[: base['workers'] > 1]}", base["a_minute"], base))
    for number, (_, rate, run) in enumerate(bars):
        rates.bar(number, rate, color=_BASELINE if "workers" in run else _SERVICE)
        rates.text(number, rate, f"{len(run['wrong'])} wrong", ha="center", va="bottom")
    rates.set_xticks(range(len(bars)), [name for name, _, _ in bars])
    rates.set_ylabel("candidates a minute")
    rates.margins(y=0.12)
    found = {name: seconds for name, seconds in runs[-1]["stages"].items() if name != "queued"}
    names = list(found)[::-1]
    stages.barh(names, [sum(found[name]) / runs[-1]["candidates"] for name in names], color=_SERVICE)
    stages.set_xlabel("seconds a candidate, mean (queue left out)")
    return _save(figure, f"{runs[-1]['of']} candidates, {_device(runs[-1])}", path)


def _number(run: dict[str, Any]) -> str:
    devices = len(run["devices"])
    return "1 device" if devices == 1 else f"{devices} devices"


def accuracy(measured: dict[str, Any], path: Path) -> Path:
    """Plot speedups of twins, which should be 1, and errors of spins, which should be 0, over duration."""
    figure, (twins, spins) = plt.subplots(1, 2, figsize=(11, 4.2))
    for name, colour, label in (("baseline", _BASELINE, "persistent worker"), ("busy", _SERVICE, "service")):
        kernels = {kernel: rows for kernel, rows in measured[name].items() if not kernel.startswith(("spin", "ratio"))}
        rows = [row for rows in kernels.values() for row in rows]
        style = {"color": colour, "label": label}
        at, ratios = [row["seconds"] * 1e6 for row in rows], [row["speedup"] for row in rows]
        twins.scatter(at, ratios, s=12, alpha=0.6, **style)
        errors = measured["spins"][name]
        spins.plot([row["set"] * 1e6 for row in errors], [row["error"] * 1e6 for row in errors], "o-", **style)
    at = [row["set"] * 1e6 for row in errors]
    allowed = [row["allowed"] * 1e6 for row in errors]
    spins.fill_between(at, [-value for value in allowed], allowed, color="0.9", zorder=0, label="1 us or 2 %")
    twins.axhspan(0.99, 1.01, color="0.9", zorder=0)
    twins.set(xscale="log", xlabel="us a call", ylabel="speedup of a kernel over itself")
    twins.legend()
    spins.set(xscale="log", yscale="symlog", xlabel="spin, us", ylabel="error, us")
    spins.legend()
    return _save(figure, _device(measured), path)


def overhead(measured: dict[str, Any], path: Path) -> Path:
    """Plot median seconds per candidate, by method."""
    figure, axes = plt.subplots(figsize=(8, 3.6))
    bare, single, batch = measured["bare"], measured["single"], measured["batch"]
    rows = [
        ("bare: whole process", [row["process"] for row in bare], "0.6"),
        ("bare: compile and one call", [row["compile_and_run"] for row in bare], "0.6"),
        ("service: one at a time", single["plain"], _SERVICE),
        ("service: profiled", single["profiled"], _SERVICE),
        ("service: all lanes busy", [batch["seconds"] / max(1, batch["candidates"])], _SERVICE),
        ("service: syntax error", measured["syntax_error"], _SERVICE),
        ("persistent worker", measured["baseline"], _BASELINE),
    ]
    for place, (name, seconds, colour) in enumerate([row for row in rows if row[1]][::-1]):
        middle = statistics.median(seconds)
        axes.barh(name, middle, color=colour)
        axes.text(middle, place, f" {middle * 1e3:.0f} ms", va="center")
    axes.set_xlabel("seconds a candidate, median")
    axes.margins(x=0.15)
    return _save(figure, _device(measured), path)


def _device(measured: dict[str, Any]) -> str:
    return str(measured["environment"].get("device", "")) + (
        ": times of a CPU, mostly interpreted" if measured["kind"] == "cpu" else ""
    )


def _save(figure: Any, title: str, path: Path) -> Path:
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)
    return path


def main() -> None:
    """Plot a file written by --json."""
    parser = argparse.ArgumentParser(description="Plot the results of a benchmark.")
    parser.add_argument("file", type=Path)
    parser.add_argument("plot", type=Path)
    options = parser.parse_args()
    measured = json.loads(options.file.read_text())
    draw = throughput if "service" in measured else accuracy if "busy" in measured else overhead
    print(draw(measured, options.plot))


if __name__ == "__main__":
    main()
