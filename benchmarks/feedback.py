"""Measure the value of feedback: how many broken programs a scripted model repairs if it reads only that text.

    python -m benchmarks.feedback [--device cpu] [--seeds 10] [--draws 4] [--turns 3] [--variants none,default]
        [--families slow] [--cases 8] [--compare OTHER_FEEDBACK.py] [--json FILE]

A real scheduler and evaluator judge each program of feedback_cases.py. The model (feedback_policy.py) gets one of
several texts about the result (feedback_variants.py), in the prompts of `kerneldyno rollout`, and returns a changed
program; this repeats for `--turns` repairs. It guesses if the text does not help, so each row has `--seeds` runs. A
program is judged once, and all rows get texts about the same result. The judge draws the inputs at random, so
everything is repeated `--draws` times, with new services that have no stored result. Slow programs need a GPU, since
their texts are about its profile; on a CPU they are left out. A slow program counts as repaired if it reaches 80 % of
the speedup of the program that it was made from. Mistakes that only tools on a GPU see (families `memory` and `limits`)
are told as the tools told them on an H200, if the program has right outputs here (feedback_inspected.py). `--compare`
takes the file common/kerneldyno/rewards/feedback.py of another commit, and adds rows with its texts about the same
results.

The scripted model is not a language model. The rows can be compared with each other: they show which part of a text has
the information that a repair needs. They do not say how many programs a language model would repair.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.feedback_cases import BOTH, RAISES, SLOW, WRONG, Case, cases
from benchmarks.feedback_inspected import LIMITS, MEMORY, as_inspected, inspected_cases, is_repaired, right_outputs
from benchmarks.feedback_policy import answer
from benchmarks.feedback_variants import ORACLE, VARIANTS, Variant, of_file
from benchmarks.service import environment_of
from kerneldyno.client import (
    AsyncClient,
    EvalResult,
    LocalServices,
    NoRewardError,
    RewardStream,
    StreamRewardsResponse,
    turn,
)
from kerneldyno.rollout import prompts
from kerneldyno.rollout.problems import Problem
from kerneldyno.v1.reward_service_pb2 import Extraction, RewardSpec

FAMILIES = (RAISES, WRONG, BOTH, SLOW, MEMORY, LIMITS)
#: A slow program counts as repaired from this share of the right program's speedup.
NEAR_ENOUGH = 0.8
RESAMPLES = 2_000
#: No second measurement of high speedups: it is not needed here.
_REWARD = RewardSpec(preset="kevin", remeasure_above=math.inf)

#: What stands for the extraction of a program that no service has seen.
_FOUND = Extraction(method=Extraction.METHOD_FENCED_ENTRY_POINT)


@dataclass
class Judging:
    """A judge of programs that remembers its verdicts, so that it judges each program once."""

    stream: RewardStream
    known: dict[tuple[str, str], asyncio.Task[StreamRewardsResponse]] = field(default_factory=dict)
    unjudged: int = 0

    async def judge(self, case: Case, source: str) -> StreamRewardsResponse:
        """Return the verdict on a program: from an earlier call, or else from the services; then the tools', if any."""
        if case.backend == "cuda":  # nothing here can run it
            found = StreamRewardsResponse(result=right_outputs(), extraction=_FOUND)
        else:
            key = (case.name if case.family == SLOW else case.problem, source)
            if key not in self.known:
                self.known[key] = asyncio.create_task(self._judge(case, source, len(self.known)))
            found = await self.known[key]
        inspected = as_inspected(case, source, found.result)
        if inspected is found.result:
            return found
        return StreamRewardsResponse(result=inspected, extraction=found.extraction)

    async def _judge(self, case: Case, source: str, number: int) -> StreamRewardsResponse:
        timed = case.family == SLOW
        fields: dict[str, Any] = {"backend": case.backend, "run_performance": timed, "enable_profiling": timed}
        one = turn(
            case.problem, number, 0, reference_code=case.reference, response_text=f"```python\n{source}```\n", **fields
        )
        try:
            found = await self.stream.score(one)
        except NoRewardError as error:
            self.unjudged += 1
            return error.answers[0]
        told = VARIANTS["default"](found.result, found.extraction)
        if told != found.feedback:
            raise RuntimeError(f"the scheduler told\n{found.feedback}\nand the row `default`\n{told}")
        return found

    async def repaired(self, case: Case, source: str) -> bool:
        """Return True if the program is correct and, for a slow case, fast enough."""
        result = (await self.judge(case, source)).result
        if result.outcome != EvalResult.CORRECT or case.family != SLOW:
            return is_repaired(case, source, result)
        goal = (await self.judge(case, case.right)).result.speedup
        return result.speedup >= NEAR_ENOUGH * goal > 0


