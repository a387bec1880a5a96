"""Trains the tiny policy through real rewards, in several settings and seeds, and writes what was seen to a file.

    python examples/tiny_rl/train.py --preset small      CPU: minutes for verdicts, minutes for learning
    python examples/tiny_rl/train.py --preset h200       a GPU, larger problems, coverage by the profiler

Every turn goes through the reward stream of a real scheduler, which has a real evaluator. There are few programs, so the
scheduler judges each once and answers from its store ever after: a verdict is one draw of a noisy clock, and stays.
Figures are of the strict judge (its checks on), whatever the policy was paid by.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import grammar
import judging
import torch
from judging import Judging, Key, Paid, Written
from kerneldyno.client import AsyncClient, LocalServices
from kerneldyno.training import coverage, losses, metrics, mismatch
from kerneldyno.training.advantages import ESTIMATORS
from kerneldyno.training.returns import multi_turn_returns
from policy import TURNS, Past, Policy, decode, encode, prompt, written
from problem import OPERATORS, PRESETS, Problem
from torch import Tensor

COLD_START_STEPS, COLD_START_BATCH = 150, 96
#: Of twenty programs twelve are in earnest, three lazy and five cheats, one of each kind.
_COLD_START_KINDS = (*["own"] * 12, *["lazy"] * 3, *sorted(grammar.CHEATS))
LEARNING_RATE = 5e-4


@dataclass(frozen=True, slots=True)
class Setting:
    """One curve."""

    name: str
    #: See judging.py.
    checks: str = "on"
    estimator: str = "trloo"
    pr: bool = False
    prs: bool = False
    #: Samples of one group: one of these, drawn for each group of each update.
    samples: tuple[int, ...] = (8,)


SETTINGS = (
    Setting("trusting, TRLOO", checks="trusting"),
    Setting("checks off, TRLOO", checks="off"),
    Setting("checks on, GRPO", estimator="grpo"),
    Setting("checks on, TRLOO"),
    Setting("checks on, TRLOO + PR", pr=True),
    Setting("checks on, TRLOO + PR + PRS", pr=True, prs=True),
    Setting("checks on, GRPO, N = 2, 4 or 16", estimator="grpo", samples=(2, 4, 16)),
    Setting("checks on, TRLOO, N = 2, 4 or 16", samples=(2, 4, 16)),
)


def main() -> int:
    """Run the experiment; return the exit status."""
    parser = argparse.ArgumentParser(description="Train a tiny policy through the real reward stream.")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="small")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=80)
    parser.add_argument("--settings", nargs="*", help="parts of settings' names (default: all)")
    parser.add_argument("--masked", action="store_true", help="let the policy write nothing but programs")
    parser.add_argument("--out", type=Path, default=Path("build/tiny_rl"), help="folder for results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(experiment(options))
    return 0


async def experiment(options: argparse.Namespace) -> None:
    """Judge every program, train every setting with every seed, judge what was learned afresh; write results.json."""
    torch.set_num_threads(1)
    problems = PRESETS[options.preset]()
    on_gpu = options.preset != "small"
    wanted = [
        setting
        for setting in SETTINGS
        if (not options.settings or any(part in setting.name for part in options.settings))
        and not (on_gpu and setting.checks == "trusting")
    ]
    results: dict[str, Any] = {"preset": options.preset, "updates": options.updates, "masked": options.masked}
    began = time.monotonic()
    with LocalServices(devices="cuda" if on_gpu else "cpu") as services:
        async with AsyncClient(services.address) as client:
            judge = Judging(client, profiled=on_gpu)
            truth = await survey(judge, problems, wanted, results, began)
            results["survey_seconds"], judge.sent, judge.waited = time.monotonic() - began, 0, 0.0
            results["runs"] = {}
            for setting in wanted:
                for seed in range(options.seeds):
                    run = Run(judge, problems, truth, setting, seed, masked=options.masked)
                    await run.learn(options.updates)
                    results["runs"].setdefault(setting.name, []).append(run.report())
                    say(began, f"{setting.name}, seed {seed}: {run.summary()}")
                results["settings"] = [asdict(setting) for setting in wanted]
                write(options.out / "results.json", results)
            results["stream"] = {"turns": judge.sent, "seconds": judge.waited}
            results["afresh"] = await afresh(judge, problems, results["runs"], truth)
    results["seconds"] = round(time.monotonic() - began)
    write(options.out / "results.json", results)
    say(began, f"wrote {options.out / 'results.json'}")


async def survey(
    judge: Judging, problems: Sequence[Problem], wanted: Sequence[Setting], results: dict[str, Any], began: float
) -> dict[Key, Paid]:
    """Have every program judged in every way that is needed; return the strict verdicts, which are the truth."""
    if not judge.profiled:
        judge.claims = judging.believed(problems)
        results["claims"] = {"/".join(key): asdict(claim) for key, claim in judge.claims.items()}
        say(began, f"the trusting evaluator has looked at {len(judge.claims)} programs")
    tables = {}
    for checks in sorted({"on", *("off" for setting in wanted if setting.checks != "on")}, reverse=True):
        report = partial(_progress, began, checks)
        tables[checks] = await judging.survey(judge, problems, checks, report, pr=checks == "on" and judge.profiled)
    results["verdicts"] = {
        checks: {"/".join(key): asdict(paid) for key, paid in table.items()} for checks, table in tables.items()
    }
    return tables["on"]


def _progress(began: float, checks: str, done: int, of: int) -> None:
    say(began, f"checks {checks}: {done} of {of}")


class Run:
    """One policy, one setting, one seed."""

    def __init__(
        self,
        judge: Judging,
        problems: Sequence[Problem],
        truth: dict[Key, Paid],
        setting: Setting,
        seed: int,
        *,
        masked: bool = False,
    ) -> None:
        self.judge, self.problems, self.truth, self.setting, self.seed = judge, problems, truth, setting, seed
        self.policy = copy.deepcopy(cold_start(seed, masked=masked))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=LEARNING_RATE)
        # Settings of one seed begin with one policy and draw their own lots.
        self.generator = torch.Generator().manual_seed(1000 + seed)
        self.history: list[dict[str, float]] = []
        self.last: list[list[Written]] = []

    async def learn(self, updates: int) -> None:
        """Make `updates` updates, each from one batch of episodes that this very policy wrote."""
        for _ in range(updates):
            batch = await self.play()
            self.history.append({**self.describe(batch), **self.update(batch)})
            self.last = [*self.last[-4:], batch.turns[-1]]

    async def play(self) -> Batch:
        """Play a group of episodes for every problem, turn by turn."""
        drawn = torch.randint(len(self.setting.samples), (len(self.problems),), generator=self.generator)
        counts = [self.setting.samples[index] for index in drawn.tolist()]
        episodes = [(which, sample) for which, count in enumerate(counts) for sample in range(count)]
        batch = Batch(group=torch.tensor([which for which, _ in episodes]))
        pasts: list[Past | None] = [None] * len(episodes)
        for turn in range(len(TURNS)):
            told = [
                prompt(self.problems[which].operator, turn, past)
                for (which, _), past in zip(episodes, pasts, strict=True)
            ]
            prompts = torch.tensor(told)
            responses, log_probs = self.policy.sample(prompts, self.generator)
            turns = [
                Written(self.problems[which], decode(tokens), self._group(which), sample, turn)
                for (which, sample), tokens in zip(episodes, responses.tolist(), strict=True)
            ]
            paid = await self.judge.pay(turns, self.setting.checks, pr=self.setting.pr)
            batch.add(prompts, responses, log_probs, turns, paid)
            pasts = [Past(each.words, got.outcome, got.reward) for each, got in zip(turns, paid, strict=True)]
        return batch

    def update(self, batch: Batch) -> dict[str, float]:
        """One step of the optimizer: returns, advantages, rejections, loss."""
        exists = torch.ones_like(batch.rewards, dtype=torch.bool)
        returns = multi_turn_returns(batch.rewards, exists)
        advantages = ESTIMATORS[self.setting.estimator](returns, exists, batch.group)
        log_probs, entropy = self.policy.log_probs(batch.prompts, batch.responses)
        mask = written(batch.responses)
        # The rollout's log-probabilities are this policy's own but for rounding: MRS has nothing to reject here.
        rejected = mismatch.reject(log_probs.detach(), batch.log_probs, mask)
        mask_kept = rejected.mask
        if self.setting.prs:
            kept = coverage.reject(batch.coverage, batch.correct, exists, generator=self.generator)
            mask_kept = mask_kept & kept.flatten()[:, None]
        loss, _ = losses.dual_clip(log_probs, log_probs.detach(), advantages.flatten(), mask_kept)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        return {
            "entropy": float((entropy.detach() * mask).sum() / mask.sum()),
            "mrs_rejected": rejected.metrics["masked_fraction"],
            "prs_rejected": float(1 - mask_kept.any(1).float().mean()),
        }

    def describe(self, batch: Batch) -> dict[str, float]:
        """Figures of a batch: what was paid, and what the strict judge says about the same programs."""
        figures = {"paid": float(batch.rewards.mean())}
        for turn, name in enumerate(TURNS):
            plans = [each.plan for each in batch.turns[turn]]
            verdicts = [self.true(each) for each in batch.turns[turn]]
            speedups, correct = (
                [v.speedup if v else 0.0 for v in verdicts],
                [v is not None and v.correct for v in verdicts],
            )
            kinds = Counter(plan.kind if plan else "ill_formed" for plan in plans)
            cheats = sum(kinds[kind] for kind in grammar.CHEATS)
            figures |= {
                f"{name}/fast@1": metrics.fast_at_p(speedups, correct, 1.0),
                f"{name}/fast@1.5": metrics.fast_at_p(speedups, correct, 1.5),
                f"{name}/correct": sum(correct) / len(plans),
                f"{name}/speedup": sum(s for s, c in zip(speedups, correct, strict=True) if c) / len(plans),
                f"{name}/cheats": cheats / len(plans),
                f"{name}/lazy": kinds["lazy"] / len(plans),
                f"{name}/ill_formed": kinds["ill_formed"] / len(plans),
            }
        return figures

    def true(self, turn: Written) -> Paid | None:
        """The strict verdict; None for what is no program."""
        return self.truth[turn.problem.name, turn.plan.name] if turn.plan else None

    def report(self) -> dict[str, Any]:
        """What is kept of the run: its curve, and what it wrote in the last turns of its last five updates."""
        favourites: dict[str, Counter[str]] = {problem.name: Counter() for problem in self.problems}
        for turns in self.last:
            for turn in turns:
                favourites[turn.problem.name][turn.plan.name if turn.plan else "ill-formed"] += 1
        return {
            "seed": self.seed,
            "history": self.history,
            "favourites": {name: counts.most_common(3) for name, counts in favourites.items()},
        }

    def summary(self) -> str:
        """One line about the end of the run."""
        tail = self.history[-5:]
        mean = {key: sum(row[key] for row in tail) / len(tail) for key in tail[0]}
        return ", ".join(
            f"{label} {mean[key]:.2f}"
            for label, key in (
                ("paid", "paid"),
                ("last turn: fast@1", "turn_3/fast@1"),
                ("speedup", "turn_3/speedup"),
                ("cheats", "turn_3/cheats"),
                ("lazy", "turn_3/lazy"),
            )
        )

    def _group(self, which: int) -> str:
        """Name a group of this update; no other run or update has one of this name."""
        return f"{self.setting.name}/{self.seed}/{len(self.history)}/{self.problems[which].name}"


class Batch:
    """Episodes of one update. Rows are turns, those of one episode together: (E * T, ...); tables are (E, T)."""

    def __init__(self, group: Tensor) -> None:
        self.group = group
        self.turns: list[list[Written]] = []
        self._columns: dict[str, list[Tensor]] = {}

    def add(
        self, prompts: Tensor, responses: Tensor, log_probs: Tensor, turns: list[Written], paid: list[Paid]
    ) -> None:
        """Add one turn of every episode."""
        self.turns.append(turns)
        columns = {
            "prompts": prompts,
            "responses": responses,
            "log_probs": log_probs,
            "rewards": torch.tensor([each.reward for each in paid]),
            "coverage": torch.tensor([each.coverage for each in paid]),
            "correct": torch.tensor([each.correct for each in paid]),
        }
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column)

    def __getattr__(self, name: str) -> Tensor:
        table = torch.stack(self._columns[name], dim=1)
        return table.flatten(0, 1) if table.dim() == 3 else table


@cache
def cold_start(seed: int, *, masked: bool = False) -> Policy:
    """Return a policy that has seen random programs, and nothing about their worth.

    Stands for the cold start data of a language model, without which hardly anything it writes would be a program.
    """
    torch.manual_seed(seed)
    policy = Policy(masked=masked)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)

    def random(choices: Sequence[str]) -> str:
        return choices[int(torch.randint(len(choices), (1,), generator=generator))]

    def program() -> list[str]:
        words: list[str] = []
        while after := grammar.following(words):
            words.append(random(after if words else _COLD_START_KINDS))
        return words

    def past(turn: int) -> Past | None:
        outcome = random(("CORRECT", "INCORRECT", "REJECTED", "COMPILE_ERROR"))
        reward = float(torch.rand(1, generator=generator)) * 2 if outcome == "CORRECT" else 0.0
        return Past(tuple(program()), outcome, reward) if turn else None

    for _ in range(COLD_START_STEPS):
        turns = torch.randint(len(TURNS), (COLD_START_BATCH,), generator=generator).tolist()
        prompts = torch.tensor([prompt(random(OPERATORS), turn, past(turn)) for turn in turns])
        responses = torch.tensor([encode(program()) for _ in turns])
        log_probs, _ = policy.log_probs(prompts, responses)
        loss = -(log_probs * written(responses)).sum() / len(turns)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return policy


async def afresh(
    judge: Judging, problems: Sequence[Problem], runs: dict[str, list[dict[str, Any]]], truth: dict[Key, Paid]
) -> dict[str, Any]:
    """Judge what each setting's policies wrote most at the end again, strictly and from scratch: a second draw."""
    by_name = {problem.name: problem for problem in problems}
    wanted = sorted(
        {
            (name, favourites[0][0])
            for reports in runs.values()
            for report in reports
            for name, favourites in report["favourites"].items()
            if favourites and favourites[0][0] != "ill-formed"
        }
    )
    turns = [
        Written(by_name[name], (*words.split(), grammar.END), "afresh", index, 0)
        for index, (name, words) in enumerate(wanted)
    ]
    paid = await replace(judge, salt=f"afresh-{time.time_ns()}").pay(turns, "on", pr=judge.profiled)
    return {
        f"{name}/{words}": {"first": asdict(truth[name, words]), "again": asdict(got)}
        for (name, words), got in zip(wanted, paid, strict=True)
    }


def write(path: Path, results: dict[str, Any]) -> None:
    """Write results as JSON, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1))
    part.replace(path)


def say(began: float, text: str) -> None:
    """Tell how it goes."""
    print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
