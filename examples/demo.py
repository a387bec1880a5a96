"""`make demo`: judge the candidates of `problems/` through a real scheduler and a real evaluator on this machine.

It starts both services on free ports, streams every candidate through `AsyncClient.evaluate`, and compares each verdict
with `problems/expected.json`. It uses a GPU if there is one, otherwise the CPU device. Exit status 0 if every verdict
is as expected, 1 if one is not, 3 if the services do not start. KernelDyno itself does not need this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from kerneldyno.client import (
    AsyncClient,
    EvalRequest,
    EvalResult,
    KernelDynoError,
    LocalServiceError,
    LocalServices,
    read_candidate,
)
from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.rpc.jsonio import request_from_json, stage_name
from kerneldyno.v1.evaluation_pb2 import Finding
from kerneldyno.v1.fleet_service_pb2 import Node

PROBLEMS = Path(__file__).resolve().parent / "problems"
#: Time limit of all evaluations together, so that the demo cannot hang.
LIMIT_SECONDS = 600.0
#: Interpreted kernels are a thousand times slower, and their times mean nothing: a few calls show that timing works.
CPU_TRIALS = {"num_perf_trials": 10, "num_warmup": 1}
#: Wait before reading the metrics: judges report their counters every second.
METRICS_SECONDS = 1.5
#: A column of messages with fewer characters than this is left out.
MIN_MESSAGE = 24
#: Width of the output in characters if it does not go to a terminal.
LOG_WIDTH = 150


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of the table of expected outcomes."""

    name: str
    backend: str
    outcomes: list[str]
    findings: list[str]
    timeouts: dict[str, str]
    needs_gpu: bool

    @property
    def problem(self) -> str:
        """Name of its folder."""
        return self.name.partition("/")[0]

    @property
    def label(self) -> str:
        """Name of its file or folder."""
        return self.name.partition("/")[2]

    @property
    def path(self) -> Path:
        """Its file, or the folder of a candidate of several files."""
        folder = PROBLEMS / self.name
        return folder if folder.is_dir() else PROBLEMS / f"{self.name}.py"

    def request(self, extra: dict[str, Any]) -> EvalRequest:
        """Return the request for this candidate."""
        return request_from_json(
            {
                **read_candidate(self.path),
                "id": self.name,
                "reference_code": (PROBLEMS / self.problem / "reference.py").read_text(),
                "backend": self.backend,
                "timeouts": self.timeouts,
                **extra,
            }
        )

    def as_expected(self, result: EvalResult) -> bool:
        """Return True if `result` is the expected verdict."""
        found = {finding.id for finding in result.findings}
        return outcome_of(result) in self.outcomes and found.issuperset(self.findings)


