"""Draw the curves of a results.json: mean over seeds, with a band from the lowest to the highest seed.

    python examples/tiny_rl/plot.py build/tiny_rl/results.json

It also prints Markdown tables: the verdicts on programs, the ends of the curves, and the final programs that were
judged again. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from grammar import plans

#: The figures at the end of a run are means over this many last updates.
_TAIL = 10
_BY_CHECKS = ("trusting, TRLOO", "checks off, TRLOO", "checks on, TRLOO")
_BY_ESTIMATOR = ("checks on, GRPO", "checks on, TRLOO", "checks on, TRLOO + PR", "checks on, TRLOO + PR + PRS")
_BY_SIZE = ("checks on, GRPO, N = 2, 4 or 16", "checks on, TRLOO, N = 2, 4 or 16")
_BY_TURN = ("checks on, TRLOO", "checks on, TRLOO + entropy bonus")
#: (file, settings, [(title of a panel, key of its figure)])
_FIGURES: tuple[tuple[str, Sequence[str], Sequence[tuple[str, str]]], ...] = (
    (
        "checks",
        _BY_CHECKS,
        (
            ("reward paid, mean over turns", "paid"),
            ("fast@1 by the strict judge, last turn", "turn_3/fast@1"),
            ("share of cheats, last turn", "turn_3/cheats"),
        ),
    ),
    (
        "estimators",
        _BY_ESTIMATOR,
        (
            ("fast@1 by the strict judge, last turn", "turn_3/fast@1"),
            ("speedup by the strict judge, last turn (wrong = 0)", "turn_3/speedup"),
            ("share of lazy programs, last turn", "turn_3/lazy"),
        ),
    ),
    (
        "group_sizes",
        _BY_SIZE,
        (
            ("reward paid, mean over turns", "paid"),
            ("fast@1 by the strict judge, last turn", "turn_3/fast@1"),
            ("entropy of a choice, nats", "entropy"),
        ),
    ),
)
_OUTCOMES = {"CORRECT": "", "INCORRECT": "wrong", "REJECTED": "rejected", "COMPILE_ERROR": "compile error"}


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="Plot the curves of tiny_rl.")
    parser.add_argument(
        "results", type=Path, nargs="+", help="later files add runs to the first one or replace its runs"
    )
    parser.add_argument("--images", type=Path, default=Path("build/tiny_rl"))
    parser.add_argument("--name", default="tiny_rl", help="what the names of the images begin with (default: tiny_rl)")
    options = parser.parse_args()
    results = json.loads(options.results[0].read_text())
    for path in options.results[1:]:
        results["runs"] |= json.loads(path.read_text())["runs"]
    options.images.mkdir(parents=True, exist_ok=True)
    for name, settings, panels in _FIGURES:
        present = [setting for setting in settings if setting in results["runs"]]
        if present:
            draw(results["runs"], present, panels, options.images / f"{options.name}_{name}.png")
    draw_turns(results["runs"], options.images / f"{options.name}_turns.png")
    print(table_of_choices(results), table_of_ends(results["runs"]), table_of_second_looks(results), sep="\n")
    return 0


def draw(
    runs: dict[str, list[dict[str, Any]]], settings: Sequence[str], panels: Sequence[tuple[str, str]], path: Path
) -> None:
    """Draw one figure: a panel for each key, a curve for each setting."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.4))
    for axis, (title, key) in zip(axes, panels, strict=True):
        for setting in settings:
            curve(axis, [[row[key] for row in run["history"]] for run in runs[setting]], setting)
        finish(axis, title)
    axes[0].legend(fontsize=7)
    save(figure, path)


