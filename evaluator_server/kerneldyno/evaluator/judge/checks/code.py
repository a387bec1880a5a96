"""What compilers made of a right candidate's kernels: registers, spills, shared memory, and on request PTX and SASS.

All of it comes from the candidate's process. It is advice, and no verdict depends on it.
"""

from __future__ import annotations

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared.enums import CodeListing
from ..results import verdict
from ..results.record import Finished
from ..runners.answers import Code, read_code
from ..runners.handle import RunnerGone
from .candidate import Candidate

_MOST_NAME = 200
#: Longest PTX or SASS, in characters.
_MOST_LISTING = 64 << 10


async def listing(candidate: Candidate) -> list[pb.KernelCode]:
    """Return what is known about the candidate's kernels. If it cannot be found out, the list is empty."""
    wanted = candidate.spec.inspection.code_listing
    if candidate.overdue:  # its next answer would be the one to an earlier order
        return []
    try:
        answer = await candidate.listing(
            ptx=wanted in (CodeListing.PTX, CodeListing.ALL),
            sass=wanted in (CodeListing.SASS, CodeListing.ALL),
        )
    except (Finished, RunnerGone):
        return []
    codes, failed = read_code(answer)
    if failed:
        candidate.record.find("D22", pb.Finding.SEVERITY_INFO, f"the code of kernels is not complete: {failed}")
    return [_kernel(code) for code in codes]


def _kernel(code: Code) -> pb.KernelCode:
    return pb.KernelCode(
        name=verdict.clean(code.name, _MOST_NAME),
        origin=verdict.clean(code.origin, _MOST_NAME),
        registers=code.registers,
        spill_bytes=code.spill_bytes,
        stack_bytes=code.stack_bytes,
        shared_memory_bytes=code.shared_memory_bytes,
        warps=code.warps,
        ptx=verdict.clean(code.ptx, _MOST_LISTING),
        sass=verdict.clean(code.sass, _MOST_LISTING),
        truncated=code.truncated,
    )
