"""Tests of examples/tiny_rl: its grammar, the real judge's verdicts on its cheats, and a policy that learns from real
rewards."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grammar
import learner
import policy
import problem
import programs
import pytest
import replaying
import torch
import train
import trusting
import warming
from grammar import Plan
from judging import Judging, Paid, Written

from kerneldyno.client import AsyncClient, LocalServices
from kerneldyno.rewards.trajectories import TrajectoryFileError, TrajectoryWriter, TurnRecord, scan

pytestmark = pytest.mark.slow

TINY_RL = Path(__file__).resolve().parents[2] / "examples" / "tiny_rl"
#: So small that a verdict takes a second; no test here needs a fast program.
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
    """One thread for torch: more threads make so small a policy slower, and much slower on a busy machine."""
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


#: Words of a program -> outcome and finding with the checks on, outcome with the checks off.
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
    """A stand-in for the judge: it pays 0.5 for own programs with a masked edge, and nothing for all others."""

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


@pytest.mark.long
async def test_oversampling_trains_on_groups_that_differ() -> None:
    run, judge = made_up(learner.Setting("more", samples=(2,), oversample=2.0))
    for update in range(4):
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


async def test_a_run_that_goes_on_is_the_run_that_was_not_stopped(tmp_path: Path) -> None:
    setting = learner.Setting("kept", samples=(2, 4), prs=True)
    whole, _ = made_up(setting)
    await whole.learn(7)
    results = {"preset": "quick", "masked": False}
    first, _ = made_up(setting)
    await first.learn(3)
    train.Kept(tmp_path, results, resume=False).save(first)
    second, _ = made_up(setting)
    second.last, second.history = [], []
    train.Kept(tmp_path, results, resume=True).restore(second)
    await second.learn(7)
    assert second.report() == whole.report()
    assert all(map(torch.equal, whole.policy.parameters(), second.policy.parameters()))
    await second.learn(7)
    assert len(second.history) == 7, "it was over"


@pytest.mark.timeout(400)
@pytest.mark.long
async def test_verdicts_outlive_the_services_that_gave_them(tmp_path: Path) -> None:
    turns = [Written(TINY, ("lazy", "rows_some", "end"), "kept", 0, 0)]
    paid = []
    for resume in (False, True):
        kept = train.Kept(tmp_path, {"preset": "quick", "masked": False}, resume=resume)
        with LocalServices(devices="cpu", store=kept.store) as services:
            async with AsyncClient(services.address) as client:
                paid += await Judging(client).pay(turns)
    assert paid[0].correct
    assert paid[0].speedup == paid[1].speedup, "no two draws of the clock are alike"


async def test_runs_of_another_experiment_are_not_gone_on_with(tmp_path: Path) -> None:
    results = {"preset": "quick", "masked": False}
    run, _ = made_up(learner.Setting("one", samples=(2,)))
    kept = train.Kept(tmp_path, results, resume=False)
    kept.save(run)
    other, _ = made_up(learner.Setting("one", samples=(4,)))
    with pytest.raises(learner.ResumeError, match="one, seed 0: made with other settings"):
        kept.restore(other)
    (file,) = (tmp_path / "runs").iterdir()
    file.write_bytes(b"no checkpoint")
    with pytest.raises(learner.ResumeError, match=r"one-0\.pt cannot be read"):
        kept.restore(run)
    train.write(tmp_path / "results.json", results | {"preset": "small"})
    with pytest.raises(learner.ResumeError, match="preset='small'; give another --out"):
        train.Kept(tmp_path, results, resume=True)
    (tmp_path / "runs" / "notes.txt").write_text("somebody else's")
    train.Kept(tmp_path, results, resume=False).restore(other)  # deletes the kept runs
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["notes.txt"]


async def test_a_policy_that_never_repeats_itself_is_judged_every_time(judge: Judging) -> None:
    turns = [Written(TINY, ("own", "own", "end"), "anew", index, 0) for index in range(2)]
    judge.anew = True
    salts = {judge._message(turn, "on").request.salt for turn in turns}
    await judge.pay(turns)
    salts |= {judge._message(turn, "on").request.salt for turn in turns}
    assert len(salts) == 4


@pytest.mark.parametrize("wrong", [["--oversample", "0.5"], ["--oversample", "9"], ["--oversample", "2", "--adaptive"]])
def test_options_that_make_no_sense_are_refused(wrong: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *wrong])
    with pytest.raises(SystemExit) as error:
        train.main()
    assert error.value.code == 2


TOLD = policy.say_prompt(policy.prompt("rms_norm", 0, None))
RIGHT = "own rows_many whole_row fused masked"


def recorded(path: Path, *turns: TurnRecord) -> Path:
    with TrajectoryWriter(path) as writer:
        for turn in turns:
            writer.write(turn)
    return path


def turn_of(words: str, index: int, outcome: str = "CORRECT", told: str = TOLD, reward: float = 1.0) -> TurnRecord:
    return TurnRecord(
        group="g", sample=index, turn_index=0, messages=[{"role": "user", "content": told}], outcome=outcome,
        reward=reward, speedup=1.2, response=f"This plan: {words}.\n\n```python\nimport torch\n```\n",
    )  # fmt: skip


def test_files_that_nothing_can_be_learnt_from_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(FileNotFoundError):
        warming.read_examples(path, min_reward=0.5)
    path.write_text("hello\n")
    with pytest.raises(TrajectoryFileError, match="line 1"):
        warming.read_examples(path, min_reward=0.5)
    path.unlink()
    recorded(path, turn_of(RIGHT, 0, "INCORRECT"), turn_of(RIGHT, 1, reward=0.2))
    with pytest.raises(warming.WarmingError, match=r"no turn was CORRECT .* lower the threshold"):
        warming.read_examples(path, min_reward=0.5)
    for odd, why in (
        (turn_of("own rows", 0), "names no plan"),
        (turn_of(RIGHT, 0, told="Make this faster: class Model"), "'Make' is no word of the policy"),
        (turn_of(RIGHT, 0, told="rms_norm turn_1"), "2 words; a prompt has"),
    ):
        path.unlink()
        with pytest.raises(warming.WarmingError, match=why):
            warming.read_examples(recorded(path, odd), min_reward=0.5)


@pytest.mark.parametrize("wrong", [["--warm-from", "absent.jsonl"], ["--warm-from", __file__], ["--record", "/"]])
def test_files_are_looked_at_before_anything_is_judged(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *wrong])
    with pytest.raises(SystemExit) as error:
        train.main()
    assert error.value.code == 2
    assert wrong[1] in capsys.readouterr().err


def test_a_prompt_is_read_back() -> None:
    past = policy.Past(("own", "own", "end"), "INVALID", 0.0)
    for tokens in (policy.prompt("softmax", 0, None), policy.prompt("rms_norm", 2, past)):
        assert policy.read_prompt(policy.say_prompt(tokens)) == tokens


@pytest.mark.long
def test_a_warmed_policy_gives_the_right_answers_and_not_the_wrong_ones(tmp_path: Path) -> None:
    """The file has correct and incorrect turns; warming imitates only the correct ones."""
    wrong = "own rows_few whole_row fused masked"
    turns = [turn_of(RIGHT if n % 2 else wrong, n, "CORRECT" if n % 2 else "INCORRECT") for n in range(40)]
    prompts, responses = warming.read_examples(recorded(tmp_path / "run.jsonl", *turns), min_reward=0.5)
    assert {policy.decode(tokens) for tokens in responses.tolist()} == {(*RIGHT.split(), "end")}
    cold = learner.cold_start(0)
    warmed = warming.warm(cold, prompts, responses, seed=0)

    def probability(of: policy.Policy, words: str) -> float:
        answer = torch.tensor([policy.encode((*words.split(), "end"))])
        log_probs, _ = of.log_probs(prompts[:1], answer)
        return float((log_probs.detach() * policy.written(answer)).sum().exp())

    assert probability(cold, RIGHT) < 0.1
    assert probability(warmed, RIGHT) > 0.9
    assert probability(warmed, wrong) < probability(cold, wrong)
    assert torch.equal(cold.head.weight, learner.cold_start(0).head.weight), (
        "the policy that was given is left as it is"
    )


@pytest.mark.timeout(400)
@pytest.mark.long
async def test_from_recorded_turns_to_a_policy_that_earns_more(judge: Judging, tmp_path: Path) -> None:
    """With real verdicts: a policy's turns are recorded, and a policy that imitates the correct ones earns more."""

    async def played(setting: learner.Setting, start: policy.Policy | None, updates: int) -> list[float]:
        run = learner.Run(judge, [TINY], {}, setting, seed=0, start=start)
        run.true = lambda turn: None  # type: ignore[method-assign]
        await run.learn(updates)
        return [row["paid"] for row in run.history]

    with TrajectoryWriter(tmp_path / "run.jsonl") as judge.recorder:
        before = await played(learner.Setting("recorded", samples=(32,)), None, 3)
    judge.recorder = None
    turns = list(scan(tmp_path / "run.jsonl"))
    assert len({(turn.group, turn.sample, turn.turn_index) for turn in turns}) == len(turns) == 3 * 32 * 3
    prompts, responses = warming.read_examples(tmp_path / "run.jsonl", min_reward=0.5)
    right = sum(turn.outcome == "CORRECT" for turn in turns)
    assert 0 < len(prompts) == len(responses) == right < len(turns)
    warmed = warming.warm(learner.cold_start(0), prompts, responses, seed=0)
    after = await played(learner.Setting("warmed", samples=(32,)), warmed, 1)
    # No program is fast at this size: a correct one earns 0.5, and half of what the cold start writes is not correct.
    assert before[0] < 0.4
    assert after[0] > before[0] + 0.12, (before, after)


