"""Results of every outcome as a scheduler sends them: shortened proto-JSON that evaluators wrote."""

from __future__ import annotations

from typing import Any

from kerneldyno.rpc.jsonio import result_from_json
from kerneldyno.v1.evaluation_pb2 import EvalResult

TRITON_ERROR = (
    "at 6:44:\n"
    "    mask = offs < n\n"
    "    y = tl.load(x_ptr + offs, mask=mask, other=missing)\n"
    "                                            ^\n"
    "NameError('missing is not defined')"
)
TRACEBACK = (
    "Traceback (own lines only):\n"
    '  File "candidate.py", line 31, in forward\n'
    "    scaled_relu[grid](x, out, n, BLOCK=BLOCK)\n"
    f"CompilationError: {TRITON_ERROR}\n"
    "caused by:\n"
    "Traceback (own lines only):\n"
    "  (in code_generator.py, visit_Name)\n"
    "NameError: missing is not defined"
)
_REPORT = {"passed_trials": 5, "total_trials": 5, "max_abs_error": 1e-6, "max_error_ratio": 0.2, "stress_trials": 2}
_TIMES = {"mean_seconds": 4.2e-5, "min_seconds": 4e-5, "max_seconds": 6e-5, "p10_seconds": 4e-5, "p90_seconds": 5e-5}
_KERNELS = [
    {"name": "fused_row_kernel", "owner": "OWNER_CANDIDATE", "launches": 5, "device_seconds": 8e-5},
    {"name": "ampere_sgemm_128x64_tn", "owner": "OWNER_LIBRARY", "launches": 5, "device_seconds": 1e-4},
    {"name": "Memcpy DtoD", "owner": "OWNER_MEMORY", "launches": 10, "device_seconds": 2e-5},
]

#: The roofline of a timed result, from a node that measures it.
ROOFLINE = {
    "bytes": "70500000",
    "bytes_per_second": 4.1e12,
    "least_seconds": 1.72e-5,
    "share": 0.43,
    "bound": "BOUND_MEMORY",
}

