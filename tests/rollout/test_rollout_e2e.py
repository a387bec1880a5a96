"""Test of a rollout in which all but the model is real: command, HTTP, scheduler, evaluator, sandbox, judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.rewards.trajectories import read
from kerneldyno.rollout import prompts
from tests.rollout.fake_model import FakeModel, Prompt
from tests.rollout.rollout_harness import command

PROBLEMS = Path(__file__).parents[2] / "examples" / "problems"
#: The candidates that the model writes, turn by turn.
SCRIPT = {
    "relu": ["wrong_threshold", "syntax_error", "triton_blocks"],
    "row_mean": ["wrong_divisor", "triton_rows", "triton_split"],
}
OUTCOMES = {
    "relu": ["INCORRECT", "COMPILE_ERROR", "CORRECT"],
    "row_mean": ["INCORRECT", "CORRECT", "CORRECT"],
}
#: Interpreted kernels are slow, and their times mean nothing.
REQUEST = {"num_perf_trials": 1, "num_warmup": 0, "num_correct_trials": 1, "stress_inputs": False}


def answer(prompt: Prompt) -> str:
    name = "relu" if "torch.relu" in prompt.first else "row_mean"
    source = (PROBLEMS / name / f"{SCRIPT[name][prompt.turn]}.py").read_text()
    thoughts = "<think>Something like\n```python\nclass ModelNew: ...\n```\n?</think>\n"
    return f"{thoughts}Here it is:\n```python\n{source}```\nIt is fast."


@pytest.mark.timeout(400)
async def test_a_rollout_and_the_example_of_its_prompt(cpu_services: LocalServices, tmp_path: Path) -> None:
    rows = [{"id": name, "reference_code": (PROBLEMS / name / "reference.py").read_text()} for name in SCRIPT]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    async with FakeModel(answer) as model:
        done = await command(
            *("rollout", tmp_path / "problems.jsonl", "-o", tmp_path / "run.jsonl", "--address", cpu_services.address),
            *("--model", "scripted", "--base-url", model.url, "--reward", "kevin"),
            *("--request", json.dumps(REQUEST)),
        )
    assert done.status == 0, done.err
    example = prompts.worked_example("triton")
    assert example is not None
    async with AsyncClient(cpu_services.address) as client:
        request = EvalRequest(reference_code=example[0], kernel_code=example[1], run_performance=False)
        assert EvalResult.Outcome.Name((await client.evaluate_once(request)).outcome) == "CORRECT"
    episodes = {episode.group: episode for episode in read(tmp_path / "run.jsonl").trajectories()}
    assert {name: [turn.outcome for turn in episode.turns] for name, episode in episodes.items()} == OUTCOMES
    for name, episode in episodes.items():
        for turn, candidate in zip(episode.turns, SCRIPT[name], strict=True):
            assert turn.kernel_code.strip() == (PROBLEMS / name / f"{candidate}.py").read_text().strip()
            assert (turn.reward or 0) > 0.3 if turn.outcome == "CORRECT" else turn.reward == 0
    assert "elements" in episodes["relu"].turns[0].feedback or "wrong" in episodes["relu"].turns[0].feedback.lower()
    assert "(" in episodes["relu"].turns[1].feedback, "the candidate's own line is told"
    assert episodes["relu"].turns[1].feedback in episodes["relu"].turns[2].messages[-1]["content"]
    assert len(model.prompts) == 6
