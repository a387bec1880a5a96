"""The parts of the page that need no script: tiles, warnings, charts with their tables, and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from kerneldyno.report import charts
from kerneldyno.report.candidates import BLAMELESS, Candidate, colour
from kerneldyno.report.elapsed import WAITING
from kerneldyno.report.figures import Curve, Figures, StageTimes
from kerneldyno.report.markup import Child, node
from kerneldyno.report.units import seconds
from kerneldyno.report.wording import times
from kerneldyno.training.metrics import THRESHOLDS

#: CSS classes for the terminal's colours.
STYLES = {"green": "good", "red": "bad", "yellow": "odd"}
_MEANINGLESS = (
    "ran on a CPU or in Triton's interpreter: their verdicts are real, their times and speedups mean nothing for a GPU"
)
#: Explanation of the second row of a table of fast@p.
_SURE = (
    "Sure: the whole 95 % interval of the speedup is above p. Unchanged PyTorch, whose speedup is 1 plus or minus noise, "
    "wins fast@1 half of the time, and fast@1/sure almost never."
)


def tiles(figures: Figures) -> Element:
    """Return the most important figures."""
    single = [curve for curve in figures.curves if not curve.is_best]
    cheats = dict(figures.outcomes).get("REJECTED", 0)
    lost = sum(count for _, count in figures.lost)
    doubtful = "; interpreter" if figures.interpreted else ""
    found = [
        _tile("correct", _percent(figures.correct, figures.judged), f"{figures.correct} of {figures.judged}", "good"),
        *(_tile("fast@1", f"{100 * curve.at_thresholds[0]:.1f} %", f"{curve.name}{doubtful}") for curve in single[-1:]),
        *(
            _tile(
                "fast@1/sure", f"{100 * curve.sure_at_thresholds[0]:.1f} %", f"{curve.name}, whole interval{doubtful}"
            )
            for curve in single[-1:]
        ),
        _tile(
            "median speedup",
            "none" if figures.median_speedup is None else times(figures.median_speedup),
            f"of {figures.timed} right and timed{_by(figures)}{doubtful}",
        ),
        _tile("rejected", str(cheats), "caught cheating", "bad" if cheats else ""),
        _tile("no verdict", str(lost), "not the candidates' fault", "odd" if lost else ""),
    ]
    return node("div", *found, class_="tiles")


def warnings(figures: Figures, notes: Sequence[str]) -> Element | None:
    """Return what a reader must know before trusting the figures."""
    told = []
    if figures.interpreted:
        of = "All" if figures.interpreted == figures.timed else f"{figures.interpreted} of"
        told.append(f"{of} {figures.timed} timed candidates {_MEANINGLESS}.")
    if figures.timed_environments > 1:
        told.append(f"Times are of {figures.timed_environments} environments, and comparable within one only.")
    if len(figures.speedups_by) > 1:
        each = ", ".join(f"{words} for {count}" for words, count in figures.speedups_by)
        told.append(f"The speedup that counts is not by the same time for all candidates: {each}.")
    if untimed := figures.correct - figures.timed:
        told.append(f"{untimed} of {figures.correct} right candidates were not timed, and count as not fast.")
    if figures.without_interval:
        told.append(
            f"{figures.without_interval} of {figures.timed} timed candidates have no interval of their speedup (an older "
            "file?), so none of them is a sure win."
        )
    told += [f"{note[0].upper()}{note[1:]}." for note in (*notes, *figures.notes)]
    return node("ul", *(node("li", line) for line in told), class_="warnings") if told else None


def outcomes(figures: Figures) -> Element:
    """Return how many candidates had which outcome; those that are not the candidates' fault separately."""
    theirs = [(name, count) for name, count in figures.outcomes if name not in BLAMELESS]
    rows = [_outcome_row(name, count, figures.judged + figures.malformed) for name, count in theirs]
    parts: list[Child] = [table(("outcome", "", "count", "share"), rows)]
    if figures.lost:
        total = sum(count for _, count in figures.lost)
        parts += [
            node("h3", "No verdict: infrastructure, references, memory"),
            node(
                "p",
                f"{total} of {figures.candidates} candidates. They are in no share above or elsewhere.",
                class_="note",
            ),
            table(("cause", "count"), [[node("td", cause), number(count)] for cause, count in figures.lost]),
        ]
    if figures.malformed:
        parts.append(
            node(
                "p",
                f"{figures.malformed} of the INVALID are lines that were no requests; fast@p leaves them out.",
                class_="note",
            )
        )
    return section("outcomes", "Outcomes", *parts)


