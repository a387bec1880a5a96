"""Tests of `kernel_agent` in verl's worker: real tokenizer, scheduler and stream; scripted engine and node."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker, DictConfigWrap
from verl.protocol import DataProto
from verl.utils.dataset.rl_dataset import RLHFDataset

from kerneldyno.rewards.trajectories import read
from kerneldyno.testing.scripted_node import node
from kerneldyno.trainers import connection
from kerneldyno.trainers.errors import SampleFailedError, SettingsError
from kerneldyno.trainers.marks import Mark
from kerneldyno.verl.agent_loop import KernelAgentLoop, TurnRewardOutput
from tests.scheduler.scheduler_harness import scheduler
from tests.trainers import small_models
from tests.trainers import verl_harness as harness
from tests.trainers.verl_harness import Engine, answer, row, runs_of_ones
from tests.waiting import eventually

PARAMS = {"temperature": 1.0, "logprobs": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Address of a scheduler whose node judges each candidate as its text demands."""
    async with scheduler() as (app, _), node(app.address, "n1", lanes=8, profiling=True):
        yield str(app.address)
        await connection.close()


def loop_of(model: Path, address: str, engine: Engine, *overrides: str, type: str = "qwen2") -> KernelAgentLoop:
    """Return an agent loop as the worker makes it."""
    config = harness.config(model, f"+kerneldyno.address={address}", *overrides)
    return KernelAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=engine,
        tokenizer=small_models.tokenizer(),
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        hf_model_type=type,
    )


async def play(model: Path, address: str, engine: Engine, *overrides: str, **changes: Any) -> TurnRewardOutput:
    output = await loop_of(model, address, engine, *overrides).run(PARAMS, **row(**changes))
    assert isinstance(output, TurnRewardOutput)
    return output


async def test_each_turn_has_its_reward_on_its_last_token_and_feedback_is_the_next_message(
    model: Path, address: str
) -> None:
    engine = Engine([answer("outcome=INCORRECT"), answer("speedup=2 coverage=0.8"), "I give up."])
    output = await play(model, address, engine)
    turns = list(runs_of_ones(output.response_mask))
    rewards = output.as_dict()["rm_scores"]
    assert len(turns) == 3
    assert [rewards[end - 1].item() for _, end in turns] == pytest.approx([0.0, 0.5 + 1.0 + 0.4, 0.0])
    assert rewards.sum().item() == pytest.approx(output.reward_score) == pytest.approx(1.9)
    assert torch.count_nonzero(rewards) == 1, "rewards stand at the end of turns and nowhere else"
    assert turns[-1][1] == len(output.response_ids), "no feedback that nobody answers"

    text = small_models.tokenizer()
    said = [text.decode(output.response_ids[a:b]) for (_, a), (b, _) in itertools.pairwise(turns)]
    assert all("Your program was evaluated" in one and one.endswith("<|im_start|>assistant\n") for one in said)
    assert "Make it right first" in said[0]
    assert "make it faster" in said[1]


async def test_the_row_is_what_the_engine_saw_and_generated_token_by_token(model: Path, address: str) -> None:
    engine = Engine([answer("speedup=1.5")])
    output = await play(model, address, engine)
    for (begin, _), prompt in zip(runs_of_ones(output.response_mask), engine.prompts, strict=True):
        assert output.prompt_ids + output.response_ids[:begin] == prompt
    generated = [output.response_ids[begin:end] for begin, end in runs_of_ones(output.response_mask)]
    text = small_models.tokenizer()
    assert generated == [[*text.encode(engine.script[0]), text.eos_token_id]] * 3
    assert output.response_logprobs is not None
    for turn, (begin, end) in enumerate(runs_of_ones(output.response_mask)):
        assert set(output.response_logprobs[begin:end]) == {-0.5 - turn}
    unwritten = [p for p, mine in zip(output.response_logprobs, output.response_mask, strict=True) if not mine]
    assert set(unwritten) == {0.0}


