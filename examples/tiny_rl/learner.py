"""One policy that learns: episodes of three turns, their rewards, one step of the optimizer, and the cold start.

The formulas are those of kerneldyno.training, on real verdicts; the rewards come from judging.py.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import grammar
import torch
from judging import Key, Paid, Payer, Written
from policy import TURNS, Past, Policy, decode, encode, prompt, say_prompt, written
from problem import OPERATORS, Problem
from torch import Tensor
from warming import imitate

from kerneldyno.training import coverage, losses, metrics, mismatch
from kerneldyno.training.adaptive import AdaptiveRule, AdaptiveSampler
from kerneldyno.training.advantages import ESTIMATORS
from kerneldyno.training.oversampling import Oversampler
from kerneldyno.training.returns import multi_turn_returns

COLD_START_STEPS, COLD_START_BATCH = 150, 96
#: Kinds of random programs: of twenty, twelve are honest ("own"), three lazy, and five cheats, one of each kind.
_COLD_START_KINDS = (*["own"] * 12, *["lazy"] * 3, *sorted(grammar.CHEATS))
LEARNING_RATE = 5e-4


@dataclass(frozen=True, slots=True)
class Setting:
    """One curve."""

    name: str
    #: Which judge pays; see judging.py.
    checks: str = "on"
    estimator: str = "trloo"
    pr: bool = False
    prs: bool = False
    #: Possible sizes of a group, in samples; one is drawn for each group of each update.
    samples: tuple[int, ...] = (8,)
    #: Weight of the entropy of choices in the loss; 0 in the release.
    entropy: float = 0.0
    #: Length of a run, as a multiple of `--updates`.
    stretch: int = 1
    #: Groups to play, as a multiple of the number of problems; groups whose returns are all equal are dropped.
    oversample: float = 1.0
    #: True: sample each problem in rounds, until it has episodes with a reward and episodes without.
    adaptive: bool = False


class ResumeError(ValueError):
    """The saved state belongs to another experiment."""


class Run:
    """One policy, one setting, one seed."""

    def __init__(
        self,
        judge: Payer,
        problems: Sequence[Problem],
        truth: Mapping[Key, Paid],
        setting: Setting,
        seed: int,
        *,
        masked: bool = False,
        start: Policy | None = None,
    ) -> None:
        self.judge, self.problems, self.truth, self.setting, self.seed = judge, problems, truth, setting, seed
        self.policy = copy.deepcopy(cold_start(seed, masked=masked) if start is None else start)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=LEARNING_RATE)
        # All settings of a seed start with the same policy; each run has a generator of its own.
        self.generator = torch.Generator().manual_seed(1000 + seed)
        self.history: list[dict[str, float]] = []
        self.last: list[list[Written]] = []

    async def learn(self, updates: int, may_begin: Callable[[], bool] = lambda: True) -> None:
        """Make updates, each from episodes of the current policy, until there are `updates` or `may_begin` says no."""
        while len(self.history) < updates and may_begin():
            batch = await self.play()
            self.history.append({**self.describe(batch), **self.update(batch)})
            self.last = [*self.last[-4:], batch.turns[-1]]

    def state(self) -> dict[str, Any]:
        """Return the state of a run as plain data that `torch.save` can write."""
        return {
            "setting": asdict(self.setting),
            "seed": self.seed,
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "history": self.history,
            "last": [[(t.problem.name, t.words, t.group, t.sample, t.turn) for t in turns] for turns in self.last],
        }

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`. Raises ResumeError if it belongs to another run."""
        if state["setting"] != asdict(self.setting) or state["seed"] != self.seed:
            raise ResumeError(
                f"{state['setting']['name']}, seed {state['seed']}: made with other settings than this run's"
            )
        named = {problem.name: problem for problem in self.problems}
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.history = list(state["history"])
        self.last = [
            [Written(named[name], tuple(words), *rest) for name, words, *rest in turns] for turns in state["last"]
        ]

    async def play(self) -> Batch:
        """Play the episodes of one update: a group for every problem, or as many as the setting requests."""
        if self.setting.adaptive:
            return await self._play_adaptively()
        if self.setting.oversample > 1:
            return await self._play_more_than_needed()
        return await self._play(self._samples(range(len(self.problems))))

    async def _play_more_than_needed(self) -> Batch:
        """Play more groups than needed: after one group for each problem, repeat the problems in turn."""
        sampler: Oversampler[Batch] = Oversampler(len(self.problems), factor=self.setting.oversample)
        batches = []
        while numbers := sampler.ask():
            batches.append(batch := await self._play(self._samples(numbers)))
            for number in numbers:
                sampler.add(number, batch.rewards.sum(dim=1)[batch.group == number].tolist(), batch)
        joined, taken = Batch.joined(batches), sampler.take()
        joined.kept = torch.isin(joined.group, torch.tensor(taken.kept, dtype=torch.int64))
        return joined

    async def _play_adaptively(self) -> Batch:
        """Play no more episodes than otherwise, each problem as often as it needs; all of them count for baselines."""
        size = max(self.setting.samples)
        budget = size * len(self.problems)
        sampler = AdaptiveSampler(len(self.problems), AdaptiveRule(size=size, most=4 * size, budget=budget))
        batches, played = [], dict.fromkeys(range(len(self.problems)), 0)
        while counts := sampler.ask():
            batches.append(batch := await self._play([(n, played[n] + i) for n, c in counts.items() for i in range(c)]))
            for number, count in counts.items():
                played[number] += count
                sampler.add(number, batch.rewards.sum(dim=1)[batch.group == number].tolist())
        joined = Batch.joined(batches)
        joined.kept = torch.zeros(len(joined.group), dtype=torch.bool)
        for pool in sampler.take(self.generator):
            joined.kept[(joined.group == pool.prompt).nonzero()[pool.kept, 0]] = True
        return joined

    def _samples(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """Draw the size of each group; return the group number and the sample number of all episodes."""
        drawn = torch.randint(len(self.setting.samples), (len(numbers),), generator=self.generator)
        counts = [self.setting.samples[index] for index in drawn.tolist()]
        return [(number, sample) for number, count in zip(numbers, counts, strict=True) for sample in range(count)]

    async def _play(self, episodes: Sequence[tuple[int, int]]) -> Batch:
        """Play episodes turn by turn; each is identified by group number and sample number."""
        batch = Batch(group=torch.tensor([number for number, _ in episodes]))
        pasts: list[Past | None] = [None] * len(episodes)
        for turn in range(len(TURNS)):
            told = [
                prompt(self._problem(number).operator, turn, past)
                for (number, _), past in zip(episodes, pasts, strict=True)
            ]
            prompts = torch.tensor(told)
            responses, log_probs = self.policy.sample(prompts, self.generator)
            turns = [
                Written(self._problem(number), decode(tokens), self._group(number), sample, turn, say_prompt(words))
                for (number, sample), tokens, words in zip(episodes, responses.tolist(), told, strict=True)
            ]
            paid = await self.judge.pay(turns, self.setting.checks, pr=self.setting.pr)
            batch.add(prompts, responses, log_probs, turns, paid)
            pasts = [Past(each.words, got.outcome, got.reward) for each, got in zip(turns, paid, strict=True)]
        return batch

    def update(self, batch: Batch) -> dict[str, float]:
        """Make one step of the optimizer: returns, advantages, rejections, loss."""
        exists = torch.ones_like(batch.rewards, dtype=torch.bool)
        returns = multi_turn_returns(batch.rewards, exists)
        advantages = ESTIMATORS[self.setting.estimator](returns, exists, batch.group)
        log_probs, entropy = self.policy.log_probs(batch.prompts, batch.responses)
        mask = written(batch.responses)
        # The same policy made the rollout's log-probabilities; they differ only by rounding, and MRS rejects nothing.
        rejected = mismatch.reject(log_probs.detach(), batch.log_probs, mask)
        mask_kept = rejected.mask & batch.kept.repeat_interleave(len(TURNS))[:, None]  # baselines use all episodes
        if self.setting.prs:
            kept = coverage.reject(batch.coverage, batch.correct, exists, generator=self.generator)
            mask_kept = mask_kept & kept.flatten()[:, None]
        loss, _ = losses.dual_clip(log_probs, log_probs.detach(), advantages.flatten(), mask_kept)
        loss = loss - self.setting.entropy * (entropy * mask).sum() / mask.sum()
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
        """Return figures of a batch: its rewards, and the strict judge's verdicts on the same programs."""
        figures = {"paid": float(batch.rewards.mean()), "episodes": float(len(batch.group))}
        figures["dropped"] = float((~batch.kept).sum())
        for turn, name in enumerate(TURNS):
            plans = [each.plan for each in batch.turns[turn]]
            verdicts = [self.true(each) for each in batch.turns[turn]]
            speedups, correct = (
                [v.speedup if v else 0.0 for v in verdicts],
                [v is not None and v.correct for v in verdicts],
            )
            lows = [v.interval[0] or None if v else None for v in verdicts]  # 0 where there is no interval
            kinds = Counter(plan.kind if plan else "ill_formed" for plan in plans)
            cheats = sum(kinds[kind] for kind in grammar.CHEATS)
            figures |= {
                f"{name}/fast@1": metrics.fast_at_p(speedups, correct, 1.0),
                f"{name}/fast@1/sure": metrics.sure_fast_at_p(lows, correct, 1.0),
                f"{name}/fast@1.5": metrics.fast_at_p(speedups, correct, 1.5),
                f"{name}/fast@1.5/sure": metrics.sure_fast_at_p(lows, correct, 1.5),
                f"{name}/correct": sum(correct) / len(plans),
                f"{name}/speedup": sum(s for s, c in zip(speedups, correct, strict=True) if c) / len(plans),
                f"{name}/cheats": cheats / len(plans),
                f"{name}/lazy": kinds["lazy"] / len(plans),
                f"{name}/ill_formed": kinds["ill_formed"] / len(plans),
            }
        return figures

    def true(self, turn: Written) -> Paid | None:
        """Return the strict verdict; None if there is no program."""
        return self.truth[turn.problem.name, turn.plan.name] if turn.plan else None

    def report(self) -> dict[str, Any]:
        """Return the results of the run: its curve, and the programs in the last turns of its last five updates."""
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
        """Return one line about the end of the run."""
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

    def _problem(self, number: int) -> Problem:
        """Return the problem of a group."""
        return self.problems[number % len(self.problems)]

    def _group(self, number: int) -> str:
        """Return a name for a group of this update, unique over runs and updates."""
        name = f"{self.setting.name}/{self.seed}/{len(self.history)}/{self._problem(number).name}"
        again = number // len(self.problems)
        return f"{name}/{again}" if again else name


class Batch:
    """Episodes of one update. Rows are turns, those of one episode together: (E * T, ...); tables are (E, T)."""

    def __init__(self, group: Tensor) -> None:
        self.group = group
        #: (E,) bool: episodes to train on. All episodes count for the baselines.
        self.kept = torch.ones(len(group), dtype=torch.bool)
        self.turns: list[list[Written]] = []
        self._columns: dict[str, list[Tensor]] = {}

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Return the episodes of all batches as one."""
        one = cls(torch.cat([batch.group for batch in batches]))
        one.turns = [[turn for batch in batches for turn in batch.turns[index]] for index in range(len(TURNS))]
        for name in batches[0]._columns:
            parts = zip(*(batch._columns[name] for batch in batches), strict=True)
            one._columns[name] = [torch.cat(turn) for turn in parts]
        return one

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
    """Return a policy that was trained on random programs, without any reward.

    This replaces the cold start of a language model. Without it hardly any output would be a program.
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
        imitate(policy, optimizer, prompts, responses)
    return policy