@pytest.mark.timeout(400)
async def test_the_policy_learns_from_real_rewards(judge: Judging) -> None:
    truth: dict[tuple[str, str], Paid] = {}
    run = learner.Run(judge, [TINY], truth, learner.Setting("smoke", samples=(16,)), seed=0)
    run.true = lambda turn: None  # type: ignore[method-assign]  # no survey: the curve of what was paid is enough
    await run.learn(20)
    paid = [row["paid"] for row in run.history]
    # Half of what the cold start writes is wrong or a cheat. No program is fast at this size: a correct one earns 0.5.
    assert sum(paid[:2]) / 2 < 0.4
    assert sum(paid[-4:]) / 4 > sum(paid[:2]) / 2 + 0.12, paid
    assert max(row["mrs_rejected"] for row in run.history) == 0.0


def quick_results(**changes: object) -> dict[str, object]:
    """Return made-up results of `--preset quick`: own programs with a masked edge are right and fast, others wrong."""
    (only,) = problem.quick()
    right = {"outcome": "CORRECT", "reward": 1.5, "correct": True, "speedup": 2.0, "coverage": 0.5}
    wrong = {"outcome": "INCORRECT", "reward": 0.0, "correct": False, "speedup": 0.0, "coverage": 0.0}
    rest = {"findings": ["D06"], "interval": [1.9, 2.1], "message": ""}
    table = {
        f"{only.name}/{plan.name}": {**(right if plan.kind == "own" and plan.edge == "masked" else wrong), **rest}
        for plan in grammar.plans()
    }
    claims = {f"{only.name}/stale": {"correct": True, "speedup": 40.0, "coverage": 0.0, "error": ""}}
    sources = replaying.fingerprint([only])
    return {"preset": "quick", "sources": sources, "verdicts": {"on": table, "off": table}, "claims": claims} | changes


