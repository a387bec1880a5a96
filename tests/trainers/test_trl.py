"""Tests of TRL's GRPOTrainer with our reward function and environment: real training steps of a tiny model on a CPU.

A model with random weights writes no kernels, so its generations are scripted. Tokenization, reward calls, advantages,
loss and optimizer are TRL's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import trl

from kerneldyno.client import NoRewardError
from kerneldyno.client.errors import UnavailableError
from kerneldyno.rollout.problems import Problem
from kerneldyno.testing.scripted_node import node
from kerneldyno.trainers import connection
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.trl import KernelEnv, environment_factory, make_reward_func
from kerneldyno.verl import dataset
from tests.scheduler.scheduler_harness import scheduler
from tests.trainers import small_models

REFERENCE = "def get_inputs():\n    return []\n\n\nclass Model:\n    pass\n"


@contextmanager
def served() -> Iterator[str]:
    """Run a scheduler and a node in their own thread, since TRL's trainer blocks its thread. Yield the address."""
    found: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with scheduler() as (app, _), node(app.address, "n1", lanes=8):
            found.set_result((str(app.address), asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    address, loop, stop = found.result(timeout=30)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=30)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as found:
        yield found


def answer(script: str) -> str:
    return f"```python\n# {script}\nclass ModelNew:\n    pass\n```"


def rows(count: int = 2) -> datasets.Dataset:
    """Return rows of our converter, with a short prompt."""
    made = [dataset.row(Problem(f"p{i}", REFERENCE), i, source="test", agent=None) for i in range(count)]
    return datasets.Dataset.from_list([row | {"prompt": [{"role": "user", "content": "Go."}]} for row in made])


def trainer(
    folder: Path, scripts: list[str], kind: type = trl.GRPOTrainer, template: str = "", **options: Any
) -> trl.GRPOTrainer:
    """Return a trainer whose completions are `scripts` in turn."""
    text = small_models.tokenizer()
    if template:  # a template that TRL knows and whose tool calls it can read
        text.chat_template = (Path(trl.__file__).parent / "chat_templates" / template).read_text()

    def rollout(prompts: list[Any], made: trl.GRPOTrainer) -> dict[str, Any]:
        prompt_ids = [text.apply_chat_template(p, add_generation_prompt=True, return_dict=False) for p in prompts]
        written = [scripts[i % len(scripts)] for i in range(len(prompts))]
        ids = [[*text.encode(one), text.eos_token_id] for one in written]
        return {"prompt_ids": prompt_ids, "completion_ids": ids, "logprobs": [[-1.0] * len(one) for one in ids]}

    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=200,
        max_steps=2,
        learning_rate=1e-2,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        disable_tqdm=True,
    )
    return kind(
        model=small_models.model(),
        args=arguments,
        processing_class=text,
        train_dataset=rows(),
        **({"rollout_func": rollout} | options),
    )


def test_a_tiny_model_is_trained_by_our_rewards(address: str, tmp_path: Path) -> None:
    scripts = [answer("speedup=2"), answer("outcome=INCORRECT"), "no code", answer("speedup=1")]
    made = trainer(tmp_path, scripts, reward_funcs=make_reward_func(address))
    before = {name: weights.clone() for name, weights in made.model.named_parameters()}
    made.train()
    logged = [entry for entry in made.state.log_history if "reward" in entry]
    assert len(logged) == 2
    # A correct answer gets 0.5 plus half of the speedup: 1.5, 0, 0 and 1.
    assert [entry["rewards/kerneldyno/mean"] for entry in logged] == pytest.approx([0.625, 0.625])
    assert logged[0]["kerneldyno/correct"] == 0.5
    assert any(not torch.equal(before[name], weights) for name, weights in made.model.named_parameters())


def test_what_infrastructure_failed_is_left_out_and_not_a_zero(address: str, tmp_path: Path) -> None:
    failing = answer("outcome=INFRASTRUCTURE_ERROR retryable=no")
    scripts = [answer("speedup=1"), answer("speedup=1"), failing, answer("speedup=1")]
    made = trainer(tmp_path, scripts, reward_funcs=make_reward_func(address, retries=0))
    made.train()
    logged = [entry for entry in made.state.log_history if "reward" in entry]
    assert [entry["reward"] for entry in logged] == pytest.approx([1.0, 1.0])
    assert [entry["reward_std"] for entry in logged] == pytest.approx([0.0, 0.0])


