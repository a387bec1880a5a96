"""Exceptions of the adapters for verl and TRL. Each ends the run or the sample; none becomes a reward.

KernelDynoError              base of all errors of KernelDyno (kerneldyno.rpc.errors)
└── AdapterError             base of this family
    ├── SettingsError        the configuration of the run or a row of its data set cannot be used; also a ValueError
    └── SampleFailedError    a sample failed for a reason that is not the policy's; verl drops it
"""

from __future__ import annotations

import grpc

from kerneldyno.rpc.errors import KernelDynoError


class AdapterError(KernelDynoError):
    """A run or a sample failed. Base of all errors of the adapters."""


class SettingsError(AdapterError, ValueError):
    """The configuration of the run or a row of its data set cannot be used; the message says what to set instead."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "SETTINGS"


class SampleFailedError(AdapterError):
    """A sample failed for a reason that is not the policy's: no reward came, or the rollout engine gave no answer."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "SAMPLE_FAILED"
