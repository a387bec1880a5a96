"""Measure what the training library adds to a step: TRLOO, MRS, PRS and the policy loss on 768 turns of 8,192 tokens.

    python -m benchmarks.training [--device cpu] [--threads 1] [--dtype float32] [--loop-rows 24] [--json FILE]

The batch is that of the Dr. Kernel runs: 16 prompts x 16 samples x 3 turns. Every stage is run once to warm up and then
`repeat` times. The table has median and range of the time, the least processor time (which other processes of the
machine hardly change), and the peak memory that the stage needed beyond its inputs. On a GPU times are taken between
synchronisations.

The baseline is the same formulas as plain Python loops over rows and tokens (tests/training/loops.py, which the tests
compare with), on `loop-rows` rows in the same run, scaled to all rows: a full batch takes gigabytes of Python floats.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from kerneldyno.training import coverage, losses, masks, mismatch
from kerneldyno.training.advantages import to_tokens, trloo
from kerneldyno.training.returns import multi_turn_returns
from tests.training import loops

PROMPTS, SAMPLES, TURNS, LENGTH = 16, 16, 3, 8192
EPISODES = PROMPTS * SAMPLES
ROWS = EPISODES * TURNS
MEGABYTE = 2**20


@dataclass
class Row:
    """One line of the table, in seconds and bytes."""

    stage: str
    median: float
    fastest: float
    slowest: float
    cpu: float
    """The least processor time of any run: what is left of a time when others use the machine as well."""
    peak_bytes: int
    loops: float | None = None
    """Processor time of the plain loops, scaled to the whole batch."""


class Batch:
    """Random rewards and log-probabilities; about a third of all tokens is padding."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        source = torch.Generator().manual_seed(0)
        self.rewards = torch.rand(EPISODES, TURNS, generator=source).to(device)
        self.exists = torch.ones(EPISODES, TURNS, dtype=torch.bool, device=device)
        self.group = torch.arange(PROMPTS, device=device).repeat_interleave(SAMPLES)
        self.coverage = torch.rand(EPISODES, TURNS, generator=source).to(device)
        self.correct = (torch.rand(EPISODES, TURNS, generator=source) < 0.7).to(device)
        self.episodes = torch.arange(EPISODES, device=device).repeat_interleave(TURNS)
        self.turns = torch.arange(TURNS, device=device).repeat(EPISODES)
        lengths = torch.randint(LENGTH // 3, LENGTH + 1, (ROWS, 1), generator=source)
        self.mask = (torch.arange(LENGTH) < lengths).to(device)
        rollout = -torch.rand(ROWS, LENGTH, generator=source)
        self.train = (rollout + torch.randn(ROWS, LENGTH, generator=source) * 0.02).to(device, dtype)
        self.rollout = rollout.to(device, dtype)
        self.chance = torch.Generator().manual_seed(1)
        # The other layout has one row for each episode.
        self.whole = tuple(tensor.reshape(EPISODES, -1) for tensor in (self.train, self.rollout, self.mask))
        self.whole_turns = masks.turns_of(torch.nn.functional.pad(self.mask, (0, 1)).reshape(EPISODES, -1)).reshape(
            EPISODES, TURNS, LENGTH + 1
        )[..., :LENGTH]
        self.whole_turns = self.whole_turns.reshape(EPISODES, -1).contiguous()
        self.advantages = self.trloo()
        self.log_probs = self.train.detach().clone().requires_grad_()

    def trloo(self) -> Tensor:
        """Compute advantages from rewards, one for each row."""
        kept = masks.turn_mask(self.rewards, self.exists)
        table = trloo(multi_turn_returns(self.rewards, kept), kept, self.group)
        return to_tokens(table, self.turns, self.episodes)

    def mrs(self) -> mismatch.Rejection:
        return mismatch.reject(self.train, self.rollout, self.mask, episodes=self.episodes)

    def mrs_whole(self) -> mismatch.Rejection:
        train, rollout, mask = self.whole
        return mismatch.reject(train, rollout, mask, turns=self.whole_turns)

    def mismatch_metrics(self) -> dict[str, float]:
        return mismatch.metrics(self.train, self.rollout, self.mask, episodes=self.episodes)

    def weights(self) -> Tensor:
        return mismatch.importance_weights(self.train, self.rollout, self.mask)

    def prs(self) -> Tensor:
        """Draw the turns to keep; return the response mask without the others."""
        kept = coverage.reject(self.coverage, self.correct, self.exists, generator=self.chance)
        return self.mask & to_tokens(kept, self.turns, self.episodes)

    def together(self) -> Tensor:
        """Compute all that a step adds: advantages and the mask after both rejections."""
        self.trloo()
        kept = coverage.reject(self.coverage, self.correct, self.exists, generator=self.chance)
        return self.mrs().mask & to_tokens(kept, self.turns, self.episodes)

    def loss(self) -> Tensor:
        return losses.dual_clip(self.log_probs, self.rollout, self.advantages, self.mask, scale=1000.0)[0]

    def loss_and_gradient(self) -> None:
        self.log_probs.grad = None
        torch.autograd.backward(self.loss())


class Loops:
    """The same stages as plain loops. Loops over tokens take only some rows. Making the lists is not timed."""

    def __init__(self, batch: Batch, rows: int) -> None:
        self.rewards, self.exists = batch.rewards.tolist(), batch.exists.tolist()
        self.group = batch.group.tolist()
        self.train, self.rollout = batch.train[:rows].tolist(), batch.rollout[:rows].tolist()
        self.mask = batch.mask[:rows].tolist()
        self.advantages = batch.advantages[:rows].expand(-1, LENGTH).tolist()
        self.turn_of = [[row if kept else None for kept in line] for row, line in enumerate(self.mask)]
        self.episode_of = batch.episodes[:rows].tolist()
        self.coverage, self.correct = batch.coverage.flatten()[:rows].tolist(), batch.correct.flatten()[:rows].tolist()

    def trloo(self) -> None:
        """Compute advantages of all rows, one value for each."""
        loops.trloo(loops.returns(self.rewards, self.exists, 1.0), self.exists, self.group)

    def mrs(self) -> None:
        loops.rejection(
            self.train, self.rollout, self.turn_of, self.episode_of,
            level="geometric", lower=0.999, upper=1.001, veto=1e-4, veto_level="turn",
        )  # fmt: skip

    def prs(self) -> None:
        keep = [loops.keep_probability(a, b) > 0.5 for a, b in zip(self.coverage, self.correct, strict=True)]
        [[kept and inside for inside in line] for line, kept in zip(self.mask, keep, strict=True)]

    def loss(self) -> None:
        loops.dual_clip(self.train, self.rollout, self.advantages, self.mask, "seq-mean-token-sum")


def measure(stage: str, work: Callable[[], object], device: str, repeat: int) -> Row:
    """Measure times after a warm-up, and the peak of memory beyond that at the start."""
    work()
    times, cpu_times = [], []
    for _ in range(repeat):
        synchronise(device)
        began, cpu_began = time.perf_counter(), time.process_time()
        work()
        synchronise(device)
        times.append(time.perf_counter() - began)
        cpu_times.append(time.process_time() - cpu_began)
    return Row(stage, statistics.median(times), min(times), max(times), min(cpu_times), peak(work, device))


def synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def peak(work: Callable[[], object], device: str) -> int:
    """Measure bytes beyond those in use before: the allocator's on a GPU, resident ones (Linux) on the CPU."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        synchronise(device)
        return torch.cuda.max_memory_allocated() - before
    ctypes.CDLL(None).malloc_trim(0)  # free memory that malloc keeps would hide the next allocations
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to the memory that is resident now
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def rows_of(batch: Batch, device: str, repeat: int, loop_rows: int) -> Iterator[Row]:
    """Measure every stage and, if it has any, its loops; yield the rows."""
    slow = Loops(batch, loop_rows) if loop_rows else None
    scale = ROWS / loop_rows if loop_rows else 0.0

    def looped(stage: str, factor: float) -> Callable[[], float] | None:
        if slow is None:
            return None
        work: Callable[[], object] = getattr(slow, stage)

        def timed() -> float:
            began = time.process_time()
            work()
            return (time.process_time() - began) * factor

        return timed

    stages: list[tuple[str, Callable[[], object], Callable[[], float] | None]] = [
        ("TRLOO: void turns, returns, advantages", batch.trloo, looped("trloo", 1)),
        ("MRS: released rule, a row for each turn", batch.mrs, looped("mrs", scale)),
        ("PRS: draws, response mask", batch.prs, looped("prs", scale)),
        ("TRLOO + MRS + PRS", batch.together, None),
        ("dual-clip loss", batch.loss, looped("loss", scale)),
        ("dual-clip loss and gradient", batch.loss_and_gradient, None),
        ("MRS: a row for each episode, turn ids", batch.mrs_whole, None),
        ("metrics of the mismatch", batch.mismatch_metrics, None),
        ("truncated importance weights", batch.weights, None),
    ]
    found: list[Row] = []
    for stage, work, baseline in stages:
        row = measure(stage, work, device, repeat)
        row.loops = baseline() if baseline else None
        if stage == "TRLOO + MRS + PRS" and slow:
            row.loops = sum(part.loops or 0.0 for part in found)
        found.append(row)
        yield row


def table(rows: list[Row], title: str, on_cpu: bool) -> Table:
    """Return the table. It divides the loops' processor time by ours on a CPU, by our wall time on a GPU."""
    view = Table(title=title, title_justify="left")
    for column in ("stage", "ms", "range, ms", "CPU, ms", "peak, MB", "loops, s", "loops / ours"):
        view.add_column(column, justify="left" if column == "stage" else "right")
    for row in rows:
        view.add_row(
            row.stage,
            f"{row.median * 1e3:.2f}",
            f"{row.fastest * 1e3:.2f} .. {row.slowest * 1e3:.2f}",
            f"{row.cpu * 1e3:.2f}",
            f"{row.peak_bytes / MEGABYTE:.1f}",
            "" if row.loops is None else f"{row.loops:.3f}",
            "" if row.loops is None else f"{row.loops / (row.cpu if on_cpu else row.median):,.0f}",
        )
    return view


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    options.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    options.add_argument("--threads", type=int, default=1, help="threads of torch on the CPU; the loops have one")
    options.add_argument("--repeat", type=int, default=5)
    options.add_argument("--loop-rows", type=int, default=24, help="rows of the baseline; 0: no baseline")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    batch = Batch(given.device, getattr(torch, given.dtype))
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"CPU, torch threads: {torch.get_num_threads()}"
    rows = list(rows_of(batch, given.device, given.repeat, given.loop_rows))
    title = f"{ROWS} turns x {LENGTH} tokens, {given.dtype}, torch {torch.__version__}, {where}"
    Console(width=120).print(table(rows, title, given.device == "cpu"))
    cost = {row.stage: row.cpu if given.device == "cpu" else row.median for row in rows}
    share = cost["TRLOO + MRS + PRS"] / cost["dual-clip loss and gradient"]
    print(f"TRLOO + MRS + PRS takes {share:.0%} of what the loss and its gradient take.")
    if given.json:
        given.json.write_text(json.dumps({"title": title, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
