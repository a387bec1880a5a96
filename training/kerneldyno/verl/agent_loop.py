"""`kernel_agent`: an agent loop in which a model works on one kernel over several turns.

In each turn the model writes a response, the scheduler returns a reward and feedback, and the feedback is the next user
message. The whole episode is one row. Tokens are never decoded and encoded again: verl's continuous-token helpers append
the generated tokens and the feedback. The row ends with the model's last token; it does not contain feedback after that.

With any `strategy` but all (sequential test-time scaling) a prompt shows only chosen turns, so that an episode can have
more turns than fit into a row. The row is then that of the last turn: the turns it shows have the mask 0, and the reward is
that of the last turn. Figures are still over all turns.

A failure of the policy (no code, a kernel that fails) gives a reward. Any other failure (no reward came, the rollout engine
gave no answer) raises an error, and verl drops the sample: training on a reward of 0 that the policy did not cause would be
worse.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import torch

from kerneldyno.rewards.extraction import continued
from kerneldyno.rollout import prompts
from kerneldyno.rollout.problems import Message, Problem
from kerneldyno.trainers import connection, episode, records, rejection, settings
from kerneldyno.trainers.episode import EpisodeTurn
from kerneldyno.trainers.errors import SampleFailedError, SettingsError
from kerneldyno.trainers.marks import Mark
from kerneldyno.trainers.settings import Settings
from kerneldyno.trainers.turns import PROMPT_END_TOKENS, make_turn, problem_of
from kerneldyno.training import scaling
from kerneldyno.verl import correction
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

NAME = "kernel_agent"
#: Counters in a rollout engine's answer that are summed over turns.
_SUMMED_FIELDS = ("spec_num_draft_tokens", "spec_num_accepted_tokens", "spec_num_verify_steps")


class TurnRewardOutput(AgentLoopOutput):
    """An output with a reward at the end of each turn. verl's own has one number, for the last token."""

    token_rewards: list[float]
    """One for each of `response_ids`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that verl's V1 trainer stores; `rm_scores` are the token-level rewards."""
        output: dict[str, Any] = super().as_dict()
        output["rm_scores"] = torch.tensor(output.pop("token_rewards"), dtype=torch.float32)
        return output


@dataclass(slots=True)
class _Row:
    """The row so far: ids of all tokens; of the response, the mask of tokens that the model wrote, and log-probabilities."""

    ids: list[int]
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None

    @property
    def prompt_ids(self) -> list[int]:
        return self.ids[: len(self.ids) - len(self.mask)]

    @property
    def response_ids(self) -> list[int]:
        return self.ids[len(self.ids) - len(self.mask) :]


