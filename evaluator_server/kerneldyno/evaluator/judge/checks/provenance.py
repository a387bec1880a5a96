"""Provenance: check whether the candidate's own kernels did the work, by disabling them, and by looking at what ran.

The ghost replay calls the candidate once more on fresh inputs while launches of its own kernels do nothing. If the
output is still right, its kernels did not make it (S20). The profile says which kernels ran and whose they are; without
a profile, a survey says which operators of torch and which libraries were called. All of this happens inside the
candidate's process. A candidate that takes its harness over can falsify it, but only changes a label: its outputs and
its time are judged elsewhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ...backends import backends
from ...shared import small_floats, tree
from ...shared.enums import ProvenancePolicy
from ..problems import trial
from ..problems.cache import BuiltProblem, Problems
from ..problems.stress import Stress
from ..results import verdict
from ..results.record import Finished
from ..runners.answers import Profile, read_profile, read_survey
from ..runners.handle import RunnerGone
from .candidate import Candidate

_PROFILED_CALLS = 5
_MOST_ROWS = 50
#: A profile without any kernel says nothing (CUPTI loses buffers, or another tool holds it). Number of attempts.
_PROFILES = 3
#: Most names in one finding.
_MOST_NAMED = 6
#: Mutants that need no kernels. If one of them passes, a right output does not show that any kernel ran.
_IDLE_MUTANTS = {
    "zeros",
    "ones",
    "a copy of the input",
    "another draw's mean",
    "another draw's mean row",
    "another draw's answer",
}
_CANDIDATE, _TORCH, _LIBRARY, _MEMORY = _OWNERS = (
    pb.KernelUse.OWNER_CANDIDATE,
    pb.KernelUse.OWNER_TORCH,
    pb.KernelUse.OWNER_LIBRARY,
    pb.KernelUse.OWNER_MEMORY,
)
#: If a candidate's own kernels have less than this share of device time, it is called a wrapper of other kernels (B01).
_WRAPPER = 0.5
_MEMORY_NAME = re.compile(r"^(memcpy|memset)", re.IGNORECASE)
_TORCH_NAME = re.compile(
    r"\bat::|\bat_cuda_detail|c10::|^void at_|triton_(poi|red|per|tem)_fused|_scatter_gather|elementwise_kernel"
)
#: A kernel of ATen by its full name, however the candidate names its own kernels.
_ATEN = re.compile(r"^(void\s+)?(at|c10)::")
#: Errors this many times the tolerance are no accident.
_CLEARLY = 10.0
#: Policies that reject decoys, the less strict one first.
_REJECT_DECOYS = (ProvenancePolicy.REJECT_DECOYS, ProvenancePolicy.REQUIRE_OWN_KERNELS)


def check_launches(candidate: Candidate) -> None:
    """Report a decoy (S19): the backend needs kernels, and the candidate launched none in any call."""
    record, backend = candidate.record, candidate.spec.candidate.backend
    if backends()[backend].must_launch and record.launches == 0:
        evidence = f"no {backend} kernel was launched in {record.trials} calls; the outputs come from elsewhere"
        _judge(candidate, "S19", evidence)


async def replay_as_ghost(candidate: Candidate, built: BuiltProblem, problems: Problems) -> None:
    """Disable the candidate's kernels and check whether anything changes.

    Memory that the kernels would have written may still hold the answer to an earlier call, and a copy of the input may
    be right on nominal inputs. So every kind of stress must come out right, and for at least one of them the answer to
    nominal inputs must be clearly wrong.
    """
    examined = built.examination
    if not candidate.record.launches or not examined.varies or _IDLE_MUTANTS.intersection(examined.pass_all):
        return  # nothing to disable, or an earlier answer would be right again
    kinds: Sequence[Stress | None] = examined.held or (None, None)
    nominal, prepared = await _prepare_two(candidate, built, kinds[0], problems)
    telling = False
    for kind in kinds:
        current = prepared or await _prepare(candidate, built, kind, problems)
        prepared = None
        if not telling:
            telling = await candidate.execute(functools.partial(_differs, candidate, current, nominal))
        try:
            called = await candidate.call(current, ghost=True)
        except (Finished, RunnerGone):
            return  # without its kernels it does not even run
        given = candidate.spec, called.structure, called.specs, candidate.station.outputs[0]
        comparison = await candidate.execute(functools.partial(trial.judge, current, *given))
        if comparison.mismatch is not None or called.launches is None:
            return
        left_out = called.launches
    if telling:
        evidence = (
            f"{left_out} launches of its kernels were left out" if left_out else "it no longer launches its kernels"
        )
        _judge(candidate, "S20", f"{evidence}, and the output was still right")


async def _prepare_two(
    candidate: Candidate, built: BuiltProblem, kind: Stress | None, problems: Problems
) -> tuple[trial.Trial, trial.Trial | None]:
    """Return a nominal trial, and one of this kind if both can be prepared side by side."""
    if built.at_once(candidate.device) > 1:
        wanted = [(0, None), (0, kind)]
        found = await problems.execute(lambda: built.prepare_together(candidate.spec, candidate.device, wanted))
        nominal, other = (each if isinstance(each, trial.Trial) else None for each in found)
        if nominal is not None:
            return nominal, other
    return await _prepare(candidate, built, None, problems), None


async def _prepare(candidate: Candidate, built: BuiltProblem, kind: Stress | None, problems: Problems) -> trial.Trial:
    return await problems.execute(
        lambda: built.prepare(candidate.spec, candidate.device, 0, kind, candidate.stage_inputs)
    )


def _differs(candidate: Candidate, current: trial.Trial, nominal: trial.Trial) -> bool:
    """Return True if the answer to nominal inputs is clearly wrong for the current ones."""
    slot = torch.zeros_like(candidate.station.outputs[0])
    leaves = nominal.expected.leaves
    for view, leaf in zip(tree.views(slot, [leaf.spec for leaf in leaves]), leaves, strict=True):
        small_floats.raw(view).copy_(small_floats.raw(leaf.value))
    return trial.judge_bytes(current, candidate.spec, slot).max_error_ratio > _CLEARLY


async def profile(candidate: Candidate, last: trial.Trial) -> pb.KernelProfile | None:
    """Profile a few calls. Return which kernels ran, or None if no profile can be made."""
    for _ in range(_PROFILES):
        profiled = read_profile(await candidate.profile(last, _PROFILED_CALLS))
        uses = [(row, owner(row.name, profiled.own)) for row in profiled.rows]
        total = sum(row.device_seconds for row, _ in uses)
        if total > 0:
            break
    else:
        why = f" ({profiled.failed})" if profiled.failed else ""
        evidence = f"{_PROFILES} profiles showed no kernel{why}: the coverage is unknown, not 0"
        if candidate.spec.checks.provenance_policy == ProvenancePolicy.REQUIRE_OWN_KERNELS:
            raise candidate.record.reject(
                "B01", f"the judge could not see that its own kernels did the work: {evidence}"
            )
        candidate.record.find("D21", pb.Finding.SEVERITY_INFO, evidence)
        return None
    launches = sum(row.launches for row, _ in uses)
    shares = {name: sum(row.device_seconds for row, whose in uses if whose == name) / total for name in _OWNERS}
    coverage = shares[_CANDIDATE]
    _label(candidate, {whose for _, whose in uses}, len(uses), shares)
    kernels = [
        pb.KernelUse(
            name=verdict.clean(row.name, 200),
            owner=whose,
            launches=row.launches,
            device_seconds=row.device_seconds,
        )
        for row, whose in sorted(uses, key=lambda use: -use[0].device_seconds)[:_MOST_ROWS]
    ]
    return pb.KernelProfile(
        kernels=kernels,
        device_time_coverage=coverage,
        launch_coverage=sum(row.launches for row, whose in uses if whose == _CANDIDATE) / launches,
        kernelgym_coverage=kernelgym_coverage(profiled),
        device_seconds=total / _PROFILED_CALLS,
        calls=_PROFILED_CALLS,
        torch_share=shares[_TORCH],
        library_share=shares[_LIBRARY],
        memory_share=shares[_MEMORY],
    )


def kernelgym_coverage(profiled: Profile) -> float:
    """Return the time coverage as KernelGYM's release computes it, from 0 to 1.

    It covers all rows of the profiler's averages that have device time: operators, with the device time of the kernels
    that they launched, and these kernels themselves. The coverage is the device time of the rows with a name of the
    candidate's kernels, divided by the device and host time of all rows. Names match, in small letters, if one contains
    the other.

    Source: KernelGYM, kernelgym/toolkit/kernelbench/profiling.py. Its self-test, which adds rows of its own, is left
    out.
    """
    everything = sum(row.device_seconds + row.host_seconds for row in profiled.averages)
    own = [name.lower() for name in profiled.own]
    matched = [row for row in profiled.averages if any(_alike(row.name.lower(), name) for name in own)]
    return sum(row.device_seconds for row in matched) / everything if everything else 0.0


def _alike(one: str, other: str) -> bool:
    return one in other or other in one


async def survey(candidate: Candidate, last: trial.Trial) -> None:
    """Label, without a profile, what besides the candidate's own kernels did work in a call (B11).

    This is the last order to a candidate, which was right; if it fails, there is no label.
    """
    try:
        said = read_survey(await candidate.survey(last))
    except (Finished, RunnerGone):
        return
    parts = []
    if said.operators:
        parts.append(f"torch's own operators did work in a call: {', '.join(said.operators[:_MOST_NAMED])}")
    if said.libraries:
        parts.append(f"its native code calls {', '.join(said.libraries[:_MOST_NAMED])}")
    if parts:
        candidate.record.find("B11", pb.Finding.SEVERITY_INFO, "; ".join(parts))


def owner(name: str, own: Sequence[str]) -> pb.KernelUse.Owner.ValueType:
    """Return whose kernel a name is: by the exact names of the candidate's own, and by how others name theirs."""
    if _MEMORY_NAME.match(name):
        return _MEMORY
    if name in own and not _ATEN.match(name):
        return _CANDIDATE
    return _TORCH if _TORCH_NAME.search(name) else _LIBRARY


