"""Let the adversary (corpus/adversary) draw candidates, and print how many of them are paid.

    python -m benchmarks.adversary [--count 1000] [--seed N] [--devices 0] [--lanes N] [--json FILE] [--show 20]

Each candidate looks at something, and then takes a shortcut that is proven wrong or coarse. Its exact way does the
reference's work sixteen times. So who is called correct and gets a speedup of 1/8 or more was paid for the shortcut.
Who is called correct and gets less was not: most of its timed calls took the exact way. One in five candidates is an
honest twin: it looks at the same things, chooses between two exact ways, and must be called correct.

Shares have 95 % intervals (Wilson). The seed is drawn, and printed, unless it is given. Exit status 1 if an honest twin
was refused, or a candidate was paid.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import secrets
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.service import capacity, collect, device_list, environment_of, outcome_of
from corpus.adversary.draw import PAID_FROM, Adversary, draw
from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices

#: Timed calls: as many as by default on a GPU. On a CPU times only tell the two ways apart.
_TRIALS = {"cuda": 100, "cpu": 20}
#: Of the normal distribution, for intervals of 95 %.
_Z = 1.959964


def main() -> int:
    """Run the command; return exit status 1 if somebody was paid, or an honest twin refused."""
    options = _options()
    with LocalServices(devices=device_list(options.devices)[0], lanes=options.lanes) as services:
        measured = asyncio.run(_measure(services, options))
        services.check()
    _print(measured, options.show)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")
    rows = measured["rows"]
    return 1 if any(row["paid"] or row["refused"] for row in rows) else 0


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How many of an adversary's candidates are paid.")
    add = parser.add_argument
    add("--count", type=int, default=1000, help="candidates, honest twins included (default: 1000)")
    add("--seed", type=int, default=secrets.randbits(32), help="what is drawn (default: something new)")
    add("--seconds", type=float, default=1e6, help="send nothing after this time, in seconds")
    add("--devices", default="auto", help="devices, of which the first is used (default: auto)")
    add("--show", type=int, default=10, help="how many of the paid and of the refused to name (default: 10)")
    add("--lanes", type=int, help="concurrent candidates on the device (default: the evaluator's)")
    add("--json", type=Path, help="also write everything to this file")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count {options.count}: at least 1")
    return options


def request_for(candidate: Adversary, kind: str) -> EvalRequest:
    """Return the request for a candidate: the defaults, for a program of torch."""
    return EvalRequest(
        id=candidate.name,
        reference_code=candidate.reference,
        kernel_code=candidate.source,
        backend="torch",
        num_perf_trials=_TRIALS[kind],
        skip_cache=True,
    )


async def _measure(services: LocalServices, options: argparse.Namespace) -> dict[str, Any]:
    async with AsyncClient(services.address) as client:
        kind, names, lanes = await capacity(client)
    drawn = {each.name: each for each in draw(options.seed, options.count, kind)}
    requests = [request_for(each, kind) for each in drawn.values()]
    results, seconds = await collect(services.address, requests, options.seconds, lanes)
    return {
        "device": names[0],
        "lanes": lanes,
        "seed": options.seed,
        "seconds": seconds,
        "environment": environment_of(results.values()),
        "rows": [row(drawn[name], result) for name, result in sorted(results.items())],
    }


def row(candidate: Adversary, result: EvalResult) -> dict[str, Any]:
    """Return what came of one candidate."""
    outcome = outcome_of(result)
    accepted = outcome == "CORRECT"
    return {
        "name": candidate.name,
        "problem": candidate.problem,
        "guard": candidate.guard,
        "shortcut": candidate.shortcut,
        "outcome": outcome,
        "speedup": result.speedup,
        "message": result.message,
        "findings": [finding.id for finding in result.findings],
        "accepted": accepted,
        "paid": accepted and not candidate.is_honest and result.speedup >= PAID_FROM,
        "refused": candidate.is_honest and not accepted,
    }


def interval(found: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (E. B. Wilson, 1927, https://doi.org/10.1080/01621459.1927.10502953).

    >>> [round(end, 4) for end in interval(0, 1000)]
    [0.0, 0.0038]
    """
    if not of:
        return 0.0, 1.0
    share, square = found / of, _Z * _Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = _Z / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def _print(measured: dict[str, Any], show: int) -> None:
    rows = measured["rows"]
    environment = ", ".join(f"{name} {value}" for name, value in measured["environment"].items())
    print(
        f"{environment}; {measured['lanes']} lanes; seed {measured['seed']}; {len(rows)} evaluations in"
        f" {measured['seconds']:.0f} s\n"
    )
    honest, others = [each for each in rows if not each["shortcut"]], [each for each in rows if each["shortcut"]]
    print("| what | drawn | called correct | paid | share [95 %] |\n| --- | ---: | ---: | ---: | --- |")
    print(_line("all shortcuts", others, "paid"))
    print(_line("honest twins (refused in place of paid)", honest, "refused"))
    for title, key in (
        ("looks at", lambda each: each["guard"].split(" + ")),
        ("then", lambda each: [each["shortcut"]]),
    ):
        for name, some in sorted(_grouped(others, key).items()):
            print(_line(f"{title}: {name}", some, "paid"))
    print(
        "\noutcomes:", ", ".join(f"{count} {name}" for name, count in Counter(r["outcome"] for r in rows).most_common())
    )
    for what in ("paid", "refused"):
        for each in [each for each in rows if each[what]][:show]:
            said = f"{each['guard']}: {each['shortcut'] or 'honest'}"
            print(f"{what}: {each['name']} ({each['problem']}; {said}) {each['speedup']:.2f} {each['message'][:160]}")


def _grouped(
    rows: Sequence[dict[str, Any]], key: Callable[[dict[str, Any]], list[str]]
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in rows:
        for name in key(each):
            found[name].append(each)
    return found


def _line(name: str, rows: Sequence[dict[str, Any]], what: str) -> str:
    count = sum(each[what] for each in rows)
    low, high = interval(count, len(rows))
    share = count / max(1, len(rows))
    correct = sum(each["accepted"] for each in rows)
    return f"| {name} | {len(rows)} | {correct} | {count} | {share:.2%} [{low:.2%}, {high:.2%}] |"


if __name__ == "__main__":
    sys.exit(main())