#: One result of each outcome, without the fields that all results have.
RESULTS: dict[str, dict[str, Any]] = {
    "CORRECT": {
        "compiled": True,
        "correct": True,
        "speedup": 1.5,
        "speedup_interval": {"low": 1.4, "high": 1.6},
        "candidate_timing": {"median_seconds": 4e-5, "samples": 100, "clock": "CLOCK_DEVICE_EVENTS", **_TIMES},
        "reference_timing": {"median_seconds": 6e-5, "samples": 100, "clock": "CLOCK_DEVICE_EVENTS", **_TIMES},
        "coverage": 0.4,
        "profile": {
            "kernels": sorted(_KERNELS, key=lambda kernel: -float(str(kernel["device_seconds"]))),
            "device_time_coverage": 0.4,
            "launch_coverage": 0.25,
            "kernelgym_coverage": 0.1,
            "device_seconds": 4e-5,
            "calls": 5,
        },
        "correctness": _REPORT,
        "message": "all outputs of 5 trials are right",
        "findings": [
            {
                "id": "B01",
                "severity": "SEVERITY_INFO",
                "evidence": "40% of the device time is in the candidate's own kernels, 50% in libraries",
            }
        ],
    },
    "INCORRECT": {
        "compiled": True,
        "correct": False,
        "message": "12 of 4096 elements of output are out of tolerance (trial 0)",
        "incorrect": {
            "output": "output",
            "kind": "values",
            "detail": "12 of 4096 elements of output are out of tolerance",
            "mismatched_elements": "12",
            "total_elements": "4096",
            "max_abs_error": 0.5,
            "max_error_ratio": 4000.0,
            "worst_index": ["31", "127"],
            "trial": 0,
        },
    },
    "COMPILE_ERROR": {
        "compiled": False,
        "correct": False,
        "message": "CompilationError: at 6:44:",
        "compile_error": {
            "stage": "compile",
            "type": "CompilationError",
            "message": TRITON_ERROR,
            "traceback": TRACEBACK,
        },
    },
    "RUNTIME_ERROR": {
        "compiled": True,
        "correct": False,
        "message": "RuntimeError: shape '[2]' is invalid for input of size 3",
        "runtime_error": {
            "kind": "exception",
            "stage": "correctness",
            "exception": {
                "stage": "correctness",
                "type": "RuntimeError",
                "message": "shape '[2]' is invalid for input of size 3",
                "traceback": "Traceback (own lines only):\n"
                '  File "candidate.py", line 20, in forward\n'
                "    return x.view(2)\n"
                "RuntimeError: shape '[2]' is invalid for input of size 3",
            },
        },
    },
    "TIMEOUT": {
        "compiled": True,
        "correct": False,
        "message": "correctness took longer than 60 s",
        "timeout": {"stage": "correctness", "limit_seconds": 60.0},
    },
    "OUT_OF_MEMORY": {
        "compiled": True,
        "correct": False,
        "message": "device memory ran out: OutOfMemoryError: tried to allocate 80.00 GiB",
        "out_of_memory": {
            "memory": "device",
            "stage": "correctness",
            "detail": "OutOfMemoryError: tried to allocate 80.00 GiB",
        },
    },
    "REJECTED": {
        "compiled": True,
        "correct": False,
        "message": "no triton kernel was launched in 5 calls; the outputs come from elsewhere",
        "findings": [
            {"id": "S29", "severity": "SEVERITY_INFO", "evidence": "a label"},
            {
                "id": "S19",
                "severity": "SEVERITY_REJECT",
                "evidence": "no triton kernel was launched in 5 calls; the outputs come from elsewhere",
            },
        ],
        "rejected": {"finding_ids": ["S19"]},
    },
    "INVALID": {
        "compiled": False,
        "correct": False,
        "message": "kernel_code: missing; give the Python source of the candidate",
        "invalid": {
            "violations": [
                {"field": "kernel_code", "description": "missing; give the Python source of the candidate"},
            ]
        },
    },
    "REFERENCE_ERROR": {
        "compiled": False,
        "correct": False,
        "message": "the reference failed: ZeroDivisionError: division by zero",
        "reference_error": {"stage": "reference", "type": "ZeroDivisionError", "message": "division by zero"},
    },
    "PROBLEM_TOO_LARGE": {
        "compiled": False,
        "correct": False,
        "message": "the reference needs at least 90.0 GiB, and the device has 77.5",
        "problem_too_large": {
            "memory": "device",
            "stage": "reference",
            "needed_bytes": "96636764160",
            "device_bytes": "83214991360",
            "detail": "the reference alone needs more",
        },
    },
    "INFRASTRUCTURE_ERROR": {
        "compiled": False,
        "correct": False,
        "message": "NODE_LOST: the node went away",
        "infrastructure_error": {"cause": "NODE_LOST", "detail": "the node went away", "retryable": True},
    },
}


def result(outcome: str, **changes: Any) -> EvalResult:
    """Return a finished result of `outcome`; `changes` replace fields, and None leaves one out."""
    fields = {"id": "p7/0/1", "outcome": outcome, "speedup": 0.0, **RESULTS[outcome], **changes}
    return result_from_json({name: value for name, value in fields.items() if value is not None})


def both_times(
    speedup: float = 1.5,
    end_to_end: float = 3.0,
    *,
    regime: str = "REGIME_QUEUED_AHEAD",
    queued_seconds: float = 0.0,
    **changes: Any,
) -> EvalResult:
    """Return a CORRECT result with both speedups: device times 40 us against 60, end to end 60 us against 180."""
    fields = RESULTS["CORRECT"]
    labels = {"regime": regime, "launch_mode": "LAUNCH_MODE_EAGER"}
    each = {"samples": 50, "clock": "CLOCK_EACH_CALL", **labels}
    return result(
        "CORRECT",
        **{
            "speedup": speedup,
            "speedup_interval": {"low": speedup - 0.1, "high": speedup + 0.1},
            "candidate_timing": {**fields["candidate_timing"], **labels},
            "reference_timing": {**fields["reference_timing"], **labels, "queued_seconds": queued_seconds},
            "end_to_end_speedup": end_to_end,
            "end_to_end_speedup_interval": {"low": end_to_end - 0.1, "high": end_to_end + 0.1},
            "candidate_end_to_end": {**_TIMES, "median_seconds": 6e-5, **each},
            "reference_end_to_end": {**_TIMES, "median_seconds": 1.8e-4, **each},
            "timing_effort": {"lease_seconds": 0.4, "rounds": 8, "candidate_calls": 240, "reference_calls": 220},
            "speedup_kind": "SPEEDUP_KIND_DEVICE",
            **changes,
        },
    )
