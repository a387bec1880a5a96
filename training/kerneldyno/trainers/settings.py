"""Settings of a run.

In verl they are the block `kerneldyno` at the root of the configuration, which the agent loop and the reward manager read:

    python -m verl.trainer.main_ppo ... +kerneldyno.address=scheduler:50051 +kerneldyno.turns=3 +kerneldyno.reward=drkernel

Reward functions take the same names as keywords. Settings that are not given have the defaults below, and an unknown name
is an error. Credentials come from the environment (KERNELDYNO_TLS_CA, _TOKEN_FILE and so on, see docs/security.md), because
a configuration is written to logs.
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
from kerneldyno.rpc.jsonio import declines_profile
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.training import scaling
from kerneldyno.training.errors import TrainingError
from kerneldyno.v1.reward_service_pb2 import RewardSpec

if TYPE_CHECKING:
    from kerneldyno.training.coverage import CoverageRule

ADDRESS_VARIABLE = "KERNELDYNO_ADDRESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the adapters."""

    address: str = field(default_factory=lambda: os.environ.get(ADDRESS_VARIABLE, DEFAULT_ADDRESS))
    """host:port of the scheduler, as the workers reach it; with several machines not 127.0.0.1."""
    reward: str | Mapping[str, Any] = "drkernel"
    """Name of a preset, or the fields of a RewardSpec: {"preset": "drkernel", "speedup_clip": 5}."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Fields of EvalRequest, used where a problem does not set them: {"backend": "triton", "num_perf_trials": 100}."""
    turns: int = 3
    """Largest number of turns of an episode (agent loop)."""
    turn_tokens: int = 0
    """Longest response of one turn, in tokens; 0 means all tokens left in the episode."""
    min_turn_tokens: int = 256
    """An episode ends if fewer tokens than this are left for its next turn, since a kernel would be cut off."""
    turn_seconds: float = 1800.0
    """Longest wait for a turn's reward, in seconds, queueing and retries included. Then the sample fails."""
    reconnect_seconds: float = 600.0
    """How long the scheduler may be unreachable before waiting samples fail, in seconds."""
    retries: int = 2
    """How often to send a turn again after an infrastructure failure."""
    prs: Mapping[str, Any] | None = None
    """Rejection by coverage (PRS), drawn in the agent loop: {} for the released constants, or fields of CoverageRule."""
    void_turns: bool = False
    """Whether to leave out turns that regress (no reward after a turn with one), as KernelGYM does by default."""
    strategy: str = "all"
    """Which earlier turns a prompt shows (agent loop): all, last, top or window, see kerneldyno.training.scaling. With any
    but all, only the last turn is trained on."""
    window: int = scaling.WINDOW
    """Largest number of turns that a prompt shows."""
    rank_by: str = "reward"
    """How top and window rank turns: reward, speedup or coverage (which makes every turn be profiled)."""
    trajectories: str = ""
    """Folder in which every process writes a file of all turns; empty: no file."""

    def reward_spec(self) -> RewardSpec:
        """Return the reward spec with every field set."""
        return _spec(self.reward) if isinstance(self.reward, str) else _spec_of(self.reward)

    def coverage_rule(self) -> CoverageRule | None:
        """Return the rule that rejects turns; None if no turns are rejected."""
        from kerneldyno.trainers import rejection  # needs torch, which is not needed for rewards alone

        return None if self.prs is None else rejection.rule_of(self.prs)


NAMES = frozenset(one.name for one in fields(Settings))


def load(given: Mapping[str, Any] | None) -> Settings:
    """Read and check settings.

    Args:
        given: settings by name, for example the block of verl's configuration; None for the defaults.

    Raises:
        SettingsError: a name is unknown, or a value cannot be used; the message says what to write instead.
    """
    given = _plain(given or {})
    for name in given:
        if name not in NAMES:
            close = difflib.get_close_matches(str(name), NAMES, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(sorted(NAMES))}"
            raise SettingsError(f"kerneldyno.{name} is unknown; {hint}")
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
    if settings.rank_by == "coverage" and declines_profile(settings.request):
        text = "remove enable_profiling=false and profile_level=none from kerneldyno.request"
        raise SettingsError(f"kerneldyno.rank_by=coverage needs profiles; {text}")
    settings.reward_spec()
    settings.coverage_rule()
    return settings


def _converted(name: str, value: Any) -> Any:
    """Convert a value to the type of the setting: command lines and environment variables give text."""
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
    """Convert containers, which may be OmegaConf's, to plain dicts and lists."""
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
