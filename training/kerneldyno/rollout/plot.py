"""Plot of a report: fast@p by turn, of single answers and of the best so far. Needs matplotlib, and no display.

Solid lines count wins by the speedup, dashed lines of the same colour by the lower end of its 95 % interval.
"""

from __future__ import annotations

from pathlib import Path

from kerneldyno.rollout.errors import PlotError
from kerneldyno.rollout.report import Report


def plot(report: Report, path: Path, title: str = "") -> None:
    """Draw a report into a file.

    Args:
        report: the figures.
        path: the file; its suffix chooses the format (PNG by default).
        title: title of the figure.

    Raises:
        ImportError: matplotlib is not installed; the extra `rollout` has it.
        PlotError: there is no finished episode.
        ValueError: matplotlib has no format of that suffix.
    """
    if not report.turns:
        raise PlotError("no finished episode: there is nothing to plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    turns = [row.turn for row in report.turns]
    panels = figure.subplots(1, 2, sharey=True)
    shares = (
        ("this turn's answer", [row.fast for row in report.turns], [row.sure_fast for row in report.turns]),
        (
            "best answer so far (oracle)",
            [row.best_fast for row in report.turns],
            [row.best_sure_fast for row in report.turns],
        ),
    )
    for axes, (name, plain, sure) in zip(panels, shares, strict=True):
        for p in report.turns[0].fast:
            (line,) = axes.plot(turns, [100 * row[p] for row in plain], marker="o", label=f"fast@{p:g}")
            axes.plot(turns, [100 * row[p] for row in sure], marker=".", linestyle="--", color=line.get_color())
        axes.set_title(name)
        axes.set_xlabel("turn")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    panels[0].plot(turns, [100 * row.correct for row in report.turns], color="0.5", linestyle=":", label="correct")
    panels[0].plot([], [], color="0.5", linestyle="--", marker=".", label="fast@p/sure")
    panels[0].set_ylabel("% of all samples")
    panels[0].set_ylim(0, 100)
    panels[0].legend()
    if title:
        figure.suptitle(title)
    figure.savefig(path, dpi=150)
