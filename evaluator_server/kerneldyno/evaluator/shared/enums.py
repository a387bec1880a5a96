"""The contract's enums that an evaluation's spec holds, as Python enums with the same numbers.

Runners read specs, and must not load protobuf. `tests/evaluator/test_spec.py` compares every member with the contract,
whose comments say what each means (protos/kerneldyno/v1/evaluation.proto).
"""

from __future__ import annotations

from enum import IntEnum


class Precision(IntEnum):
    """A precision of arithmetic. Larger numbers are coarser."""

    UNSPECIFIED = 0
    FP64 = 1
    FP32 = 2
    TF32 = 3
    FP16 = 4
    BF16 = 5
    FP8 = 6


class ModuleMode(IntEnum):
    """The mode in which modules are called."""

    UNSPECIFIED = 0
    TRAIN = 1
    EVAL = 2
    BOTH = 3


class ReferenceBackend(IntEnum):
    """How a reference is executed for timing."""

    UNSPECIFIED = 0
    EAGER = 1
    TORCH_COMPILE = 2
    TORCH_COMPILE_REDUCE_OVERHEAD = 3
    TORCH_COMPILE_MAX_AUTOTUNE = 4


class Preset(IntEnum):
    """A rule of comparison (Tolerance.Preset)."""

    UNSPECIFIED = 0
    CALIBRATED = 1
    ALLCLOSE = 2
    LOOSE = 3
    MATCHED_SHARE = 4


class StressKind(IntEnum):
    """A kind of stress inputs."""

    UNSPECIFIED = 0
    SIGNS = 1
    LARGE = 2
    ROWS = 3
    SPARSE = 4
    SORTED = 5
    WAVE = 6
    PATCH = 7


class OutputReuse(IntEnum):
    """What happens if a later call overwrites an output."""

    UNSPECIFIED = 0
    LABEL = 1
    REJECT = 2


class ProvenancePolicy(IntEnum):
    """What is asked of the origin of a candidate's kernels."""

    UNSPECIFIED = 0
    LABEL = 1
    REJECT_DECOYS = 2
    REQUIRE_OWN_KERNELS = 3


class Sanitize(IntEnum):
    """Which right candidates run under compute-sanitizer."""

    UNSPECIFIED = 0
    NONE = 1
    WINNERS = 2
    ALL = 3


class MemoryErrors(IntEnum):
    """What a broken rule of memory means."""

    UNSPECIFIED = 0
    LABEL = 1
    REJECT = 2


class CodeListing(IntEnum):
    """Which code of kernels comes back."""

    UNSPECIFIED = 0
    NONE = 1
    PTX = 2
    SASS = 3
    ALL = 4
