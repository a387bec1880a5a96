"""What the plugin refuses, and what it gives up on. All end the step or the sample; none is ever a reward.

KernelDynoError          (kerneldyno.rpc.errors)
├── SettingsError        the run is set up in a way that cannot work; also a ValueError
└── SampleFailedError    a sample has no reward for which the policy is to blame; verl drops it
"""

from __future__ import annotations

import grpc
from kerneldyno.rpc.errors import KernelDynoError


class SettingsError(KernelDynoError, ValueError):
    """The run is set up in a way that cannot work; the message says what to set instead."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "SETTINGS"


class SampleFailedError(KernelDynoError):
    """A sample failed for no fault of the policy: no reward came, or the rollout engine gave no answer."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "SAMPLE_FAILED"