def fast(figures: Figures) -> Element | None:
    """Return fast@p as a curve and as a table."""
    if not figures.curves:
        return None
    shown = _few(figures.curves)
    banded = any(curve.low for curve in shown)
    rows = []
    for index, curve in enumerate(shown):
        rows.append([node("td", swatch(index), curve.name), *_shares(curve.at_thresholds)])
        rows.append([node("td", "sure", class_="sure"), *_shares(curve.sure_at_thresholds)])
    told = (
        f"Share of {figures.denominator} that are right and at least p times as fast as the reference{_by(figures)}. "
        f"Candidates that are wrong, crash, are rejected or are invalid count as not fast. {_SURE}"
    )
    if banded:
        told += " Band: from the shares by the lower ends of the intervals (sure wins) to those by the upper ends."
    if any(curve.is_best for curve in shown):
        told += " Best: chosen by the evaluator's own measurement, not comparable with single answers."
    told += " KernelBench calls it fast_p, and asks for more than p."
    heads = ("%, by p", *(f"{p:g}x" for p in THRESHOLDS))
    return section(
        "fast",
        "fast@p",
        charts.fast_at_p(figures.grid, shown),
        table(heads, rows),
        node("p", told, class_="note"),
        _kernelgym(figures),
        meaningless=figures.interpreted > 0,
    )


def _kernelgym(figures: Figures) -> Element | None:
    """Return KernelGYM's two definitions by turn, which differ only in the denominator; folded until it is opened."""
    if not figures.kernelgym:
        return None
    rows = []
    for row in figures.kernelgym:
        rows.append([node("td", f"turn {row.turn}, fast@p_in_all"), *_shares(row.in_all.values())])
        rows.append([node("td", f"turn {row.turn}, fast@p"), *_shares(row.of_correct.values())])
    told = (
        "To compare with figures of KernelGYM, by the speedup alone. Its fast@p_in_all is of the answers with a verdict: "
        "failed generations are left out. Its fast@p is of the correct answers."
    )
    return node(
        "details",
        node("summary", "By KernelGYM's definitions, in %"),
        table(("turn", *(f"{p:g}x" for p in THRESHOLDS)), rows),
        node("p", told, class_="note"),
    )


def groups(figures: Figures) -> Element | None:
    """Return shares and fast@p of each group of problems, if there are several."""
    if not figures.by_group:
        return None
    rows = []
    for row in figures.by_group:
        rows.append(
            [
                node("td", row.group or "(no group)"),
                number(row.problems),
                number(row.candidates),
                number(f"{100 * row.correct:.1f}"),
                *_shares(row.fast.values()),
                number("" if row.median_speedup is None else times(row.median_speedup)),
            ]
        )
        empty = [number("") for _ in range(3)]
        rows.append([node("td", "sure", class_="sure"), *empty, *_shares(row.sure_fast.values()), number("")])
    heads = ("group", "problems", "candidates", "correct %", *(f"{p:g}x" for p in THRESHOLDS), "median")
    told = (
        "fast@p (fast_p) in %, as above: of each group's candidates with a verdict, those that are right and at least p "
        f"times as fast as the reference{_by(figures)}. Sure: as above. A group is named by --group-label, else by the part "
        "of a problem's name before its last slash."
    )
    return section(
        "groups",
        "By group",
        table(heads, rows),
        node("p", told, class_="note"),
        meaningless=figures.interpreted > 0,
    )


def speedups(figures: Figures, found: Iterable[Candidate]) -> Element | None:
    """Return the distribution of the speedups."""
    timed = [(one.speedup, one.low, one.high, one.id) for one in found if one.counts and one.speedup is not None]
    if not timed:
        return None
    shown = charts.shown_of(len(timed))
    which = "each" if shown == len(timed) else f"{shown} of them, evenly spread by rank"
    told = f"{len(timed)} right, timed candidates{_by(figures)}; below, {which}, with 95 % intervals."
    return section(
        "speedups",
        "Speedups",
        charts.distribution(figures.grid, timed),
        node("p", told, class_="note"),
        meaningless=figures.interpreted > 0,
    )