async def test_verl_learns_what_it_wants_to_know(model: Path, address: str) -> None:
    output = await play(model, address, Engine([answer("speedup=3 sleep=0.2")], spec_num_draft_tokens=5))
    assert output.num_turns == 6
    assert output.metrics.tool_calls + output.metrics.compute_score >= 0.2
    assert output.metrics.num_preempted == 0
    fields = output.extra_fields
    assert (fields["min_global_steps"], fields["max_global_steps"], fields["spec_num_draft_tokens"]) == (1, 3, 15)
    assert len(fields["turn_scores"]) == 3
    figures = fields["reward_extra_info"]
    assert (figures["turns"], figures["last_correct"], figures["best_speedup"]) == (3.0, 1.0, 3.0)


async def test_figures_have_the_same_keys_whatever_becomes_of_the_candidates(model: Path, address: str) -> None:
    scripts = [[answer(f"outcome={outcome}")] for outcome in ("CORRECT", "COMPILE_ERROR", "REJECTED", "TIMEOUT")]
    scripts += [[""], ["no code"], ["```python\nclass ModelNew:\n"], ["\x00\u2028 \u00e9\U0001f600 ```"]]
    seen = []
    for script in scripts:
        output = await play(model, address, Engine(script), "+kerneldyno.turns=1")
        figures = output.extra_fields["reward_extra_info"]
        assert all(type(value) is float for value in figures.values())
        seen.append(tuple(figures))
        assert output.reward_score == (0.5 if "CORRECT" in script[0] else 0.0)
        assert figures["turns_without_code"] == float("outcome=" not in script[0])
    assert len(set(seen)) == 1


async def test_a_response_ends_where_the_row_is_full_and_is_paid_for_what_is_in_it(model: Path, address: str) -> None:
    long = answer("speedup=2") + " " * 400
    engine = Engine([long])
    output = await play(model, address, engine, "actor_rollout_ref.rollout.response_length=1350")
    turns = list(runs_of_ones(output.response_mask))
    assert [one["max_tokens"] for one in engine.params] == [1350 - begin for begin, _ in turns]
    assert len(output.extra_fields["turn_scores"]) == len(turns) == 2, "a third turn would have had less than 64 tokens"
    assert turns[-1][1] == len(output.response_ids) < 1350

    cut = Engine([" " * 300 + answer("speedup=2")])
    output = await play(model, address, cut, "actor_rollout_ref.rollout.response_length=320")
    assert (output.reward_score, output.response_ids[-1] != small_models.tokenizer().eos_token_id) == (0.0, True)
    assert output.extra_fields["reward_extra_info"]["cut_turns"] == 1.0


async def test_an_engine_that_gives_too_much_is_cut_before_it_is_paid(model: Path, address: str) -> None:
    class Overrunning(Engine):
        async def generate(self, request_id: str, **asked: Any) -> Any:
            asked["sampling_params"] = {**asked["sampling_params"], "max_tokens": 10**6}
            return await super().generate(request_id, **asked)

    engine = Overrunning([" " * 300 + answer("speedup=2")])
    output = await play(model, address, engine, "actor_rollout_ref.rollout.response_length=310")
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs or []) == 310
    assert output.reward_score == 0.0, "the candidate is in the part that was cut away"


async def test_a_cut_turn_is_closed_as_the_template_does_before_feedback_follows(model: Path, address: str) -> None:
    engine = Engine(["x" * 500, answer("speedup=2")])
    output = await play(model, address, engine, "+kerneldyno.turn_tokens=100", "+kerneldyno.turns=2")
    (begin, end), _ = runs_of_ones(output.response_mask)
    assert end - begin == 100
    said = small_models.tokenizer().decode(output.response_ids[end : end + 40])
    assert said.startswith("<|im_end|>\n<|im_start|>user\n")


