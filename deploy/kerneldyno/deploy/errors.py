"""What a deployment raises."""

from __future__ import annotations

from kerneldyno.rpc.errors import KernelDynoError


class DeployError(KernelDynoError):
    """Services could not be started; the message says which, where and why."""
