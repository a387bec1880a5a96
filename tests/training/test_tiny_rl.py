"""examples/tiny_rl: its grammar, what the real judge says of its cheats, and that its policy learns from real
rewards."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import torch
from kerneldyno.client import AsyncClient, LocalServices

TINY_RL = Path(__file__).resolve().parents[2] / "examples" / "tiny_rl"
sys.path.append(str(TINY_RL))

import grammar  # noqa: E402
import learner  # noqa: E402
import policy  # noqa: E402
import problem  # noqa: E402
import programs  # noqa: E402
import train  # noqa: E402
import trusting  # noqa: E402
from grammar import Plan  # noqa: E402
from judging import Judging, Paid, Written  # noqa: E402

#: Small enough that a verdict takes a second; nothing here asks for speed.
TINY = problem.Problem("rms_norm", "tiny", 16, 12, 12, (16, 32, 64), (16, 8), by_row=True)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "own",
        "end",
        "own rows_few end",
        "lazy lazy end",
        "rows_few end",
        "decoy_idle rows_few end",
        "own rows_few whole_row fused masked",
        "decoy_idle end end",
        "own whole_row rows_few fused masked end",
    ],
)
def test_what_is_no_program_is_ill_formed(words: str) -> None:
    assert grammar.parse(words.split()) is None


def test_every_program_is_read_back() -> None:
    plans = list(grammar.plans())
    assert len(plans) == len(set(plans)) == 44
    assert all(grammar.parse(plan.words) == plan for plan in plans)
    assert max(len(plan.words) for plan in plans) == grammar.LONGEST


@pytest.mark.parametrize("preset", sorted(problem.PRESETS))
def test_programs_are_complete_and_all_different(preset: str) -> None:
    for each in problem.PRESETS[preset]():
        compile(each.reference, each.name, "exec")
        sources = {plan: programs.write(each, plan) for plan in grammar.plans()}
        assert len(set(sources.values())) == len(sources)
        for plan, source in sources.items():
            if plan.edge == "syntax_error":
                with pytest.raises(SyntaxError):
                    ast.parse(source)
            else:
                called = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
                assert any(name.endswith("_kernel") for name in called) or plan.kind == "decoy_idle"
                assert "ModelNew" in source


@pytest.mark.parametrize("masked", [False, True])
def test_probabilities_of_the_rollout_are_those_of_training(masked: bool) -> None:
    torch.manual_seed(0)
    written = policy.Policy(masked=masked)
    past = policy.Past(("lazy", "rows_few", "end"), "CORRECT", 0.9)
    prompts = torch.tensor([policy.prompt("softmax", 0, None), policy.prompt("rms_norm", 2, past)] * 20)
    responses, rollout = written.sample(prompts, torch.Generator().manual_seed(0))
    again, _ = written.log_probs(prompts, responses)
    torch.testing.assert_close(again.detach(), rollout, atol=1e-5, rtol=1e-4)
    well_formed = [grammar.parse(policy.decode(tokens)) is not None for tokens in responses.tolist()]
    assert all(well_formed) if masked else not all(well_formed)


def test_the_quick_preset_asks_for_little_and_shows_both_ends() -> None:
    quick = argparse.Namespace(preset="quick", settings=None)
    settings = train.chosen(quick)
    assert [setting.checks for setting in settings] == ["off", "on"]
    assert len(problem.PRESETS["quick"]()) * len(settings) * len(list(grammar.plans())) <= 90
    assert train.chosen(argparse.Namespace(preset="quick", settings=["GRPO"])) != settings
    assert train.chosen(argparse.Namespace(preset="small", settings=None)) == list(train.SETTINGS)


def test_a_trusting_evaluator_is_cheated() -> None:
    kinds = ("own", "stale", "forged_clock")
    claims = trusting.believe((TINY.reference, programs.write(TINY, Plan(kind))) for kind in kinds)
    assert [claim.correct for claim in claims] == [True] * 3, claims
    honest, stale, forged = claims
    assert stale.speedup > 10 * honest.speedup
    assert forged.speedup > 10 * honest.speedup
    assert honest.coverage > 0.9


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So small a policy is slower with several, much slower where others want them too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def services() -> Iterator[LocalServices]:
    with LocalServices(devices="cpu") as running:
        yield running


@pytest.fixture
async def judge(services: LocalServices) -> AsyncIterator[Judging]:
    async with AsyncClient(services.address) as client:
        yield Judging(client)


#: Kind or slots -> outcome and finding with the checks on, outcome with the checks off.
VERDICTS = {
    "own rows_some whole_row fused masked end": ("CORRECT", "", "CORRECT"),
    "own rows_many column_blocks split masked end": ("CORRECT", "", "CORRECT"),
    "own rows_some whole_row fused unmasked end": ("INCORRECT", "", "INCORRECT"),
    "own rows_some whole_row fused syntax_error end": ("COMPILE_ERROR", "", "COMPILE_ERROR"),
    "lazy rows_some end": ("CORRECT", "", "CORRECT"),
    "decoy_idle end": ("REJECTED", "S19", "CORRECT"),
    "decoy_thrown end": ("REJECTED", "S20", "CORRECT"),
    "stale end": ("INCORRECT", "", "INCORRECT"),
    "shortcut end": ("INCORRECT", "", "CORRECT"),
    "own own end": ("INVALID", "", "INVALID"),
}


@pytest.mark.timeout(400)
async def test_what_each_choice_comes_to(judge: Judging) -> None:
    turns = [Written(TINY, tuple(words.split()), "on", index, 0) for index, words in enumerate(VERDICTS)]
    on = dict(zip(VERDICTS, await judge.pay(turns), strict=True))
    turns = [Written(TINY, tuple(words.split()), "off", index, 0) for index, words in enumerate(VERDICTS)]
    off = dict(zip(VERDICTS, await judge.pay(turns, "off"), strict=True))
    for words, (outcome, finding, lenient) in VERDICTS.items():
        assert on[words].outcome == outcome, (words, on[words])
        assert not finding or finding in on[words].findings, (words, on[words])
        assert off[words].outcome == lenient, (words, off[words])
        assert (on[words].reward > 0) == (outcome == "CORRECT")
        assert (off[words].reward > 0) == (lenient == "CORRECT")


class MadeUp:
    """Pays what a table says, in place of a judge: own programs earn, by their rows; nothing else does."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, int]] = []

    async def pay(self, turns: list[Written], checks: str = "on", *, pr: bool = False) -> list[Paid]:
        self.groups += [(turn.group, turn.sample) for turn in turns if turn.turn == 0]
        return [self._paid(turn) for turn in turns]

    def _paid(self, turn: Written) -> Paid:
        plan = turn.plan
        if plan is None or plan.kind != "own" or plan.edge != "masked":
            return Paid("INCORRECT", 0.0, False, 0.0, 0.0)
        return Paid("CORRECT", 0.5, True, 1.0, 1.0)


