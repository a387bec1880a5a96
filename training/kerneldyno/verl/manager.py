"""The reward manager `kerneldyno`, for single-turn runs: `reward.reward_manager.name=kerneldyno`.

It reads the block `kerneldyno` of the configuration, like the agent loop. Unlike verl's own manager with
`kerneldyno.verl.score`, it needs no reward_kwargs, and it names turns by their prompt's uid and sample.
"""

from __future__ import annotations

from typing import Any

from kerneldyno.rewards.extraction import continued
from kerneldyno.trainers import settings
from kerneldyno.trainers.turns import PROMPT_END_TOKENS
from kerneldyno.verl.score import score_row
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

NAME = "kerneldyno"


@register(NAME)
class KernelDynoRewardManager(RewardManagerBase):
    """Reward manager that scores each response as it arrives. verl makes one in each reward worker."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **ignored: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        self.settings = settings.load(config.get("kerneldyno"))

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Score the last row of `data`, a DataProto.

        Returns:
            "reward_score" and "reward_extra_info".

        Raises:
            SampleFailedError, SettingsError: as `kerneldyno.verl.score.compute_score`.
        """
        item = data[-1]
        ids = item.batch["responses"]
        length = int(item.batch["attention_mask"][-len(ids) :].sum())
        response = await self.loop.run_in_executor(
            None, lambda: self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        )
        end = self.tokenizer.decode(item.batch["prompts"][-PROMPT_END_TOKENS:], skip_special_tokens=True)
        response = continued(end, response)
        figures = await score_row(item.non_tensor_batch, response, self.settings)
        return {"reward_score": figures["score"], "reward_extra_info": figures}
