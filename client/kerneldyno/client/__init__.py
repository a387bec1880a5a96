"""Clients of KernelDyno: AsyncClient for asyncio, Client for plain programs.

Trainers and tools import from here. It needs neither torch nor a GPU: the services do the work.
"""

from __future__ import annotations

from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.client.blocking import Client
from kerneldyno.client.candidates import read_candidate
from kerneldyno.client.errors import (
    AddressError,
    AlreadyFinishedError,
    CallFailedError,
    CandidateFilesError,
    ClientClosedError,
    DeadlineExceededError,
    DuplicateIdError,
    EvaluationCancelledError,
    EvaluationNotFoundError,
    IdReusedError,
    InvalidRequestError,
    KernelDynoError,
    LocalServiceError,
    NodeNotFoundError,
    NodeStoppingError,
    NoMatchingDeviceError,
    NoRewardError,
    QuarantineNotFoundError,
    QueueFullError,
    ShuttingDownError,
    UnavailableError,
    WrongServiceError,
)
from kerneldyno.client.local import LocalServices
from kerneldyno.client.rewarding import RewardStream, turn
from kerneldyno.v1.evaluation_pb2 import (
    BuildFlags,
    CandidateFile,
    Case,
    DeviceSelector,
    EvalRequest,
    EvalResult,
    StageTimeouts,
    Tolerance,
)
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsResponse, Turn

__all__ = [
    "DEFAULT_ADDRESS",
    "AddressError",
    "AlreadyFinishedError",
    "AsyncClient",
    "BuildFlags",
    "CallFailedError",
    "CandidateFile",
    "CandidateFilesError",
    "Case",
    "Client",
    "ClientClosedError",
    "DeadlineExceededError",
    "DeviceSelector",
    "DuplicateIdError",
    "EvalRequest",
    "EvalResult",
    "EvaluationCancelledError",
    "EvaluationNotFoundError",
    "IdReusedError",
    "InvalidRequestError",
    "KernelDynoError",
    "LocalServiceError",
    "LocalServices",
    "NoMatchingDeviceError",
    "NoRewardError",
    "NodeNotFoundError",
    "NodeStoppingError",
    "QuarantineNotFoundError",
    "QueueFullError",
    "RewardSpec",
    "RewardStream",
    "ShuttingDownError",
    "StageTimeouts",
    "StreamRewardsResponse",
    "Tolerance",
    "Turn",
    "UnavailableError",
    "WrongServiceError",
    "read_candidate",
    "turn",
]