def made_up(setting: learner.Setting) -> tuple[learner.Run, MadeUp]:
    judge = MadeUp()
    run = learner.Run(judge, [TINY, problem.quick()[0]], {}, setting, seed=0)  # type: ignore[arg-type]
    run.true = lambda turn: None  # type: ignore[method-assign]
    return run, judge


async def test_oversampling_trains_on_groups_that_differ() -> None:
    run, judge = made_up(learner.Setting("more", samples=(2,), oversample=2.0))
    for update in range(6):
        judge.groups.clear()
        batch = await run.play()
        scores = batch.rewards.sum(dim=1)
        assert len(set(judge.groups)) == len(judge.groups) == len(batch.group), "every episode has a name of its own"
        kept = batch.group[batch.kept].unique().tolist()
        differ = [n for n in batch.group.unique().tolist() if scores[batch.group == n].unique().numel() > 1]
        assert kept == differ[:2], update
        run.history.append({**run.describe(batch), **run.update(batch)})
    assert sum(row["dropped"] for row in run.history) > 0


async def test_adaptive_sampling_keeps_balanced_groups_within_the_budget() -> None:
    run, judge = made_up(learner.Setting("adaptive", samples=(8,), adaptive=True))
    before = [parameter.clone() for parameter in run.policy.parameters()]
    await run.learn(3)
    assert all(row["episodes"] <= 16 for row in run.history)
    assert len(set(judge.groups)) == len(judge.groups)
    assert any(not torch.equal(old, new) for old, new in zip(before, run.policy.parameters(), strict=True))


@pytest.mark.parametrize("wrong", [["--oversample", "0.5"], ["--oversample", "9"], ["--oversample", "2", "--adaptive"]])
def test_options_that_make_no_sense_are_refused(wrong: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *wrong])
    with pytest.raises(SystemExit) as error:
        train.main()
    assert error.value.code == 2


@pytest.mark.timeout(400)
async def test_the_policy_learns_from_real_rewards(judge: Judging) -> None:
    truth: dict[tuple[str, str], Paid] = {}
    run = learner.Run(judge, [TINY], truth, learner.Setting("smoke", samples=(16,)), seed=0)
    run.true = lambda turn: None  # type: ignore[method-assign]  # no survey: the curve of what was paid is enough
    await run.learn(20)
    paid = [row["paid"] for row in run.history]
    # Half of what the cold start writes is wrong or a cheat; at this size nothing is fast, and being right pays 0.5.
    assert sum(paid[:2]) / 2 < 0.4
    assert sum(paid[-4:]) / 4 > sum(paid[:2]) / 2 + 0.12, paid
    assert max(row["mrs_rejected"] for row in run.history) == 0.0