@register(NAME)
class KernelAgentLoop(AgentLoopBase):
    """Agent loop that plays one episode. verl makes an instance for each; they share the stream of connection.py."""

    def __init__(self, *args: Any, tools: Any = None, **kwargs: Any) -> None:
        own = {name: kwargs.pop(name) for name in list(kwargs) if name in settings.NAMES}
        super().__init__(*args, **kwargs)
        self.settings = settings.load({**(self.config.get("kerneldyno") or {}), **own})
        check(self.settings, self.config.get("algorithm") or {})
        correction.refuse_idle_bypass(self.config)
        self._metrics = AgentLoopMetrics()
        self._engine: dict[str, Any] = {}
        self._experts: Any = None

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **row: Any) -> AgentLoopOutput:
        """Play an episode on the problem of `row` and return it with its rewards.

        Args:
            sampling_params: sampling options of verl.
            priority: passed to the rollout engine.
            row: row of the data set, with `raw_prompt`, the messages of the first prompt.

        Raises:
            SampleFailedError: something failed that the policy did not cause.
            SettingsError: the row or the configuration cannot be used.
        """
        problem = problem_of(row)
        group, sample = str(row.get("uid") or uuid4().hex), int(row.get("session_id") or 0)
        messages: list[Message] = [dict(message) for message in row["raw_prompt"]]
        request_id = f"det-{int(priority)}" if self.rollout_config.get("full_determinism") else uuid4().hex
        tokens = _Row(await self.ct_build_initial_tokens(messages))
        start = tokens
        turns: list[EpisodeTurn] = []
        answers: list[Any] = []
        seen: list[list[Message]] = []
        while len(turns) < self.settings.turns:
            if self.settings.strategy == "all":
                asked, said = await self._append_feedback(tokens, messages, problem, turns[-1:])
                messages += said
            else:
                asked, messages = await self._prompt_of_chosen(start, row["raw_prompt"], problem, turns, answers)
            room = self._room(asked)
            if room < (self.settings.min_turn_tokens if turns else 1):
                break
            generated = await self._generate(asked, room, sampling_params, request_id, int(priority))
            if not generated.token_ids:
                if not turns:
                    raise SampleFailedError(f"the rollout engine generated nothing for {group}/{sample}")
                break
            begin, tokens = len(asked.mask), await self._append_response(asked, generated)
            text = await self.loop.run_in_executor(None, self._decode, generated.token_ids)
            seen.append(list(messages))
            messages.append({"role": "assistant", "content": text})
            answers.append(generated)
            answered = continued(self._decode(asked.ids[-PROMPT_END_TOKENS:]), text)
            turn = make_turn(problem, self.settings, answered, group=group, sample=sample, turn_index=len(turns))
            started = time.monotonic()
            answer = await connection.score(self.settings, turn)
            played = EpisodeTurn(
                text, answer, begin, len(tokens.mask), time.monotonic() - started, cut=len(generated.token_ids) >= room
            )
            turns.append(played)
            self._metrics.compute_score += played.evaluation_seconds
            self._metrics.tool_calls += played.seconds - played.evaluation_seconds
        if not turns:
            raise SampleFailedError(f"the prompt of {problem.id} leaves no room for a response")
        marks = self._marks(turns)
        if self.settings.trajectories:
            records.write(self.settings.trajectories, problem, seen, turns, marks, row)
        return self._output(tokens, turns, marks)

    def _room(self, row: _Row) -> int:
        """Return how many tokens the next response may have; 0 or less if the row or the model's context is full."""
        room = int(self.rollout_config.response_length) - len(row.mask)
        if context := self.rollout_config.get("max_model_len"):
            room = min(room, int(context) - len(row.ids))
        return min(room, self.settings.turn_tokens) if self.settings.turn_tokens else room

    async def _generate(
        self, row: _Row, room: int, sampling_params: Mapping[str, Any], request_id: str, priority: int
    ) -> Any:
        """Generate a response and return verl's TokenOutput, cut to `room` tokens.

        A turn must be rewarded for exactly the tokens that are trained on.

        Raises:
            SampleFailedError: the rollout engine aborted the generation.
        """
        started = time.monotonic()
        output = await self.server_manager.generate(
            request_id=request_id,
            prompt_ids=row.ids,
            sampling_params={**sampling_params, "max_tokens": room},
            priority=priority,
        )
        self._metrics.generate_sequences += time.monotonic() - started
        if output.stop_reason == "aborted":
            raise SampleFailedError("the rollout engine aborted the generation")
        self._keep_engine_fields(output)
        if len(output.token_ids) > room:
            output.token_ids = output.token_ids[:room]
            output.log_probs = output.log_probs[:room] if output.log_probs else output.log_probs
        return output

    def _keep_engine_fields(self, output: Any) -> None:
        """Keep the engine's fields for verl: those of the first answer, the newest weights' step, sums of counters."""
        if output.num_preempted is not None:
            self._metrics.num_preempted = max(self._metrics.num_preempted, 0) + output.num_preempted
        if output.routed_experts is not None:
            self._experts = output.routed_experts
        for name, value in output.extra_fields.items():
            if name in _SUMMED_FIELDS and name in self._engine:
                self._engine[name] += value
            elif name not in self._engine or (name == "max_global_steps" and value is not None):
                self._engine[name] = value

    def _decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    async def _append_response(self, row: _Row, generated: Any) -> _Row:
        logprobs = generated.log_probs or None
        known = row.logprobs if row.logprobs is not None else ([0.0] * len(row.mask) if logprobs else None)
        merged, mask, logprobs = await self.ct_merge_assistant_token(
            row.ids, generated.token_ids, row.mask, known, assistant_logprobs=logprobs
        )
        return _Row(merged.token_ids, mask, logprobs)

    async def _prompt_of_chosen(
        self, start: _Row, prompt: list[Message], problem: Problem, turns: list[EpisodeTurn], answers: list[Any]
    ) -> tuple[_Row, list[Message]]:
        """Return row and messages of a prompt that shows the turns which the strategy chooses; none of them is trained on.

        The tokens are the generated ones, not newly encoded.
        """
        row, messages = _Row(list(start.ids)), [dict(message) for message in prompt]
        chosen = self.settings
        merits = [scaling.merit(chosen.rank_by, turn.answer.reward, turn.speedup, turn.coverage) for turn in turns]
        rewards = [turn.answer.reward for turn in turns]
        for index in scaling.choose(rewards, strategy=chosen.strategy, window=chosen.window, merits=merits):
            row = await self._append_response(row, answers[index])
            messages.append({"role": "assistant", "content": turns[index].text})
            row, said = await self._append_feedback(row, messages, problem, [turns[index]])
            messages += said
        length = len(row.mask)
        return _Row(row.ids, [0] * length, None if row.logprobs is None else [0.0] * length), messages

    async def _append_feedback(
        self, row: _Row, messages: list[Message], problem: Problem, turns: list[EpisodeTurn]
    ) -> tuple[_Row, list[Message]]:
        """Append the feedback on the last turn; return the new row and the message, or the same row if there is no turn."""
        if not turns:
            return row, []
        turn, end = turns[-1], self.tokenizer.eos_token_id
        if turn.cut and end is not None and row.ids[-1] != end:  # close the message, which the model did not finish
            logprobs = None if row.logprobs is None else [*row.logprobs, 0.0]
            row = _Row([*row.ids, end], [*row.mask, 0], logprobs)
        said = prompts.next_message(problem, turn.answer.feedback, correct=turn.correct)
        merge = (
            getattr(self, "ct_merge_context_msg", None) or self.ct_merge_non_assistant_msg
        )  # first name: verl after 0.9; second: 0.9
        merged, mask, logprobs = await merge(messages, [*messages, said], row.ids, row.mask, row.logprobs)
        return _Row(merged.token_ids, mask, logprobs), [said]

    def _output(self, row: _Row, turns: list[EpisodeTurn], marks: list[Mark]) -> TurnRewardOutput:
        figures, scores = episode.figures(turns, marks), [turn.answer.reward for turn in turns]
        if self.settings.strategy != "all":
            turns, marks = turns[-1:], marks[-1:]
            figures["score"] = turns[-1].answer.reward
        experts = None if self._experts is None else self._experts[: len(row.ids)]
        return TurnRewardOutput(
            prompt_ids=row.prompt_ids,
            response_ids=row.response_ids,
            response_mask=row.mask,
            response_logprobs=row.logprobs,
            routed_experts=experts,
            multi_modal_data={},
            reward_score=figures["score"],  # without it verl would call its own reward manager
            num_turns=2 * int(figures["turns"]),
            metrics=self._metrics,
            token_rewards=episode.token_rewards(turns, marks, len(row.mask)),
            extra_fields={
                **self._engine,
                "turn_scores": scores,
                "tool_rewards": [],
                "reward_extra_info": figures,
            },
        )

    def _marks(self, turns: list[EpisodeTurn]) -> list[Mark]:
        marks = [Mark.KEPT] * len(turns)
        if (rule := self.settings.coverage_rule()) is not None:
            basis = self.settings.reward_spec().coverage_basis
            marks = [Mark.KEPT if kept else Mark.DROPPED for kept in rejection.kept(turns, rule, basis)]
        if self.settings.void_turns:
            marks = [Mark.VOID if void else mark for void, mark in zip(rejection.void_turns(turns), marks, strict=True)]
        return marks


def check(chosen: Settings, algorithm: Mapping[str, Any]) -> None:
    """Check that decisions about turns (PRS, void turns) can reach the estimator (see marks.py).

    Args:
        chosen: settings of the run.
        algorithm: verl's block `algorithm`.

    Raises:
        SettingsError: they cannot.
    """
    if chosen.prs is None and not chosen.void_turns:
        return
    asked = "kerneldyno.prs" if chosen.prs is not None else "kerneldyno.void_turns"
    estimator = str(algorithm.get("adv_estimator"))
    if estimator != "trloo" and not estimator.startswith("kerneldyno_"):
        raise SettingsError(
            f"{asked} works only with KernelDyno's estimators; algorithm.adv_estimator={estimator} would train on all "
            "turns; use trloo or kerneldyno_grpo"
        )
    if algorithm.get("use_kl_in_reward"):
        raise SettingsError(
            f"{asked} cannot be used with algorithm.use_kl_in_reward=True, which overwrites the marks for the estimator; "
            "use actor_rollout_ref.actor.use_kl_loss=True for a KL penalty"
        )