async def test_the_models_context_bounds_the_row_too(model: Path, address: str) -> None:
    engine = Engine([answer("speedup=1")])
    output = await play(model, address, engine, "actor_rollout_ref.rollout.max_model_len=900")
    assert len(output.prompt_ids) + len(output.response_ids) <= 900
    assert all(len(p) + s["max_tokens"] <= 900 for p, s in zip(engine.prompts, engine.params, strict=True))


async def test_infrastructure_that_fails_is_an_exception_and_never_a_reward(model: Path, address: str) -> None:
    failing = answer("outcome=INFRASTRUCTURE_ERROR retryable=no")
    with pytest.raises(SampleFailedError, match="turn 2 of u/0 has no reward"):
        await play(model, address, Engine([answer("speedup=2"), failing]), "+kerneldyno.retries=0")
    with pytest.raises(SampleFailedError, match="REFERENCE_ERROR"):
        await play(model, address, Engine([answer("outcome=REFERENCE_ERROR")]))
    with pytest.raises(SampleFailedError, match="has no reward"):
        await play(model, "127.0.0.1:9", Engine([answer()]))
    with pytest.raises(SampleFailedError, match="has no reward"):
        await play(model, address, Engine([answer("sleep=30")]), "+kerneldyno.turn_seconds=1")
    await connection.close()


async def test_an_engine_that_fails_is_an_exception(model: Path, address: str) -> None:
    class Aborting(Engine):
        async def generate(self, *args: Any, **asked: Any) -> Any:
            output = await super().generate(*args, **asked)
            return output.model_copy(update={"stop_reason": "aborted"})

    class Empty(Engine):
        async def generate(self, *args: Any, **asked: Any) -> Any:
            output = await super().generate(*args, **asked)
            return output.model_copy(update={"token_ids": [], "log_probs": []} if len(self.prompts) > self.most else {})

        most = 0

    with pytest.raises(SampleFailedError, match="aborted"):
        await play(model, address, Aborting([answer()]))
    with pytest.raises(SampleFailedError, match="generated nothing"):
        await play(model, address, Empty([answer()]))
    engine = Empty([answer("speedup=1")])
    engine.most = 1
    output = await play(model, address, engine)
    assert len(list(runs_of_ones(output.response_mask))) == 1
    assert output.response_mask[-1] == 1


async def test_a_request_that_cannot_be_evaluated_is_not_the_policys_fault(model: Path, address: str) -> None:
    with pytest.raises(SettingsError, match="reference"):
        await play(model, address, Engine([answer()]), reward_model={"style": "rule", "ground_truth": "42"})
    with pytest.raises(SettingsError, match="num_perf_trials"):
        await play(model, address, Engine([answer()]), "+kerneldyno.request.num_perf_trials=-1")
    with pytest.raises(SettingsError, match="fortran"):
        await play(model, address, Engine([answer()]), "+kerneldyno.request.backend=fortran")


async def test_rejection_by_coverage_needs_somebody_who_can_measure_it(model: Path) -> None:
    options = ("+kerneldyno.reward=kevin", "+kerneldyno.prs={}", "+kerneldyno.turns=1")  # a reward without coverage
    async with scheduler() as (app, _), node(app.address, "n1"):
        with pytest.raises(SettingsError, match="profile"):
            await play(model, str(app.address), Engine([answer("speedup=2")]), *options)
        await connection.close()
    async with scheduler() as (app, _), node(app.address, "n1", profiling=True):
        output = await play(model, str(app.address), Engine([answer("speedup=2 coverage=0.1")]), *options)
        assert output.extra_fields["reward_extra_info"]["dropped_turns"] == 1.0
        await connection.close()