def draw_turns(runs: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw one figure: the speedup of each turn of an episode, without and with an entropy bonus."""
    present = [setting for setting in _BY_TURN if setting in runs]
    if not present:
        return
    figure, axes = plt.subplots(1, len(present), figsize=(4.8 * len(present), 3.4), squeeze=False)
    for axis, setting in zip(axes[0], present, strict=True):
        for turn in (1, 2, 3):
            curve(
                axis, [[row[f"turn_{turn}/speedup"] for row in run["history"]] for run in runs[setting]], f"turn {turn}"
            )
        finish(axis, f"speedup by the strict judge (wrong = 0)\n{setting}")
    axes[0][0].legend(fontsize=7)
    save(figure, path)


def curve(axis: Any, seeds: list[list[float]], label: str) -> None:
    """Draw the mean over seeds of running means over five updates, and the band from the lowest to the highest seed."""
    smooth = [
        [sum(row[max(0, i - 4) : i + 1]) / len(row[max(0, i - 4) : i + 1]) for i in range(len(row))] for row in seeds
    ]
    columns = list(zip(*smooth, strict=False))  # an unfinished run is shorter
    line = axis.plot([sum(column) / len(column) for column in columns], label=label, linewidth=1.5)[0]
    low, high = [min(column) for column in columns], [max(column) for column in columns]
    axis.fill_between(range(len(columns)), low, high, color=line.get_color(), alpha=0.15, linewidth=0)


def finish(axis: Any, title: str) -> None:
    """Set the style that all panels share."""
    axis.set_title(title, fontsize=8)
    axis.set_xlabel("update", fontsize=8)
    axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.3)


def save(figure: Any, path: Path) -> None:
    """Write a PNG small enough for a repository."""
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)
    print(f"wrote {path}", file=sys.stderr)


def table_of_choices(results: dict[str, Any]) -> str:
    """Return a table of programs: verdicts with checks on, with checks off, and the trusting evaluator's claims."""
    verdicts = results["verdicts"]
    problems = list(dict.fromkeys(key.rsplit("/", 1)[0] for key in verdicts["on"]))
    head = ["program", *(f"{problem}: on" for problem in problems), f"{problems[-1]}: off", "trusting", "coverage"]
    rows = [head, ["---"] * len(head)]
    for plan in plans():
        if plan.edge != "masked" and (plan.rows, plan.walk, plan.fusion) != ("rows_some", "whole_row", "fused"):
            continue  # programs with a mistake are listed once: they are wrong at any size
        keys = [f"{problem}/{plan.name}" for problem in problems]
        cells = [cell(verdicts["on"][key]) for key in keys]
        off = verdicts.get("off", {}).get(keys[-1])
        claim = results.get("claims", {}).get(keys[-1])
        cells += [
            cell(off) if off else "",
            (f"{claim['speedup']:.2f}" if claim["correct"] else "wrong") if claim else "",
        ]
        believed = claim["coverage"] if claim and claim["correct"] else None
        coverage = verdicts["on"][keys[-1]]["coverage"] or believed  # the judge has no coverage if it cannot profile
        rows.append([plan.name, *cells, "" if coverage is None else f"{coverage:.2f}"])
    return markdown(rows)


def cell(paid: dict[str, Any]) -> str:
    """Format a speedup or an outcome, with the findings about the candidate; those about the problem are left out."""
    outcome = _OUTCOMES.get(paid["outcome"], paid["outcome"].lower())
    findings = " ".join(finding for finding in paid["findings"] if not finding.startswith("D"))
    return f"{outcome or format(paid['speedup'], '.2f')} {findings}".strip()


def table_of_ends(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return a table of the last updates of each setting: mean over seeds, lowest and highest seed."""
    keys = (
        "paid",
        "turn_1/fast@1",
        "turn_3/fast@1",
        "turn_1/speedup",
        "turn_3/speedup",
        "turn_3/cheats",
        "turn_3/lazy",
    )
    rows = [["setting", *keys, "updates to fast@1 of 0.8"], ["---"] * (len(keys) + 2)]
    for setting, reports in runs.items():
        cells = []
        for key in keys:
            ends = [run["history"][-_TAIL:] for run in reports]
            tails = [sum(row[key] for row in end) / len(end) for end in ends]
            cells.append(f"{sum(tails) / len(tails):.2f} ({min(tails):.2f} to {max(tails):.2f})")
        rows.append([setting, *cells, spread([reached(run["history"]) for run in reports])])
    return markdown(rows)


def reached(history: list[dict[str, float]]) -> int | None:
    """Return the first update from which five in a row have a mean fast@1 of at least 0.8; None if there is none."""
    values = [row["turn_3/fast@1"] for row in history]
    return next((i for i in range(len(values) - 4) if sum(values[i : i + 5]) / 5 >= 0.8), None)


def spread(values: list[int | None]) -> str:
    """Return all numbers as text, in order; None becomes "never" and comes last."""
    order: Callable[[int | None], float] = lambda value: float("inf") if value is None else value  # noqa: E731
    return ", ".join("never" if value is None else str(value) for value in sorted(values, key=order))


def table_of_second_looks(results: dict[str, Any]) -> str:
    """Return a table of the most frequent final programs: first verdict, and verdict when judged again."""
    rows = [["problem / program", "first verdict", "judged afresh", "interval"], ["---"] * 4]
    for key, pair in results.get("afresh", {}).items():
        low, high = pair["again"]["interval"]
        rows.append([key, cell(pair["first"]), cell(pair["again"]), f"{low:.2f} to {high:.2f}" if high else ""])
    return markdown(rows)


def markdown(rows: list[list[str]]) -> str:
    """Format the rows of a table."""
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