async def test_recorded_verdicts_pay_what_the_stream_would(tmp_path: Path) -> None:
    (path := tmp_path / "results.json").write_text(json.dumps(quick_results()))
    given, _ = replaying.read(path, "quick", problem.quick())
    (only,) = problem.quick()
    own = next(plan for plan in grammar.plans() if plan.kind == "own" and plan.edge == "masked")
    turns = [Written(only, words, "g", at, 0) for at, words in enumerate((own.words, ("stale", "end"), ("own", "end")))]
    fast, stale, ill_formed = await given.pay(turns)
    assert (fast.reward, fast.findings, fast.interval) == (1.5, ("D06",), (1.9, 2.1))
    assert (stale.correct, ill_formed.outcome, ill_formed.reward) == (False, "INVALID", 0.0)
    fast, _, _ = await given.pay(turns, pr=True)
    assert fast.reward == 1.5 + 0.5 * 0.5
    _, stale, _ = await given.pay(turns, "trusting")
    assert (stale.correct, stale.reward, stale.speedup) == (True, 2.0, 40.0)  # 0.5 if correct; speed pays at most 1.5
    unknown = Written(problem.small()[0], own.words, "g", 0, 0)
    with pytest.raises(replaying.RecordError, match="survey it again"):
        await given.pay([unknown])