async def test_settings_that_cannot_work_are_refused_before_anything_is_generated(model: Path) -> None:
    refused = {
        "+kerneldyno.tuns=3": "did you mean 'turns'",
        "+kerneldyno.turns=0": "at least 1",
        "+kerneldyno.turns=many": "must be int",
        "+kerneldyno.turn_tokens=10": "min_turn_tokens",
        "+kerneldyno.reward=drkernal": "drkernal",
        "+kerneldyno.reward={speedup_weigth: 1}": "speedup_weigth",
        "+kerneldyno.prs={treshold: 0.3}": "treshold",
        "+kerneldyno.prs={softness: -1}": "softness",
        "+kerneldyno.strategy=best": "strategy='best' is unknown",
        "+kerneldyno.window=0": "window=0",
        "+kerneldyno.rank_by=speedup": "has no effect with strategy='all'",
        "+kerneldyno={strategy: top, rank_by: time}": "rank_by='time' is unknown",
        "+kerneldyno={strategy: top, rank_by: coverage, request: {enable_profiling: false}}": "needs profiles",
    }
    for override, why in refused.items():
        with pytest.raises(SettingsError, match=why):
            loop_of(model, "x:1", Engine([""]), override)
    for override, why in {
        "algorithm.adv_estimator=rloo": "trloo",
        "algorithm.use_kl_in_reward=True": "use_kl_loss",
    }.items():
        with pytest.raises(SettingsError, match=why):
            loop_of(model, "x:1", Engine([""]), "+kerneldyno.prs={}", override)
        with pytest.raises(SettingsError, match=why):
            loop_of(model, "x:1", Engine([""]), "+kerneldyno.void_turns=true", override)


async def test_lazy_turns_and_regressions_are_marked_for_the_estimator(model: Path, address: str) -> None:
    lazy, good = answer("speedup=1.2 coverage=0.1"), answer("speedup=1.2 coverage=0.9")
    script = [lazy, good, answer("outcome=INCORRECT")]
    output = await play(model, address, Engine(script), "+kerneldyno.prs={}", "+kerneldyno.void_turns=true")
    turns, rewards = list(runs_of_ones(output.response_mask)), output.as_dict()["rm_scores"]
    assert [rewards[begin].item() for begin, _ in turns] == [Mark.DROPPED.value, 0.0, Mark.VOID.value]
    assert rewards.sum().item() == pytest.approx(output.reward_score)
    figures = output.extra_fields["reward_extra_info"]
    assert (figures["dropped_turns"], figures["void_turns"]) == (1.0, 1.0)

    output = await play(model, address, Engine(script))
    assert torch.count_nonzero(output.as_dict()["rm_scores"]) == 2, "no marks that nobody asked for"


async def test_verls_worker_runs_a_batch_of_them_to_its_padded_batch(model: Path, address: str) -> None:
    """In verl's V0 path, the worker makes the loops by name in one event loop, and pads their outputs."""
    engine = Engine([answer("outcome=INCORRECT"), answer("speedup=2 coverage=1")])
    config = harness.config(model, f"+kerneldyno.address={address}", "+kerneldyno.turns=2")
    worker = AgentLoopWorker(config, engine)
    rows = [row(uid=f"u{i // 4}", session_id=i % 4) for i in range(8)]
    names = ("raw_prompt", "data_source", "reward_model", "extra_info", "uid", "session_id")
    columns = {}
    for name in names:
        columns[name] = np.empty(len(rows), dtype=object)
        columns[name][:] = [one[name] for one in rows]
    batch = DataProto.from_dict(
        tensors={"dummy": torch.zeros(8, 1)}, non_tensors=columns, meta_info={"global_steps": 1}
    )
    output = await worker.generate_sequences(batch)
    assert output.batch["rm_scores"].sum(dim=1).tolist() == pytest.approx([2.0] * 8)
    assert output.batch["response_mask"].shape == (8, 6000)
    assert output.non_tensor_batch["best_speedup"].tolist() == [2.0] * 8
    assert output.meta_info["reward_extra_keys"][0] == "score"


async def test_episodes_of_a_process_share_one_stream(model: Path) -> None:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=8):
        engine = Engine([answer("speedup=2")])
        loops = [loop_of(model, str(app.address), engine, "+kerneldyno.turns=2") for _ in range(16)]
        outputs = await asyncio.gather(*(one.run(PARAMS, **row(session_id=i)) for i, one in enumerate(loops)))
        assert {output.reward_score for output in outputs} == {3.0}
        assert len(connection._connections[asyncio.get_running_loop()]) == 1
        await connection.close()


