"""`kerneldyno trajectories`: report on a file of trajectories, or convert it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kerneldyno.cli.common import Json, UsageError, print_json, reporting, stdout
from kerneldyno.cli.training import needing
from kerneldyno.rpc.input_files import is_plain

if TYPE_CHECKING:
    from kerneldyno.rollout.report import Report
    from kerneldyno.training.metrics import Quartiles

#: Start of the row below fast@p's, for the same answers.
_SURE = "  sure"


def trajectories(
    file: Annotated[Path, typer.Argument(metavar="RUN.jsonl", help="A recording of `rollout` or a trainer.")],
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write one row per turn, for analyses.")
    ] = None,
    sft: Annotated[
        Path | None,
        typer.Option("--sft", metavar="FILE.jsonl", help="Write the chats up to the best turns, for a cold start."),
    ] = None,
    sft_turns: Annotated[
        Path | None,
        typer.Option("--sft-turns", metavar="FILE.jsonl", help="Write each correct turn as prompt and completion."),
    ] = None,
    min_reward: Annotated[
        float, typer.Option("--min-reward", help="Least reward of a turn, for --sft and --sft-turns.")
    ] = 0.5,
    min_speedup: Annotated[
        float, typer.Option("--min-speedup", help="Least speedup that counts of a turn, for --sft-turns.")
    ] = 0.0,
    show: Annotated[
        bool, typer.Option("--report", help="Print the tables; the default without other options.")
    ] = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw fast@p by turn.")] = None,
    as_json: Json = False,
) -> None:
    """Report on RUN.jsonl, or export it."""
    with reporting(), needing("rollout"):
        from kerneldyno.rewards import cold_start
        from kerneldyno.rewards import trajectories as recorded
        from kerneldyno.rollout import plot as plotting
        from kerneldyno.rollout.recorded import final_turns, light_episodes
        from kerneldyno.rollout.report import report

        if file.exists() and not is_plain(file):
            raise UsageError(f"{file} is not a regular file, but it must be read several times")
        _check_outputs(file, {"--parquet": parquet, "--sft": sft, "--sft-turns": sft_turns, "--plot": plot})
        try:
            notes: list[str] = []
            found = report(light_episodes(file, notes))
            if parquet is not None:
                rows = recorded.to_parquet(final_turns(file), parquet)
                print(f"{rows} turns in {parquet}")
            if sft is not None:
                episodes = recorded.trajectories(recorded.scan(file))
                chats = [json.dumps(row) + "\n" for row in recorded.to_sft(episodes, min_reward=min_reward)]
                sft.write_text("".join(chats), encoding="utf-8")
                print(f"{len(chats)} of {len(episodes)} episodes in {sft}")
            if sft_turns is not None:
                turns = list(final_turns(file))
                kept = cold_start.turn_examples(turns, min_reward=min_reward, min_speedup=min_speedup)
                lines = [json.dumps(row) + "\n" for row in kept]
                sft_turns.write_text("".join(lines), encoding="utf-8")
                print(f"{len(lines)} of {len(turns)} turns in {sft_turns}")
            if plot is not None:
                plotting.plot(found, plot, title=file.name)
                print(f"plot in {plot}")
        except recorded.TrajectoryFileError as error:
            raise UsageError(str(error)) from error
        except (OSError, ValueError) as error:
            raise UsageError(str(error)) from error
        if as_json:
            print_json(found.to_json())
        elif show or not (parquet or sft or sft_turns or plot):
            for table in report_tables(found):
                stdout().print(table)
            for note in notes:
                print(f"note: {note}")


def _check_outputs(file: Path, outputs: dict[str, Path | None]) -> None:
    """Refuse to write an export over its own input, or over another export."""
    taken = {file.resolve(): "RUN.jsonl"}
    for option, path in outputs.items():
        if path is not None and option == "--parquet" and path.exists() and not path.is_file():
            raise UsageError(f"{option} {path}: is not a regular file, so the rows cannot replace it")
        if path is not None and (other := taken.setdefault(path.resolve(), option)) != option:
            raise UsageError(f"{option} {path}: is also {other}; give another file")


def report_tables(found: Report) -> list[RenderableType]:
    """Return the report for people: a heading, tables, and notes."""
    left_out = f" ({found.unfinished} unfinished ones left out)" if found.unfinished else ""
    title = Text(f"{found.episodes} episodes of {found.problems} problems{left_out}, % of all samples", style="italic")
    if not found.turns:
        return [title, Text("no turn is recorded")]
    thresholds = [f"fast@{p:g}" for p in found.turns[0].fast]
    by_turn = _table("answer of", "correct", *thresholds)
    for row in found.turns:
        by_turn.add_row(f"turn {row.turn}", *map(_percent, [row.correct, *row.fast.values()]))
        by_turn.add_row(_SURE, "", *map(_percent, row.sure_fast.values()))
    for row in found.turns[1:]:
        by_turn.add_row(f"best of {row.turn}", "", *map(_percent, row.best_fast.values()))
        by_turn.add_row(_SURE, "", *map(_percent, row.best_sure_fast.values()))
    notes = ["sure: the whole 95 % interval of the speedup is above p; unchanged PyTorch almost never wins it"]
    if found.without_interval:
        notes.append(
            f"{found.without_interval} of {found.timed} right, timed answers have no interval (an older file?): no sure win"
        )
    if found.failed_generations:
        notes.append(f"{found.failed_generations} episodes ended by a failed generation, which counts as a failure")
    if len(found.turns) > 1:
        notes.append(
            "improved: the best answer so far is faster than before, or is the first; sure: by the whole interval"
        )
        notes.append("best: chosen by the evaluator's own measurement, not comparable with single answers")
    tables: list[RenderableType] = [title, by_turn, _spread(found), *_kernelgym(found, thresholds)]
    if found.selected:
        ks = list(found.selected[0].pass_at)
        chosen = _table("selected", "reward", "correct", *(f"pass@{k}" for k in ks), *thresholds[:3])
        for one in found.selected:
            reward = "" if one.mean_reward is None else f"{one.mean_reward:.3f}"
            shares = [one.correct, *one.pass_at.values(), *list(one.fast.values())[:3]]
            chosen.add_row(one.how, reward, *map(_percent, shares))
            empty = [""] * (2 + len(one.pass_at))
            chosen.add_row(_SURE, *empty, *map(_percent, list(one.sure_fast.values())[:3]))
        tables.append(chosen)
    return [*tables, *(Text(note, style="dim") for note in notes)]  # a table would fold its own title and notes


def _spread(found: Report) -> RenderableType:
    """Return quartiles of speedups and of coverages by turn, and what each turn added to the best answers."""
    table = _table("spread of", "answers", "25 %", "median", "75 %", "improved", "sure", "gain")
    for row in found.turns:
        one = row.improvement
        added = [] if one is None else [_percent(one.improved), _percent(one.sure_improved), f"{one.mean_gain:.2f}"]
        table.add_row(f"speedup, turn {row.turn}", *_quartiles(row.speedup_quartiles), *added)
    for row in found.turns:
        if row.coverage_quartiles is not None:
            table.add_row(f"coverage, turn {row.turn}", *_quartiles(row.coverage_quartiles))
    return table


def _quartiles(found: Quartiles | None) -> list[str]:
    if found is None:
        return ["0", "", "", ""]
    return [str(found.count), *(f"{value:.2f}" for value in (found.lower, found.median, found.upper))]


def _kernelgym(found: Report, thresholds: Sequence[str]) -> list[RenderableType]:
    """Return KernelGYM's two definitions by turn, with other denominators, to compare with figures made that way."""
    table = _table("KernelGYM's", "judged", *thresholds)
    for row in found.turns:
        judged = _percent(row.judged / row.episodes)
        table.add_row(f"turn {row.turn}, in all", judged, *map(_percent, row.fast_kernelgym.values()))
        table.add_row("  of correct", "", *map(_percent, row.fast_correct.values()))
    told = (
        "KernelGYM's fast@p_in_all is of the answers with a verdict, its fast@p of the correct answers; both are by the "
        "speedup alone"
    )
    return [table, Text(told, style="dim")]


def _table(first: str, *columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
