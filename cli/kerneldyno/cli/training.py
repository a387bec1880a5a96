"""Shared by `rollout`, `trajectories` and `gateway`: extras that may be missing, rewards, and fields of requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf import json_format

from kerneldyno.cli.common import UsageError
from kerneldyno.rewards import presets
from kerneldyno.rpc import installing
from kerneldyno.rpc.errors import InvalidRequestError
from kerneldyno.rpc.input_files import read_text
from kerneldyno.v1.reward_service_pb2 import RewardSpec

Reward = Annotated[
    str,
    typer.Option(
        "--reward",
        metavar="PRESET|JSON|FILE.json",
        help=f'A preset ({", ".join(presets.PRESETS)}) or a RewardSpec, for example \'{{"preset": "kevin", ...}}\'.',
    ),
]
RequestFields = Annotated[
    str | None,
    typer.Option(
        "--request",
        metavar="JSON|FILE.json",
        help='Fields of every evaluation request, for example \'{"backend": "cuda", "num_perf_trials": 20}\'.',
    ),
]


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Turn the failed import of something that `extra` installs into an error that names the install command."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kerneldyno."):
            raise
        raise UsageError(f"this command needs {error.name}: {installing.command(extra)}") from error


def reward_of(text: str) -> RewardSpec:
    """Return the complete spec that --reward names."""
    try:
        if text.lstrip().startswith("{") or text.endswith(".json"):
            return presets.spec(json_format.ParseDict(_object(text, "--reward"), RewardSpec()))
        return presets.spec(text)
    except (json_format.ParseError, InvalidRequestError) as error:
        raise UsageError(f"--reward: {error}") from error


def request_fields(text: str | None) -> dict[str, Any]:
    """Return the fields that --request gives; they are checked when a request is made."""
    return json_option(text, "--request")


def json_option(text: str | None, option: str) -> dict[str, Any]:
    """Return the JSON object that an option gives, in place or in a file; an empty one if it was not given."""
    return {} if text is None else _object(text, option)


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        data = json.loads(read_text(Path(text)) if text.endswith(".json") else text)
    except OSError as error:
        raise UsageError(f"{option} {text}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{option}: must be a JSON object")
    return data
