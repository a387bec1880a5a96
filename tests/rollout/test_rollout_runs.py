"""Tests of rollouts in this process: a real scheduler, a scripted node, and a scripted model over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.client import RewardSpec, UnavailableError
from kerneldyno.rewards import presets
from kerneldyno.rewards.trajectories import TrajectoryFileError, TurnRecord
from kerneldyno.rollout import endpoint, prompts
from kerneldyno.rollout.config import OtherConfigError
from kerneldyno.rollout.endpoint import EndpointRefusedError, Sampling
from kerneldyno.rollout.report import report
from kerneldyno.rollout.runner import EndpointAwayError
from kerneldyno.training.errors import TrainingError
from tests.rollout.fake_model import FakeModel, Prompt, Reply, block
from tests.rollout.rollout_harness import config, problem_of, world


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PAUSE", 0.01)


def better_each_turn(prompt: Prompt) -> str:
    """Return a wrong answer in the first turn, then faster and faster ones."""
    return block("outcome=INCORRECT") if prompt.turn == 0 else block(f"speedup={1 + prompt.turn / 2}")


async def test_a_run(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(better_each_turn) as model:
        runner = await w.run(config(3, samples=2), model)
        episodes = w.episodes
    assert len(model.prompts) == 3 * 2 * 3
    assert sorted(episodes) == [(f"p{p}", s) for p in range(3) for s in range(2)]
    for (group, _), episode in episodes.items():
        assert [turn.outcome for turn in episode.turns] == ["INCORRECT", "CORRECT", "CORRECT"]
        assert [turn.reward for turn in episode.turns] == pytest.approx([0.0, 1.8, 2.3])
        first, second, third = episode.turns
        assert first.messages[0]["content"].count(f"MARK {group} ") == 1
        assert [m["role"] for m in third.messages] == ["user", "assistant", "user", "assistant", "user"]
        assert third.messages[1]["content"] == first.response
        assert first.feedback in second.messages[2]["content"]
        assert "Make it right first" in second.messages[2]["content"]
        assert "make it faster" in third.messages[4]["content"]
        assert third.messages[:3] == second.messages
        assert (third.model, third.sampling["temperature"], third.problem_id) == ("fake", 1.0, group)
        assert third.extra["generation"]["completion_tokens"] == 7
        assert third.timings.keys() == {"generate", "reward"}
        assert "class ModelNew" in third.kernel_code
    counts = runner.counts
    assert (counts.episodes, counts.finished, counts.turns, counts.correct) == (6, 6, 18, 12)
    found = report(episodes.values())
    assert [row.fast[1.5] for row in found.turns] == [0.0, 1.0, 1.0]
    assert [row.best_fast[2.0] for row in found.turns] == [0.0, 0.0, 1.0]
    assert (found.problems, found.episodes, found.unfinished) == (3, 6, 0)
    assert found.selected[0].pass_at == {1: 1.0, 2: 1.0}


async def test_no_more_episodes_at_once_than_asked_for(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(lambda prompt: Reply(200, None, hang=0.05)) as model:
        model.answer = lambda prompt: _slowly(block("speedup=1.0"))
        await w.run(config(3, samples=4, turns=1), model, concurrency=3)
    assert (len(model.prompts), model.most_at_once) == (12, 3)


async def _slowly(text: str) -> str:
    await asyncio.sleep(0.05)
    return text


@pytest.mark.parametrize(
    ("strategy", "shown"),
    [("all", [0, 1, 2, 3]), ("last", [2, 3]), ("top", [0, 2]), ("window", [0, 1])],
)
async def test_prompts_show_the_turns_that_the_strategy_chooses(
    tmp_path: Path, strategy: str, shown: list[int]
) -> None:
    speedups = [3.0, 1.5, 2.0, 1.0, 1.0]
    played = iter(range(5))
    spec = presets.spec(RewardSpec(preset="kevin", remeasure_above=100.0))

    def answer(prompt: Prompt) -> str:
        turn = next(played)
        return block(f"speedup={speedups[turn]}", f"turn = {turn}")

    async with world(tmp_path) as w, FakeModel(answer) as model:
        await w.run(config(1, turns=5, strategy=strategy, window=2, reward=spec), model)
        last = w.episodes["p0", 0].turns[4]
    answers = [m["content"] for m in last.messages if m["role"] == "assistant"]
    assert [int(text.partition("turn = ")[2].split()[0]) for text in answers] == shown


@pytest.mark.parametrize(("rank_by", "shown"), [("reward", [2, 3]), ("speedup", [0, 2]), ("coverage", [1, 3])])
async def test_turns_are_ranked_by_reward_speedup_or_coverage(tmp_path: Path, rank_by: str, shown: list[int]) -> None:
    """The first four speedups are above the clip, so their rewards are equal; the first answer has the best speedup."""
    script = ["speedup=9 coverage=0.1", "speedup=4 coverage=0.9", "speedup=8 coverage=0.2", "speedup=5 coverage=0.7"]
    script += ["outcome=INCORRECT", "speedup=1"]
    played = iter(range(6))
    spec = presets.spec(RewardSpec(preset="drkernel", remeasure_above=100.0, coverage_weight=0.0))

    def answer(prompt: Prompt) -> str:
        turn = next(played)
        return block(script[turn], f"turn = {turn}")

    async with world(tmp_path, node={"profiling": True}) as w, FakeModel(answer) as model:
        await w.run(config(1, turns=6, strategy="top", window=2, reward=spec, rank_by=rank_by), model)
        turns = w.episodes["p0", 0].turns
    answers = [m["content"] for m in turns[5].messages if m["role"] == "assistant"]
    assert [int(text.partition("turn = ")[2].split()[0]) for text in answers] == shown
    assert len({turn.reward for turn in turns[:4]}) == 1
    assert (turns[0].coverage is not None) == (rank_by == "coverage"), "profiles are asked for where they rank"


async def test_seeds_follow_from_the_runs_seed(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(better_each_turn) as model:
        await w.run(config(2, samples=2, sampling=Sampling(seed=7)), model)
        seeds = {(t.group, t.sample, t.turn_index): t.extra["generation"]["seed"] for t in w.turns}
    assert len(set(seeds.values())) == len(seeds) == 12
    assert seeds["p0", 0, 0] == config(2, sampling=Sampling(seed=7)).seed(config(1).problems[0], 0, 0)
    assert {prompt.body["seed"] for prompt in model.prompts} == set(seeds.values())


async def test_responses_without_code_and_cut_off_blocks_get_the_reward_of_a_failure(tmp_path: Path) -> None:
    texts = ["I cannot.", "```python\nclass ModelNew:\n    def forward(self", "", block("speedup=2.0")]
    left = iter(texts)
    async with world(tmp_path) as w, FakeModel(lambda prompt: next(left)) as model:
        await w.run(config(1, turns=4), model, concurrency=1)
        turns = w.episodes["p0", 0].turns
        assert len(w.node.started) <= 2, "without code nothing runs"
    assert [turn.response for turn in turns] == texts
    assert [turn.outcome for turn in turns][::2] == ["INVALID", "INVALID"]
    assert [turn.reward for turn in turns][0::2] == [0.0, 0.0]
    assert turns[3].reward == pytest.approx(2.3)
    assert all(turn.feedback for turn in turns)


async def test_a_failed_generation_ends_its_episode_and_counts_as_a_failure(tmp_path: Path) -> None:
    def answer(prompt: Prompt) -> str | Reply:
        if problem_of(prompt) == "p1" and prompt.turn == 1:
            return Reply(500, {"error": "the tokenizer crashed"})
        return block("speedup=2.0")

    async with world(tmp_path) as w, FakeModel(answer) as model:
        runner = await w.run(config(4, turns=2), model, retries=1)
        failed = w.episodes["p1", 0].turns
        asked = len(model.prompts)
        again = await w.run(config(4, turns=2), model)
        assert len(model.prompts) == asked, "a finished one is not repeated"
        found = report(w.episodes.values())
    assert (runner.counts.failed, again.counts.failed, again.counts.finished) == (1, 1, 4)
    assert [turn.outcome for turn in failed] == ["CORRECT", "GENERATION_FAILED"]
    assert (failed[1].reward, failed[1].extra["ended"]) == (None, "generation_failed")
    assert "tokenizer crashed" in failed[1].extra["error"]
    assert (found.unfinished, found.failed_generations) == (0, 1)
    assert [row.correct for row in found.turns] == [1.0, 0.75]
    assert [row.fast[1.0] for row in found.turns] == [1.0, 0.75]
    assert [row.best_fast[1.0] for row in found.turns] == [1.0, 1.0]
    assert [(one.how, one.correct) for one in found.selected] == [("last", 0.75), ("best", 1.0)]


async def test_a_prompt_that_outgrows_the_context_ends_its_episode(tmp_path: Path) -> None:
    def answer(prompt: Prompt) -> str | Reply:
        full = Reply(400, {"error": {"message": "maximum context length is 100 tokens"}})
        return full if prompt.turn == 1 else block("speedup=2.0")

    async with world(tmp_path) as w, FakeModel(answer) as model:
        await w.run(config(2, turns=3), model)
        turns = w.episodes["p0", 0].turns
    assert [turn.extra.get("ended") for turn in turns] == [None, "context_full"]
    assert len(model.prompts) == 4


async def test_an_endpoint_that_never_answers_leaves_nothing_behind(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(lambda prompt: Reply(503, {})) as model:
        with pytest.raises(EndpointAwayError, match="503"):
            await w.run(config(2), model, retries=0)
        assert w.turns == []
        model.answer = better_each_turn
        assert (await w.run(config(2), model)).counts.finished == 2


async def test_an_endpoint_that_goes_away_ends_the_run_and_no_episode(tmp_path: Path) -> None:
    def answer(prompt: Prompt) -> str | Reply:
        return block("speedup=2.0") if prompt.number < 10 else Reply(502, {})

    async with world(tmp_path) as w, FakeModel(answer) as model:
        with pytest.raises(EndpointAwayError, match="nor to a short probe"):
            await w.run(config(30), model, retries=0)
        assert not any(turn.extra.get("ended") for turn in w.turns)
        model.answer = better_each_turn
        runner = await w.run(config(30), model)
    assert (runner.counts.finished, runner.counts.failed) == (30, 0)
    assert runner.counts.resumed > 0


async def test_an_endpoint_that_refuses_everybody_ends_the_run(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(lambda prompt: Reply(404, {"error": "no model"})) as model:
        with pytest.raises(EndpointRefusedError):
            await w.run(config(20), model)
        assert len(model.prompts) <= 4


async def test_a_missing_reward_leaves_the_episode_for_later_with_its_response(tmp_path: Path) -> None:
    def answer(prompt: Prompt) -> str:
        lost = problem_of(prompt) == "p1" and prompt.turn == 1
        return block("outcome=INFRASTRUCTURE_ERROR retryable=no node=n1" if lost else "speedup=2.0")

    async with world(tmp_path) as w, FakeModel(answer) as model:
        runner = await w.run(config(2), model)
        assert (runner.counts.finished, runner.counts.without_reward) == (1, 1)
        assert "JUDGE_DIED" in runner.counts.first_loss
        left = w.episodes["p1", 0].turns
        assert [turn.reward for turn in left] == [pytest.approx(2.3), None]
        found = report(w.episodes.values())
        assert (found.episodes, found.unfinished, [row.correct for row in found.turns]) == (1, 1, [1.0] * 3)
        asked = len(model.prompts)
        w.node.node_id = "n2"  # the script fails on n1 only
        runner = await w.run(config(2), model)
        assert (runner.counts.finished, runner.counts.resumed) == (2, 2)
        assert len(model.prompts) == asked + 1, "only the turn after it is new"
        turns = w.episodes["p1", 0].turns
    assert turns[1].response == left[1].response
    assert len(turns) == 3
    assert turns[1].reward == pytest.approx(0.3 + 1.0)


@pytest.mark.parametrize(
    ("outcome", "says"),
    [("REFERENCE_ERROR", "the reference failed"), ("PROBLEM_TOO_LARGE", "too large for every device")],
)
async def test_a_problem_that_cannot_be_judged_is_named_and_left_alone(tmp_path: Path, outcome: str, says: str) -> None:
    def answer(prompt: Prompt) -> str:
        return block(f"outcome={outcome}" if problem_of(prompt) == "p0" else "speedup=2.0")

    async with world(tmp_path) as w, FakeModel(answer) as model:
        runner = await w.run(config(2, samples=5, turns=1), model, concurrency=1)
    assert list(runner.counts.broken) == ["p0"]
    assert says in runner.counts.broken["p0"]
    assert len(model.prompts) == 1 + 5, "its other samples are not played"
    assert runner.counts.finished == 5


async def test_a_problem_with_a_malformed_request_is_named_and_left_alone(tmp_path: Path) -> None:
    options = {"enable_profiling": True}  # no node here can profile
    async with world(tmp_path) as w, FakeModel(better_each_turn) as model:
        runner = await w.run(config(2, samples=5, options=options), model, concurrency=1)
    assert list(runner.counts.broken) == ["p0", "p1"]
    assert "enable_profiling" in runner.counts.broken["p0"]
    assert len(model.prompts) == 2, "every other answer would be asked for in vain"
    assert runner.counts.finished == 0


async def test_a_scheduler_that_is_away_is_found_out_before_the_model_is_asked(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(better_each_turn) as model:
        w.address = "127.0.0.1:1"
        with pytest.raises(UnavailableError):
            await w.run(config(2), model)
    assert model.prompts == []


async def test_cancelling_leaves_what_is_done_and_resuming_gets_the_reward(tmp_path: Path) -> None:
    async with world(tmp_path) as w, FakeModel(lambda prompt: block("speedup=2.0 sleep=4")) as model:
        running = asyncio.create_task(w.run(config(2, turns=1), model))
        while len(w.node.started) < 2:  # noqa: ASYNC110 - the node has no event for it
            await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [turn.reward for turn in w.turns] == [None, None]
        await w.run(config(2, turns=1), model)
        assert len(model.prompts) == 2, "their responses were on disk"
        assert [w.episodes[f"p{i}", 0].turns[0].reward for i in range(2)] == pytest.approx([2.3, 2.3])


OTHER: list[dict[str, Any]] = [
    {"turns": 4},
    {"samples": 2},
    {"model": "other"},
    {"count": 3},
    {"strategy": "top"},
    {"rank_by": "speedup", "strategy": "top"},
    {"sampling": Sampling(temperature=0.5)},
    {"reward": presets.spec("tiers")},
    {"options": {"num_perf_trials": 10}},
    {"data_set_prompts": True},
]


@pytest.mark.parametrize("change", OTHER, ids=[next(iter(one)) for one in OTHER])
async def test_a_run_with_another_configuration_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    async with world(tmp_path) as w, FakeModel(better_each_turn) as model:
        await w.run(config(2), model)
        before = w.path.read_bytes()
        with pytest.raises(OtherConfigError, match="started with"):
            await w.run(config(**{"count": 2, **change}), model)
    assert w.path.read_bytes() == before


async def test_new_words_are_another_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as w, FakeModel(better_each_turn) as model:
        await w.run(config(1), model)
        monkeypatch.setattr(prompts, "VERSION", prompts.VERSION + 1)
        with pytest.raises(OtherConfigError, match="prompts"):
            await w.run(config(1), model)


async def test_other_files_are_refused(tmp_path: Path) -> None:
    from kerneldyno.rewards.trajectories import TrajectoryWriter

    async with world(tmp_path) as w, FakeModel(better_each_turn) as model:
        w.path.write_text('{"some": "json"}\n')
        with pytest.raises(TrajectoryFileError):
            await w.run(config(1), model)
        w.path.unlink()
        with TrajectoryWriter(w.path) as writer:
            writer.write(TurnRecord(group="g", sample=0, turn_index=0))
        with pytest.raises(OtherConfigError, match="no rollout"):
            await w.run(config(1), model)
        w.path = Path("/dev/full")  # reading it never ends
        with pytest.raises(TrajectoryFileError, match="not a plain file"):
            await w.run(config(1), model)
    assert model.prompts == []


def test_rankings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TrainingError, match="rank_by='time' is unknown"):
        config(1, strategy="top", rank_by="time")
    with pytest.raises(TrainingError, match="no effect with strategy='all'"):
        config(1, rank_by="speedup")
    declines: list[dict[str, object]] = [{"enable_profiling": False}, {"profile_level": "none"}]
    for options in declines:
        with pytest.raises(TrainingError, match="needs profiles"):
            config(1, strategy="top", rank_by="coverage", options=options)


def test_files_from_before_there_was_a_ranking_go_on() -> None:
    assert "rank_by" not in config(1, strategy="top").data()
    assert config(1, strategy="top", rank_by="speedup").data()["rank_by"] == "speedup"


def test_unknown_strategies_are_refused() -> None:
    with pytest.raises(TrainingError):
        config(1, strategy="best")
    with pytest.raises(TrainingError):
        config(1, window=0)