async def test_the_function_alone(address: str) -> None:
    columns = {"reference_code": [REFERENCE] * 3, "id": ["a", "a", "b"]}
    chat = [{"role": "assistant", "content": answer("speedup=3")}, {"role": "user", "content": "ok"}]
    logged: dict[str, float] = {}
    judge = make_reward_func(address, "drkernel_paper")
    assert judge.__name__ == "kerneldyno"
    completions = [answer("speedup=1"), chat, ""]
    found = await judge(["p"] * 3, completions, None, **columns, log_metric=logged.__setitem__, trainer_state=None)
    assert found == [2.0, 4.0, 0.0]
    assert logged["kerneldyno/fast@1"] == pytest.approx(2 / 3), "1x and 3x; an empty answer is not correct"
    assert logged["kerneldyno/fast@1/sure"] <= logged["kerneldyno/fast@1"]

    failing = [
        answer("outcome=INFRASTRUCTURE_ERROR retryable=no"),
        answer("speedup=1"),
        answer("outcome=REFERENCE_ERROR"),
    ]
    assert await make_reward_func(address, retries=0)(["p"] * 3, failing, **columns) == [None, 1.0, None]
    with pytest.raises(NoRewardError):
        await make_reward_func(address, retries=0, on_missing="raise")(["p"] * 3, failing, **columns)
    with pytest.raises(UnavailableError):
        await make_reward_func("127.0.0.1:9", reconnect_seconds=0.5)(["p"] * 3, failing, **columns)
    with pytest.raises(SettingsError, match="reference"):
        await judge(["p"], [""], None, id=["a"])
    with pytest.raises(SettingsError, match="fortran"):
        await make_reward_func(address, request={"backend": "fortran"})(["p"] * 3, failing, **columns)
    with pytest.raises(SettingsError, match="drkernal"):
        make_reward_func(address, "drkernal")


async def test_the_environment_alone(address: str) -> None:
    made = environment_factory(address, turns=2)()
    assert "submit_kernel" in str(made.reset(reference_code=REFERENCE, prompt=[]))
    assert made.get_reward() == 0.0, "who submits nothing has failed"
    assert "Make it right first" in await made.submit_kernel("# outcome=INCORRECT\nclass ModelNew: ...")
    assert "make it faster" in await made.submit_kernel(answer("speedup=2"))
    assert await made.submit_kernel(answer("speedup=3")) == "No submissions are left."
    assert made.get_reward() == 1.5
    made.reset(reference_code=REFERENCE)
    assert made.get_reward() == 0.0, "nothing is kept from the rollout before"
    failing = environment_factory(address, retries=0)()
    failing.reset(reference_code=REFERENCE)
    assert "not available" in await failing.submit_kernel("# outcome=INFRASTRUCTURE_ERROR retryable=no\n")
    assert failing.get_reward() is None
    await connection.close()


def test_the_environment_in_the_trainer(address: str, tmp_path: Path) -> None:
    """The model's tool calls reach the environment, and the environment's rewards reach the trainer."""
    made = trainer(
        tmp_path,
        [],
        kind=_CallsTools,
        template="qwen2_5.jinja",
        rollout_func=None,
        environment_factory=environment_factory(address, turns=2),
    )
    made.train()
    logged = [entry for entry in made.state.log_history if "reward" in entry]
    assert logged[0]["rewards/KernelEnv/mean"] == pytest.approx((1.5 + 1.0 + 0.5 + 0.0) / 4)
    assert isinstance(made.environments[0], KernelEnv)


class _CallsTools(trl.GRPOTrainer):  # type: ignore[misc]
    """A trainer with scripted generations: each rollout calls the tool once, with its own outcome, and then ends."""

    def _generate_single_turn(self, prompt_ids: list[list[int]], *others: Any, **more: Any) -> Any:
        text = self.processing_class
        written = []
        for index, ids in enumerate(prompt_ids):
            if "Your program was evaluated" in text.decode(ids):
                written.append("Done.")
            else:
                script = ("speedup=2", "speedup=1", "speedup=0", "outcome=INCORRECT")[index % 4]
                code = f"# {script}\\nclass ModelNew: ..."
                call = f'{{"name": "submit_kernel", "arguments": {{"code": "{code}"}}}}'
                written.append(f"<tool_call>\n{call}\n</tool_call>")
        ids = [[*text.encode(one), text.eos_token_id] for one in written]
        return ids, [[-1.0] * len(one) for one in ids]
