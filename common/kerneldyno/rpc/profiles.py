"""What a request asks to be shown of a candidate's kernels: profiles, reports of compute-sanitizer, and listings.

This file says what these fields mean together, and what is wrong with them. `validation` calls it, and so does all code
that asks whether a candidate will be profiled: `profile_level` and `enable_profiling` are two fields for one choice, so
other code does not read one of them alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from kerneldyno.v1 import evaluation_pb2 as pb

_PROFILED = (pb.PROFILE_LEVEL_KERNELS, pb.PROFILE_LEVEL_COUNTERS)
_SANITIZED = (pb.SANITIZE_WINNERS, pb.SANITIZE_ALL)


def asks_for_profile(request: pb.EvalRequest) -> bool:
    """Return whether a request asks for a profile of the kernels: by `profile_level`, or else by `enable_profiling`."""
    if request.profile_level == pb.PROFILE_LEVEL_UNSPECIFIED:
        return request.enable_profiling
    return request.profile_level in _PROFILED


def decides_about_profile(request: pb.EvalRequest) -> bool:
    """Return whether one of the two fields is set, so that the request asks for a profile or declines one."""
    return request.HasField("enable_profiling") or request.profile_level != pb.PROFILE_LEVEL_UNSPECIFIED


def require_profile(request: pb.EvalRequest) -> None:
    """Make `request` ask for a profile, also if it declines one. A level that includes a profile is kept."""
    if not asks_for_profile(request):
        request.ClearField("profile_level")
        request.enable_profiling = True


def clear_profile(request: pb.EvalRequest) -> None:
    """Make `request` say nothing about a profile."""
    request.ClearField("profile_level")
    request.ClearField("enable_profiling")


def needs_gpu(request: pb.EvalRequest) -> bool:
    """Return whether a request asks for what only GPUs have: hardware counters, or compute-sanitizer."""
    return request.profile_level == pb.PROFILE_LEVEL_COUNTERS or request.sanitize in _SANITIZED


def profile_faults(request: pb.EvalRequest, profiling: bool) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with these fields: the path of a field in EvalRequest, and a description.

    Args:
        request: the request. Values of enums that do not exist are not reported here.
        profiling: whether any device can profile, which GPUs can.
    """
    level, own = request.profile_level, request.provenance_policy == pb.PROVENANCE_POLICY_REQUIRE_OWN_KERNELS
    if own and not profiling:
        yield "provenance_policy", "REQUIRE_OWN_KERNELS needs profiling, and no device here can profile"
    if own and level == pb.PROFILE_LEVEL_NONE:
        text = "REQUIRE_OWN_KERNELS needs a profile, but profile_level is PROFILE_LEVEL_NONE; leave profile_level out"
        yield "provenance_policy", text
    if own and level not in _PROFILED and request.HasField("enable_profiling") and not request.enable_profiling:
        text = "REQUIRE_OWN_KERNELS needs a profile, but enable_profiling is false; leave enable_profiling out"
        yield "provenance_policy", text
    if level == pb.PROFILE_LEVEL_NONE and request.enable_profiling:
        yield "profile_level", "is PROFILE_LEVEL_NONE, but enable_profiling is true; leave one of the two fields out"
    if level in _PROFILED and request.HasField("enable_profiling") and not request.enable_profiling:
        name = pb.ProfileLevel.Name(level)
        yield "profile_level", f"is {name}, but enable_profiling is false; leave one of the two fields out"
    if asks_for_profile(request) and not profiling:
        by_level = level in _PROFILED
        field, none = ("profile_level", "PROFILE_LEVEL_NONE") if by_level else ("enable_profiling", "false")
        yield field, f"no device here can profile (that takes a GPU); leave the field out or set it to {none}"
    elif level == pb.PROFILE_LEVEL_COUNTERS and request.device.kind == "cpu":
        yield "profile_level", "only GPUs have counters, but device.kind is cpu; leave one of the two fields out"
    if request.sanitize in _SANITIZED:
        yield from _sanitize_faults(request, profiling)


def normalize_profiles(request: pb.EvalRequest) -> None:
    """Fill in the defaults of these fields; `provenance_policy` must have its own already.

    `enable_profiling` always says whether there is a profile. The other fields are newer than the form of identities
    (kerneldyno.rpc.identity), so they are cleared if they have the value that their absence means.
    """
    if decides_about_profile(request):
        request.enable_profiling = asks_for_profile(request)
    else:
        request.enable_profiling = request.provenance_policy == pb.PROVENANCE_POLICY_REQUIRE_OWN_KERNELS
    if request.profile_level in (pb.PROFILE_LEVEL_NONE, pb.PROFILE_LEVEL_KERNELS):
        request.ClearField("profile_level")
    if request.sanitize == pb.SANITIZE_NONE:
        request.ClearField("sanitize")
    if request.memory_errors == pb.MEMORY_ERRORS_REJECT:
        request.ClearField("memory_errors")
    if request.code_listing == pb.CODE_LISTING_NONE:
        request.ClearField("code_listing")


def _sanitize_faults(request: pb.EvalRequest, profiling: bool) -> Iterator[tuple[str, str]]:
    if not profiling:
        text = "no device here is a GPU, which compute-sanitizer needs"
        yield "sanitize", f"{text}; leave the field out or set it to SANITIZE_NONE"
    elif request.device.kind == "cpu":
        yield "sanitize", "compute-sanitizer needs a GPU, but device.kind is cpu; leave one of the two fields out"
    untimed = request.HasField("run_performance") and not request.run_performance
    if request.sanitize == pb.SANITIZE_WINNERS and untimed:
        text = "SANITIZE_WINNERS needs times, but run_performance is false"
        yield "sanitize", f"{text}; use SANITIZE_ALL, or leave run_performance out"
