"""Exceptions of deployments.

KernelDynoError      base of all errors of KernelDyno (kerneldyno.rpc.errors)
└── DeployError      base of this family, and its only class so far
"""

from __future__ import annotations

from kerneldyno.rpc.errors import KernelDynoError


class DeployError(KernelDynoError):
    """A service could not be started; the message says which one, where and why."""