def _label(
    candidate: Candidate,
    owners: set[pb.KernelUse.Owner.ValueType],
    kernels: int,
    shares: Mapping[pb.KernelUse.Owner.ValueType, float],
) -> None:
    if _CANDIDATE not in owners and candidate.spec.candidate.backend != "torch":
        _judge(candidate, "S19", f"{kernels} different kernels ran, none of them the candidate's")
    own = shares[_CANDIDATE]
    if own < _WRAPPER:
        evidence = (
            f"{own:.0%} of the device time is in the candidate's own kernels, {shares[_LIBRARY]:.0%} in libraries,"
            f" {shares[_TORCH]:.0%} in PyTorch's, {shares[_MEMORY]:.0%} in copies and fills"
        )
        if candidate.spec.checks.provenance_policy == ProvenancePolicy.REQUIRE_OWN_KERNELS:
            raise candidate.record.reject("B01", evidence)
        candidate.record.find("B01", pb.Finding.SEVERITY_INFO, evidence)
        if _CANDIDATE in owners:
            candidate.record.find("S21", pb.Finding.SEVERITY_INFO, "its own kernels do the smaller part of the work")


def _judge(candidate: Candidate, identifier: str, evidence: str) -> None:
    if candidate.spec.checks.provenance_policy in _REJECT_DECOYS:
        raise candidate.record.reject(identifier, evidence)
    candidate.record.find(identifier, pb.Finding.SEVERITY_INFO, evidence)
