"""What a run may choose.

In verl this is the block `kerneldyno` at the root of the configuration, which the agent loop and the reward manager read:

    python -m verl.trainer.main_ppo ... +kerneldyno.address=scheduler:50051 +kerneldyno.turns=3 +kerneldyno.reward=drkernel

Reward functions take the same names as keywords. What is not given has the defaults below, and a name that does not exist
is an error. Credentials come from the environment (KERNELDYNO_TLS_CA, _TOKEN_FILE and so on, see docs/security.md): a
configuration ends up in logs.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from kerneldyno.client.aio import DEFAULT_ADDRESS
from kerneldyno.rewards import presets
from kerneldyno.rpc.errors import InvalidRequestError
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.training import scaling
from kerneldyno.training.errors import TrainingError
from kerneldyno.v1.reward_service_pb2 import RewardSpec

if TYPE_CHECKING:
    from kerneldyno.training.coverage import CoverageRule

ADDRESS_VARIABLE = "KERNELDYNO_ADDRESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the plugin may be told."""

    address: str = field(default_factory=lambda: os.environ.get(ADDRESS_VARIABLE, DEFAULT_ADDRESS))
    """host:port of the scheduler, as the workers reach it: on several machines never 127.0.0.1."""
    reward: str | Mapping[str, Any] = "drkernel"
    """Name of a preset, or the fields of a RewardSpec: {"preset": "drkernel", "speedup_clip": 5}."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Fields of EvalRequest for problems that leave them open: {"backend": "triton", "num_perf_trials": 100}."""
    turns: int = 3
    """Turns of an episode (agent loop)."""
    turn_tokens: int = 0
    """Longest response of one turn, in tokens; 0 means what is left of the episode's."""
    min_turn_tokens: int = 256
    """An episode ends when less than this is left for its next turn: a kernel would be cut off anyway."""
    turn_seconds: float = 1800.0
    """How long a turn may wait for its reward, queueing and retries included. Then the sample fails."""
    reconnect_seconds: float = 600.0
    """How long a scheduler may be away before the samples that wait for it fail."""
    retries: int = 2
    """How often a turn is sent again whose evaluation failed with the infrastructure."""
    prs: Mapping[str, Any] | None = None
    """Rejection by coverage, drawn in the agent loop: {} for the released constants, or fields of CoverageRule."""
    void_turns: bool = False
    """Whether turns that regress (no reward after one that had some) are taken out, as KernelGYM does by default."""
    strategy: str = "all"
    """Which earlier turns a prompt shows (agent loop): all, last, top or window, see kerneldyno.training.scaling. Other than
    all, the last turn alone is trained on."""
    window: int = scaling.WINDOW
    """How many of them."""
    rank_by: str = "reward"
    """What top and window go by: reward, speedup or coverage (which has every turn profiled)."""
    trajectories: str = ""
    """Folder in which every process keeps a file of all turns; none when empty."""

    def reward_spec(self) -> RewardSpec:
        """Returns the reward with every field filled."""
        return _spec(self.reward) if isinstance(self.reward, str) else _spec_of(self.reward)

    def coverage_rule(self) -> CoverageRule | None:
        """Returns by which rule turns are rejected; None when they are not."""
        from kerneldyno.trainers import rejection  # needs torch, which rewards alone do without

        return None if self.prs is None else rejection.rule_of(self.prs)


NAMES = frozenset(one.name for one in fields(Settings))


def load(given: Mapping[str, Any] | None) -> Settings:
    """Reads the block.

    Raises:
        SettingsError: a name does not exist, or a value cannot be used; the message says what may stand there.
    """
    given = _plain(given or {})
    for name in given:
        if name not in NAMES:
            close = difflib.get_close_matches(str(name), NAMES, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(NAMES))}"
            raise SettingsError(f"kerneldyno.{name} is no setting; {hint}")
    values = {name: _converted(name, value) for name, value in given.items() if value is not None}
    settings = Settings(**values)
    for name, least in (("turns", 1), ("turn_tokens", 0), ("min_turn_tokens", 1), ("retries", 0)):
        if getattr(settings, name) < least:
            raise SettingsError(f"kerneldyno.{name}={getattr(settings, name)}; it must be at least {least}")
    if 0 < settings.turn_tokens < settings.min_turn_tokens:
        raise SettingsError(
            f"kerneldyno.turn_tokens={settings.turn_tokens} is less than kerneldyno.min_turn_tokens="
            f"{settings.min_turn_tokens}: no episode would have a second turn"
        )
    for name in ("turn_seconds", "reconnect_seconds"):
        if not getattr(settings, name) > 0:
            raise SettingsError(f"kerneldyno.{name}={getattr(settings, name)}; it must be greater than 0")
    try:
        scaling.choose([], strategy=settings.strategy, window=settings.window)
        scaling.check_rank_by(settings.rank_by, settings.strategy)
    except TrainingError as error:
        raise SettingsError(f"kerneldyno.{error}") from error
    if settings.rank_by == "coverage" and settings.request.get("enable_profiling") is False:
        raise SettingsError(
            "kerneldyno.rank_by=coverage needs profiles; leave enable_profiling=false out of kerneldyno.request"
        )
    settings.reward_spec()
    settings.coverage_rule()
    return settings


def _converted(name: str, value: Any) -> Any:
    """`value` as the setting's type: command lines and environment variables give text."""
    if name in ("request", "prs") or (name == "reward" and not isinstance(value, str)):
        if not isinstance(value, Mapping):
            raise SettingsError(f"kerneldyno.{name}={value!r}; it must be a mapping of names to values")
        return dict(value)
    if name == "void_turns":
        if not isinstance(value, bool):
            raise SettingsError(f"kerneldyno.{name}={value!r}; it must be true or false")
        return value
    kind = (
        int
        if name in ("turns", "turn_tokens", "min_turn_tokens", "retries", "window")
        else float
        if "seconds" in name
        else str
    )
    try:
        converted = kind(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"kerneldyno.{name}={value!r}; it must be {kind.__name__}") from error
    if kind is int and converted != float(value):
        raise SettingsError(f"kerneldyno.{name}={value!r}; it must be a whole number")
    return converted


def _plain(given: Any) -> Any:
    """Plain dicts and lists, of what may be OmegaConf's."""
    if isinstance(given, Mapping) or hasattr(given, "items"):
        return {str(key): _plain(value) for key, value in given.items()}
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        return given
    return [_plain(value) for value in given]


@lru_cache(maxsize=16)
def _spec(preset: str) -> RewardSpec:
    try:
        return presets.spec(preset)
    except InvalidRequestError as error:
        raise SettingsError(f"kerneldyno.reward: {error}") from error


def _spec_of(given: Mapping[str, Any]) -> RewardSpec:
    try:
        return presets.effective(json_format.ParseDict(dict(given), RewardSpec()))
    except (json_format.ParseError, TypeError, ValueError) as error:
        raise SettingsError(f"kerneldyno.reward: {' '.join(str(error).split())}") from error
    except InvalidRequestError as error:
        raise SettingsError(f"kerneldyno.reward: {error}") from error