def main() -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(description="Judge the example candidates on this machine.")
    parser.add_argument("problems", nargs="*", help="only these problems, for example softmax (default: all)")
    parser.add_argument("--devices", default="auto", help="auto, cpu, cuda, or cuda:0,cuda:1 (default: auto)")
    parser.add_argument("--sandbox", default="auto", help="auto, require or off (default: auto)")
    parser.add_argument("--lanes", type=int, help="concurrent candidates on one device (default: the evaluator's)")
    options = parser.parse_args()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_WIDTH)
    candidates = [row for row in read_table() if not options.problems or row.problem in options.problems]
    if not candidates:
        parser.error(f"no such problem; there are {', '.join(sorted({row.problem for row in read_table()}))}")
    demo = Demo(console, candidates)
    services = LocalServices(devices=options.devices, sandbox=options.sandbox, lanes=options.lanes)
    console.print("Starting a scheduler and an evaluator on free ports of this machine ...")
    begin = time.monotonic()
    try:
        with services:
            console.print(f"Ready after {time.monotonic() - begin:.1f} s: scheduler at {services.address}.")
            asyncio.run(demo.run(services))
    except LocalServiceError as error:
        print(f"demo: the services failed: {error}", file=sys.stderr)
        return 3
    except (KernelDynoError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return demo.report()


def read_table() -> list[Candidate]:
    """Read all candidates, grouped by problem."""
    rows = json.loads((PROBLEMS / "expected.json").read_text())
    return [
        Candidate(
            name=name,
            backend=row["backend"],
            outcomes=row["outcome"] if isinstance(row["outcome"], list) else [row["outcome"]],
            findings=row["findings"],
            timeouts=row.get("timeouts", {}),
            needs_gpu=row.get("device") == "cuda",
        )
        for name, row in rows.items()
    ]


class Demo:
    """One run: it sends the candidates, collects the results, and shows them."""

    def __init__(self, console: Console, candidates: list[Candidate]) -> None:
        self._console = console
        self._all = candidates
        self._candidates = candidates
        self._on_gpu = False
        self._results: dict[str, EvalResult] = {}
        self._seconds = 0.0
        self._metrics: list[tuple[str, str, list[tuple[str, float]]]] = []

    async def run(self, services: LocalServices) -> None:
        """Stream every candidate that this machine can judge, then read both metrics pages."""
        async with AsyncClient(services.address) as client:
            self._meet(await client.nodes(), (await client.capabilities()).backends)
            extra = {} if self._on_gpu else CPU_TRIALS
            # Send candidates that run into a time limit first, so that the others are judged meanwhile.
            order = sorted(self._candidates, key=lambda row: not row.timeouts)
            begin = time.monotonic()
            with self._progress() as progress:
                bar = progress.add_task("judged", total=len(order))
                requests = [row.request(extra) for row in order]
                async for result in client.evaluate(requests, timeout=LIMIT_SECONDS):
                    self._results[result.id] = result
                    progress.advance(bar)
                    self._log_progress(len(order), time.monotonic() - begin)
            self._seconds = time.monotonic() - begin
        services.check()
        await asyncio.sleep(METRICS_SECONDS)
        await asyncio.to_thread(self._read_metrics, services)

    def report(self) -> int:
        """Show a table per problem and a summary; return the exit status."""
        for problem in dict.fromkeys(row.problem for row in self._candidates):
            self._console.print(self._problem_table(problem))
        self._console.print(self._stage_table())
        return self._summary()

    def _meet(self, nodes: Iterable[Node], backends: Collection[str]) -> None:
        devices = [(node, device) for node in nodes for device in node.devices]
        self._on_gpu = any(device.kind == "cuda" for _, device in devices)
        self._candidates = [row for row in self._all if row.backend in backends and (self._on_gpu or not row.needs_gpu)]
        for node, device in devices:
            software = f"torch {node.environment.torch_version}, triton {node.environment.triton_version}"
            self._console.print(f"Device {device.name}: {device.model}, {device.lanes} lanes, {software}.")
        if not self._on_gpu:
            self._console.print(
                "No GPU: Triton runs in its interpreter. Verdicts are real; times and speedups are the interpreter's "
                "and say nothing about a GPU.",
                style="yellow",
            )
        problems = len({row.problem for row in self._candidates})
        self._console.print(f"Sending {len(self._candidates)} candidates for {problems} problems.")

    def _progress(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self._console, disable=not self._console.is_terminal, transient=True)

    def _log_progress(self, total: int, seconds: float) -> None:
        done = len(self._results)
        if not self._console.is_terminal and (done % 10 == 0 or done == total):
            self._console.print(f"  {done} of {total} judged after {seconds:.0f} s")

    def _problem_table(self, problem: str) -> Table:
        table = Table(box=SIMPLE_HEAD, title=problem, title_justify="left", title_style="bold")
        speedup = "speedup" if self._on_gpu else "speedup (interp.)"
        columns = (("candidate", 20), ("expected", 13), ("outcome", 17), (speedup, 23))
        for heading, width in columns:
            table.add_column(heading, width=width, no_wrap=True, justify="right" if heading == speedup else "left")
        # The frame takes three characters for each column; the rest of the width is for messages.
        room = self._console.width - sum(width + 3 for _, width in columns) - 4
        if room >= MIN_MESSAGE:
            table.add_column("what was seen", width=room, no_wrap=True, overflow="ellipsis")
        for row in self._candidates:
            if row.problem == problem and (result := self._results.get(row.name)):
                style = "green" if row.as_expected(result) else "bold red"
                table.add_row(
                    row.label,
                    "\n".join(row.outcomes),
                    Text(outcome_of(result) + ("" if row.as_expected(result) else " (!)"), style=style),
                    speedup_of(result),
                    *([seen_in(result)] if room >= MIN_MESSAGE else []),
                )
        return table

    def _stage_table(self) -> Table:
        spans: dict[str, list[float]] = {}
        for result in self._results.values():
            for span in result.stages:
                name = stage_name(span.stage).replace("_", " ")
                spans.setdefault(name, []).append(span.duration.ToNanoseconds() / 1e9)
        table = Table(box=SIMPLE_HEAD, title="where the time went", title_justify="left", title_style="bold")
        for heading in ("stage", "candidates", "median s", "longest s", "total s"):
            table.add_column(heading, justify="left" if heading == "stage" else "right")
        for name, seconds in spans.items():
            numbers = [f"{number:.2f}" for number in (median(seconds), max(seconds), sum(seconds))]
            # Candidates wait at the same time, so the sum of their waits means nothing.
            table.add_row(name, str(len(seconds)), *numbers[:2], "-" if name == "queued" else numbers[2])
        return table

    def _summary(self) -> int:
        expected = [row for row in self._candidates if row.name in self._results]
        right = [row for row in expected if row.as_expected(self._results[row.name])]
        outcomes = Counter(outcome_of(result) for result in self._results.values())
        findings = Counter(
            f"{finding.id} ({Finding.Severity.Name(finding.severity).removeprefix('SEVERITY_').lower()})"
            for result in self._results.values()
            for finding in result.findings
        )
        lines = [
            ("verdicts", f"{len(right)} of {len(self._candidates)} as expected"),
            ("outcomes", ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())),
            ("findings", ", ".join(f"{count} {finding}" for finding, count in findings.most_common()) or "none"),
            (
                "rate",
                f"{60 * len(self._results) / self._seconds:.0f} candidates a minute ({self._seconds:.1f} s in all)",
            ),
        ]
        if left_out := [row for row in self._all if row not in self._candidates]:
            languages = ", ".join(sorted({row.backend for row in left_out}))
            why = f"in languages that are not installed: {languages}" if self._on_gpu else "that need an NVIDIA GPU"
            lines.append(("left out", f"{len(left_out)} {why}"))
        for service, url, numbers in self._metrics:
            said = ", ".join(f"{name} {value:g}" for name, value in numbers)
            lines.append((service, f"{url} said: {said}"))
        lines.append(
            ("by hand", "`kerneldyno up` serves the same metrics at http://127.0.0.1:9464/metrics and :9465/metrics")
        )
        for heading, text in lines:
            self._console.print(Text(f"{heading:>9}  {text}"), soft_wrap=True)
        for row in self._candidates:
            if row not in right:
                self._explain(row)
        if not self._on_gpu:
            self._console.print(
                Text("These times come from Triton's interpreter: they mean nothing for a GPU."), style="yellow"
            )
        ok = len(right) == len(self._candidates)
        text = "Every verdict is as expected." if ok else "Some verdicts are NOT as expected; see above."
        self._console.print(Text(text, style="bold green" if ok else "bold red"))
        return 0 if ok else 1

    def _explain(self, row: Candidate) -> None:
        result = self._results.get(row.name)
        got = "no result" if result is None else f"{outcome_of(result)}: {result.message}"
        wanted = " or ".join(row.outcomes) + (f" with {', '.join(row.findings)}" if row.findings else "")
        self._console.print(
            Text(f"NOT as expected: {row.name}: wanted {wanted}, got {got}", style="red"), soft_wrap=True
        )

    def _read_metrics(self, services: LocalServices) -> None:
        wanted = (
            ("scheduler", services.scheduler, ("kerneldyno_placements_total", "kerneldyno_outcomes_total")),
            (
                "evaluator",
                services.evaluator,
                ("kerneldyno_runner_spawns_total", "kerneldyno_device_busy_seconds_total"),
            ),
        )
        for service, ready, names in wanted:
            url = f"http://{ready['metrics']}/metrics"
            with urllib.request.urlopen(url, timeout=10) as response:
                page = response.read().decode()
            self._metrics.append((service, url, [(name, total_of(page, name)) for name in names]))


def outcome_of(result: EvalResult) -> str:
    """Return the name of the outcome."""
    return EvalResult.Outcome.Name(result.outcome)


def speedup_of(result: EvalResult) -> str:
    """Return the speedup with its interval, or "-" if there is none."""
    counted = counted_speedup(result)
    if not counted.value or counted.interval is None:
        return "-"
    return f"{short(counted.value)} [{short(counted.interval.low)}, {short(counted.interval.high)}]"


def short(number: float) -> str:
    """Format a ratio with a useful number of digits."""
    return f"{number:.3g}" if number >= 1 else f"{number:.2g}"


def seen_in(result: EvalResult) -> Text:
    """Return the first line of the message and the findings, without terminal control characters."""
    message = result.message.strip().partition("\n")[0]
    ids = " ".join(finding.id for finding in result.findings)
    return Text("".join(c for c in (f"[{ids}] " if ids else "") + message if c.isprintable()))


def total_of(page: str, name: str) -> float:
    """Return the sum of all series of one name on a Prometheus page."""
    series = (line.rpartition(" ") for line in page.splitlines() if line.startswith((name + "{", name + " ")))
    return sum(float(value) for _, _, value in series)


if __name__ == "__main__":
    sys.exit(main())