async def test_turns_are_recorded_as_the_model_saw_them(model: Path, address: str, tmp_path: Path) -> None:
    script = [answer("outcome=INCORRECT"), answer("speedup=2 coverage=0.1")]
    engine = Engine(script)
    options = (f"+kerneldyno.trajectories={tmp_path}/kept", "+kerneldyno.turns=2", "+kerneldyno.prs={}")
    output = await play(model, address, engine, *options)
    (file,) = (tmp_path / "kept").iterdir()
    first, second = read(file).turns
    assert (first.group, first.sample, first.turn_index, second.turn_index) == ("u", 0, 0, 1)
    assert [first.response, second.response] == script
    assert [first.reward, second.reward] == output.extra_fields["turn_scores"]
    assert [first.extra["mark"], second.extra["mark"]] == ["kept", "dropped"]
    assert [message["role"] for message in second.messages] == ["user", "assistant", "user"]
    text = small_models.tokenizer()
    for turn, prompt in zip((first, second), engine.prompts, strict=True):
        assert text.apply_chat_template(turn.messages, add_generation_prompt=True, return_dict=False) == prompt


#: Turns of an episode. Rewards count a speedup of at most 3, so the first three turns earn the same.
PLAYED = [
    "speedup=9 coverage=0.8",
    "speedup=4 coverage=0.9",
    "speedup=8 coverage=0.1",
    "outcome=INCORRECT",
    "speedup=1",
]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["strategy=last"], [2, 3]),
        (["strategy=top"], [1, 2]),
        (["strategy=top", "rank_by=speedup"], [0, 2]),
        (["strategy=top", "rank_by=coverage"], [0, 1]),
        (["strategy=window", "rank_by=speedup"], [0, 1]),
    ],
)
async def test_prompts_show_the_turns_that_the_strategy_chooses(
    model: Path, address: str, tmp_path: Path, options: list[str], shown: list[int]
) -> None:
    """Each prompt shows at most two turns, and the engine gets the tokens of the recorded messages."""
    script = [answer(f"turn={turn} {said}") for turn, said in enumerate(PLAYED)]
    engine = Engine(script)
    more = [f"+kerneldyno.{option}" for option in (*options, "window=2", "turns=5", f"trajectories={tmp_path}/kept")]
    reward = "+kerneldyno.reward={preset: drkernel, remeasure_above: 100, coverage_weight: 0}"
    output = await play(model, address, engine, *more, reward)
    (file,) = (tmp_path / "kept").iterdir()
    turns = read(file).turns
    assert [m["content"] for m in turns[4].messages if m["role"] == "assistant"] == [script[index] for index in shown]
    text = small_models.tokenizer()
    for turn, prompt in zip(turns, engine.prompts, strict=True):
        assert text.apply_chat_template(turn.messages, add_generation_prompt=True, return_dict=False) == prompt

    # The row is that of the last turn: its prompt is the one the engine saw, and only its own tokens are trained on.
    ((begin, end),) = runs_of_ones(output.response_mask)
    assert output.prompt_ids + output.response_ids[:begin] == engine.prompts[-1]
    assert end == len(output.response_ids)
    assert output.response_ids[begin:end] == [*text.encode(script[4]), text.eos_token_id]
    assert output.response_logprobs is not None
    assert [set(output.response_logprobs[:begin]), set(output.response_logprobs[begin:])] == [{0.0}, {-4.5}]
    rewards = output.as_dict()["rm_scores"]
    assert rewards[end - 1].item() == rewards.sum().item() == output.reward_score == pytest.approx(1.0)
    figures = output.extra_fields["reward_extra_info"]
    assert (figures["turns"], figures["best_speedup"], figures["last_speedup"]) == (5.0, 9.0, 1.0)
    assert (figures["score"], len(output.extra_fields["turn_scores"]), output.num_turns) == (output.reward_score, 5, 10)