def test_a_policy_learns_from_recorded_verdicts_without_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "verdicts.json").write_text(json.dumps(quick_results()))
    out = tmp_path / "out"
    arguments = ["train.py", "--preset", "quick", "--replay", str(path), "--updates", "12", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--settings", "checks on, TRLOO + PR + PRS"])
    monkeypatch.setattr(train, "LocalServices", None)
    assert train.main() == 0
    (run,) = json.loads((out / "results.json").read_text())["runs"]["checks on, TRLOO + PR + PRS"]
    assert run["history"][-1]["paid"] > run["history"][0]["paid"]


def test_a_session_with_a_truth_judges_no_program_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "verdicts.json").write_text(json.dumps(quick_results()))
    out = tmp_path / "out"
    arguments = ["train.py", "--preset", "quick", "--truth", str(path), "--anew", "--seconds", "0", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert train.main() == 0
    (session,) = json.loads((out / "results.json").read_text())["sessions"]
    assert (session["survey"]["turns"], session["turns"]) == (0, 0)


async def test_no_update_begins_after_the_time_is_over(tmp_path: Path) -> None:
    (path := tmp_path / "results.json").write_text(json.dumps(quick_results()))
    given, _ = replaying.read(path, "quick", problem.quick())
    run = learner.Run(given, problem.quick(), given.verdicts["on"], learner.Setting("checks on, TRLOO"), 0)
    begun: list[None] = []
    await run.learn(5, lambda: begun.append(None) is None and len(begun) <= 2)
    assert len(run.history) == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("not JSON", "is no results.json"),
        ('{"preset": "quick"}', "is no results.json"),
        (json.dumps(quick_results(preset="h200")), "has verdicts of --preset h200"),
        (json.dumps(quick_results(verdicts={"off": {}})), "is no results.json"),
        (json.dumps(quick_results(sources="other")), "other programs or references"),
    ],
)
@pytest.mark.parametrize("option", ["--replay", "--truth"])
def test_what_cannot_be_replayed_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str,
    reason: str,
    option: str,
) -> None:
    (path := tmp_path / "verdicts.json").write_text(content)
    arguments = ["train.py", "--preset", "quick", option, str(path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="2"):
        train.main()
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--replay", "--truth"])
def test_a_run_is_not_overwritten_by_its_own_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (path := tmp_path / "results.json").write_text(json.dumps(quick_results()))
    (tmp_path / "verdicts.sqlite").write_text("kept")
    monkeypatch.setattr(sys, "argv", ["train.py", "--preset", "quick", option, str(path), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        train.main()
    assert "would be overwritten" in capsys.readouterr().err
    assert (tmp_path / "verdicts.sqlite").read_text() == "kept"