async def episode(judging: Judging, case: Case, variant: Variant | None, seed: int, turns: int) -> int:
    """Return how many repairs a program took, `turns` + 1 if all failed. Without a variant: try the right program."""
    if variant is None:
        return 1 if await judging.repaired(case, case.right) else turns + 1
    problem = Problem(case.problem, case.reference)
    opening = prompts.first_messages(problem, case.backend)
    done, source = [], case.source
    for number in range(turns + 1):
        if number and await judging.repaired(case, source):
            return number
        if number == turns:
            break
        found = await judging.judge(case, source)
        told = variant(found.result, found.extraction)
        reply = prompts.next_message(problem, told, correct=found.result.outcome == EvalResult.CORRECT)
        done.append((f"```python\n{source.strip()}\n```\n", reply))
        response = answer(prompts.conversation(opening, done), seed)
        source = response.removeprefix("```python\n").removesuffix("```\n")
    return turns + 1


async def broken(judging: Judging, chosen: Iterable[Case]) -> list[str]:
    """Return the names of cases whose broken program counts as repaired, or whose right program does not."""
    wrong = []
    for case in chosen:
        if await judging.repaired(case, case.source) or not await judging.repaired(case, case.right):
            wrong.append(case.name)
    return wrong


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all draws; return the figures that `--json` writes."""
    begun = time.monotonic()
    draws = [await draw(options, number) for number in range(options.draws)]
    first = draws[0]
    turns = {
        row: {case: [one for drawn in draws for one in drawn.turns[row][case]] for case in found}
        for row, found in first.turns.items()
    }
    after = {row: [_share(drawn.turns[row], options.turns) for drawn in draws] for row in turns}
    return {
        "device": "cuda" if first.gpu else "cpu",
        "environment": environment_of(first.results),
        "turns": options.turns,
        "seeds": options.seeds,
        "draws": options.draws,
        "judged": sum(len(drawn.results) for drawn in draws),
        "unjudged": sum(drawn.unjudged for drawn in draws),
        "seconds": round(time.monotonic() - begun, 1),
        "not_as_they_claim": sorted({name for drawn in draws for name in drawn.not_so}),
        "families": first.family,
        "rows": {
            row: figures(found, first.family, options.turns) | {"draws": after[row]} for row, found in turns.items()
        },
        "episodes": turns,
    }


@dataclass(frozen=True, slots=True)
class Draw:
    """Results of one repetition, with its own scheduler and evaluator."""

    gpu: bool
    family: dict[str, str]
    turns: dict[str, dict[str, list[int]]]
    """By row and case: the repair that made it right, for each seed."""
    results: list[EvalResult]
    unjudged: int
    not_so: list[str]


async def draw(options: argparse.Namespace, number: int) -> Draw:
    """Run all rows with new services."""
    with contextlib.ExitStack() as stack:
        services = await asyncio.to_thread(stack.enter_context, LocalServices(devices=options.device))
        async with AsyncClient(services.address) as client, client.reward_stream(_REWARD) as stream:
            gpu = "cuda" in {device.kind for node in await client.nodes() for device in node.devices}
            chosen = _chosen([*cases(), *inspected_cases()], options.families, options.cases, gpu=gpu)
            if not chosen:
                raise SystemExit(f"feedback.py: no program is left: the family {SLOW!r} needs a GPU (--device cuda:0)")
            judging = Judging(stream)
            not_so = await broken(judging, chosen)
            turns: dict[str, dict[str, list[int]]] = {}
            for name, variant in _rows(options, gpu=gpu).items():
                print(f"draw {number}: {len(judging.known)} programs judged; row {name}", file=sys.stderr, flush=True)
                seeds = range(
                    number * options.seeds, (number + 1) * options.seeds if variant else number * options.seeds + 1
                )
                rows = [[episode(judging, case, variant, seed, options.turns) for seed in seeds] for case in chosen]
                found = await asyncio.gather(*(asyncio.gather(*row) for row in rows))
                turns[name] = dict(zip((case.name for case in chosen), map(list, found), strict=True))
            results = [task.result().result for task in judging.known.values()]
    return Draw(gpu, {case.name: case.family for case in chosen}, turns, results, judging.unjudged, not_so)


def _rows(options: argparse.Namespace, *, gpu: bool) -> dict[str, Variant | None]:
    """Return the variants by row. Without a GPU nothing has a profile, so the row `without profile` is left out."""
    here = {name: VARIANTS[name] for name in options.variants if gpu or name != "without profile"}
    return here | (of_file(options.compare) if options.compare else {}) | {ORACLE: None}


def _chosen(every: Sequence[Case], families: Sequence[str], count: int | None, *, gpu: bool) -> list[Case]:
    """Return the cases of these families that can run here, or `count` of them, evenly from the list."""
    here = [case for case in every if case.family in families and (gpu or case.family != SLOW)]
    if count is None or count >= len(here):
        return here
    step = len(here) / count
    return [here[int(number * step)] for number in range(count)]


def figures(found: dict[str, list[int]], family: dict[str, str], turns: int) -> dict[str, Any]:
    """Compute the figures of a row: shares repaired after each turn (by family and in all), an interval, mean turns."""
    row: dict[str, Any] = {}
    for name in (*FAMILIES, "all"):
        of_it = [repairs for case, repairs in found.items() if name in ("all", family[case])]
        if of_it:
            row[name] = [
                _mean([_mean([one <= number for one in runs]) for runs in of_it]) for number in range(1, turns + 1)
            ]
    row["interval"] = bootstrap([_mean([one <= turns for one in runs]) for runs in found.values()])
    row["mean_turns"] = _mean([_mean(runs) for runs in found.values()])
    return row


def _share(found: dict[str, list[int]], turns: int) -> float:
    """Compute the share that was repaired after all turns."""
    return _mean([_mean([one <= turns for one in runs]) for runs in found.values()])


def bootstrap(shares: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Compute a 95 % interval of the mean by resampling programs, since runs of one program are not independent."""
    draw = random.Random(seed)
    means = sorted(_mean(draw.choices(shares, k=len(shares))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def table(measured: dict[str, Any]) -> str:
    """Return a Markdown table with a row for each variant."""
    rows = measured["rows"]
    names = [name for name in (*FAMILIES, "all") if name in next(iter(rows.values()))]
    counts = {name: sum(name in ("all", one) for one in measured["families"].values()) for name in names}
    turns = " / ".join(str(number) for number in range(1, measured["turns"] + 1))
    heads = ["told", *(f"{name} ({counts[name]}), % after {turns}" for name in names)]
    heads += [f"95% of all after {measured['turns']}", "draws", "mean turns"]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for variant, row in rows.items():
        shares = [" / ".join(f"{100 * share:.0f}" for share in row[name]) for name in names]
        low, high = row["interval"]
        between = f"{100 * min(row['draws']):.0f} to {100 * max(row['draws']):.0f}"
        cells = [variant, *shares, f"{100 * low:.0f} to {100 * high:.0f}", between, f"{row['mean_turns']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the command; return 1 if a program has no verdict, or a case is not as it claims."""
    parser = argparse.ArgumentParser(description="Measure which feedback lets a scripted model repair more programs.")
    parser.add_argument("--device", default="cpu", help="devices of the evaluator: cpu, cuda:0, auto (default: cpu)")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each program, row and draw (default: 10)")
    parser.add_argument("--draws", type=int, default=4, help="how often to repeat everything (default: 4)")
    parser.add_argument("--turns", type=int, default=3, help="largest number of repairs (default: 3)")
    parser.add_argument("--variants", type=_variants, default=list(VARIANTS), help="some of: " + ", ".join(VARIANTS))
    parser.add_argument(
        "--families", type=_families, default=list(FAMILIES), help="some of: " + ", ".join(FAMILIES) + " (default: all)"
    )
    parser.add_argument("--cases", type=int, help="number of programs, evenly from the list (default: all)")
    parser.add_argument("--compare", type=Path, help="a feedback.py of another commit, for additional rows")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    options = parser.parse_args()
    if min(options.seeds, options.draws, options.turns, 1 if options.cases is None else options.cases) < 1:
        parser.error("--seeds, --draws, --turns and --cases are at least 1")
    if options.compare and not options.compare.is_file():
        parser.error(f"--compare {options.compare}: there is no such file")
    measured = asyncio.run(run(options))
    print(
        f"{measured['judged']} programs judged in {measured['seconds']} s on {measured['device']}; {options.seeds} seeds\n"
    )
    print(table(measured))
    if measured["device"] == "cpu":
        print(f"\nThe family `{SLOW}` was left out: it needs a GPU, which alone has profiles.")
    if measured["not_as_they_claim"]:
        print(f"\nNot as they claim: {', '.join(measured['not_as_they_claim'])}")
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")
    return int(bool(measured["unjudged"] or measured["not_as_they_claim"]))


def _variants(text: str) -> list[str]:
    return _some_of(VARIANTS, text)


def _families(text: str) -> list[str]:
    return _some_of(FAMILIES, text)


def _some_of(known: Collection[str], text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; choose of {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