def stages(figures: Figures) -> Element | None:
    """Return where the time was spent."""
    if not figures.stages:
        return None
    rows = [
        [
            node("td", stage.name),
            node("td", *_stage_bar(stage, figures.work_seconds), class_="wide"),
            *(number(seconds(value) if value else "0") for value in (stage.median, stage.p90, stage.longest)),
            number(_stage_share(stage, figures.work_seconds)),
        ]
        for stage in figures.stages
    ]
    told = (
        f"{_wall(figures)}Sums over candidates, which run side by side: {_lasting(figures.work_seconds)} of work, and "
        f"{_lasting(figures.waiting_seconds)} of waiting for others. Shares refer to the work. Candidates that a run of "
        "another request answered (cached, merged) are not counted again."
    )
    heads = ("stage", "", "median", "p90", "longest", "share")
    return section("stages", "Time by stage", table(heads, rows), node("p", told, class_="note"))


def _wall(figures: Figures) -> str:
    if figures.wall_seconds is None:
        return ""
    return f"{_lasting(figures.wall_seconds)} from the first request to the last verdict. "


def _stage_bar(stage: StageTimes, work: float) -> list[Element]:
    return [] if stage.name in WAITING else [charts.bar(stage.total / work if work else 0, "neutral")]


def _stage_share(stage: StageTimes, work: float) -> str:
    if stage.name in WAITING:
        return "waiting"
    return f"{100 * stage.total / work:.0f} %" if work else ""


def findings(figures: Figures) -> Element | None:
    """Return the findings, the worst first; a button shows the candidates of each."""
    if not figures.findings:
        return None
    rows = [
        node(
            "li",
            node("button", count.id, class_=f"tag {count.severity}", type="button", data_finding=count.id),
            node("span", f"{count.severity}, {count.candidates} of {figures.candidates}", class_="how"),
            node("span", count.example[:300], class_="what"),
        )
        for count in figures.findings
    ]
    told = "Ids are those of docs/threat-model.md. The words are one candidate's; the button shows all who have it."
    return section("findings", "Findings", node("ul", *rows, class_="findings"), node("p", told, class_="note"))


def environments(figures: Figures) -> Element | None:
    """Return where candidates were judged."""
    if not figures.environments:
        return None
    rows = [[node("td", name), number(count)] for name, count in figures.environments]
    return section("environments", "Environments", table(("", "candidates"), rows))


def section(id: str, title: str, *children: Child, meaningless: bool = False) -> Element:
    """Return a titled card, with a mark if its times are not those of a GPU."""
    mark = node("span", "interpreter times", class_="mark") if meaningless else None
    return node("section", node("h2", title, mark), *children, id=id)


def _outcome_row(name: str, count: int, of: int) -> list[Element]:
    style = STYLES[colour(name)]
    return [
        node("td", node("span", name, class_=f"outcome {style}")),
        node("td", charts.bar(count / of, style), class_="wide"),
        number(count),
        number(_percent(count, of)),
    ]


def _by(figures: Figures) -> str:
    """Return which time the speedups are by; "" if there are none."""
    if len(figures.speedups_by) > 1:
        return ", each by the time that counts for it"
    return "".join(f", {words}" for words, _ in figures.speedups_by)


def _few(curves: Sequence[Curve]) -> Sequence[Curve]:
    """Return as many curves as can be distinguished: the first, the last, and some between."""
    if len(curves) <= charts.CURVE_STYLES:
        return curves
    between = [
        curves[round(index * (len(curves) - 2) / (charts.CURVE_STYLES - 2))] for index in range(charts.CURVE_STYLES - 1)
    ]
    return [*between, curves[-1]]


def table(heads: Sequence[str], rows: Iterable[Sequence[Element]]) -> Element:
    """Return a table; every head but the first is one of numbers."""
    head = node(
        "tr", *(node("th", name, scope="col", class_="n" if index else None) for index, name in enumerate(heads))
    )
    return node("table", node("thead", head), node("tbody", *(node("tr", *row) for row in rows)))


def _tile(name: str, value: str, told: str, style: str = "") -> Element:
    return node(
        "div",
        node("span", name, class_="name"),
        node("strong", value, class_=style or None),
        node("span", told),
        class_="tile",
    )


def swatch(index: int) -> Element:
    """Return the colour of a curve."""
    return node("span", class_=f"swatch c{index}", aria_hidden="true")


def _shares(shares: Iterable[float]) -> list[Element]:
    """Return cells of shares, in percent."""
    return [number(f"{100 * share:.1f}") for share in shares]


def number(value: int | str) -> Element:
    """Return a cell with a number."""
    return node("td", str(value), class_="n")


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f} %" if of else "none"


def _lasting(total: float) -> str:
    if total < 120:
        return seconds(total) if total else "0 s"
    return f"{total / 60:.0f} min" if total < 7200 else f"{total / 3600:.1f} h"