async def test_an_episode_may_be_longer_than_its_row(model: Path, address: str) -> None:
    """A row with the whole conversation ends the episode early; with one shown turn per prompt it goes on."""
    long = answer("speedup=2") + " " * 300
    room = "actor_rollout_ref.rollout.response_length=1350"
    every = await play(model, address, Engine([long]), room, "+kerneldyno.turns=6")
    assert len(every.extra_fields["turn_scores"]) < 6
    chosen = ("+kerneldyno.turns=6", "+kerneldyno.strategy=last", "+kerneldyno.window=1")
    output = await play(model, address, Engine([long]), room, *chosen)
    assert len(output.extra_fields["turn_scores"]) == 6
    assert len(output.response_ids) <= 1350


async def test_an_episode_that_is_cancelled_cancels_its_evaluation(model: Path) -> None:
    """verl cancels episodes that it no longer wants; the devices must stop evaluating them."""
    async with scheduler() as (app, _), node(app.address, "n1", lanes=8) as judging:
        engine = Engine([answer("sleep=60 id=long")])
        playing = asyncio.ensure_future(play(model, str(app.address), engine))
        await eventually(lambda: judging.started == ["long"])
        playing.cancel()
        await eventually(lambda: judging.cancelled == ["long"])
        with pytest.raises(asyncio.CancelledError):
            await playing
        await connection.close()


async def test_a_scheduler_that_comes_back_in_time_costs_nothing(model: Path, tmp_path: Path) -> None:
    store = {"store": f"sqlite:{tmp_path / 'store.db'}"}
    engine = Engine([answer("speedup=2 sleep=1 id=a")])
    async with scheduler(**store) as (app, _), node(app.address, "n1") as judging:
        address = str(app.address)
        options = ("+kerneldyno.turns=1", "kerneldyno.reconnect_seconds=60")
        playing = asyncio.ensure_future(play(model, address, engine, *options))
        await eventually(lambda: judging.started == ["a"])
    async with scheduler(**store, listen=address), node(address, "n2"):
        assert (await playing).reward_score == 1.5
        await connection.close()


async def test_settings_may_come_with_the_agent_loops_own_file(model: Path, address: str, tmp_path: Path) -> None:
    """`rollout.agent.agent_loop_config_path` is verl's way to use several kinds of loops in a run."""
    (tmp_path / "loops.yaml").write_text(
        "- name: short\n  _target_: kerneldyno.verl.agent_loop.KernelAgentLoop\n  turns: 1\n  reward: {preset: kevin}\n"
    )
    config = harness.config(
        model,
        f"+kerneldyno.address={address}",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={tmp_path}/loops.yaml",
    )
    worker = AgentLoopWorker(config, Engine([answer("speedup=2")]))
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    output = await worker._run_agent_loop(PARAMS, trajectory, trace=False, **row(agent_name="short"))
    assert output.extra_fields["turn_scores"] == [2.3]


async def test_reasoning_that_the_template_begins_is_no_answer(model: Path, address: str) -> None:
    engine = Engine([answer("speedup=2"), "Let me see.\n</think>\n" + answer("speedup=2")])
    loop = loop_of(model, address, engine, "+kerneldyno.turns=2")
    plain = loop.tokenizer.chat_template
    loop.tokenizer.chat_template = plain.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    output = await loop.run(PARAMS, **row())
    assert isinstance(output, TurnRewardOutput)
    assert loop.tokenizer.decode(engine.prompts[0]).endswith("<think>\n")
    rewards = output.as_dict()["rm_scores"]
    first, second = (rewards[end - 1].item() for _, end in runs_of_ones(output.response_mask))
    assert first == 0.0, "cut off within its reasoning"
    assert second == pytest.approx(0.5 + 1.0)
