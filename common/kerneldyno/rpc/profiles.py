"""What a request says about profiles."""

from __future__ import annotations

from kerneldyno.v1 import evaluation_pb2 as pb


def asks_for_profile(request: pb.EvalRequest) -> bool:
    """Return whether a request asks for a profile of the kernels: by `profile_level`, or else by `enable_profiling`."""
    if request.profile_level == pb.PROFILE_LEVEL_UNSPECIFIED:
        return request.enable_profiling
    return request.profile_level >= pb.PROFILE_LEVEL_KERNELS
