"""Workloads and inline cases of a request: what is wrong with them, and their limits.

`validation` calls this. It reads JSON texts only to see whether they are JSON; the evaluator's toolkit reads what they say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from kerneldyno.v1 import evaluation_pb2 as pb

MAX_CASES = 100
#: Most workloads of a request, and the limits of one.
MAX_WORKLOADS = 100
MAX_WORKLOAD_NAME_CHARS = 100
MAX_WORKLOAD_BYTES = 4096


def workload_faults(request: pb.EvalRequest) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with `workloads`: the path of a field in EvalRequest, and a description."""
    if request.workloads and request.toolkit == "kernel_simple":
        yield "workloads", "must be empty with the kernel_simple toolkit, which has cases"
    if len(request.workloads) > MAX_WORKLOADS:
        yield "workloads", f"has {len(request.workloads)} workloads; at most {MAX_WORKLOADS} are allowed"
    for index, workload in enumerate(request.workloads[:MAX_WORKLOADS]):
        field = f"workloads[{index}]"
        yield from _name_faults(f"{field}.name", workload.name)
        if (size := len(workload.value_json.encode())) > MAX_WORKLOAD_BYTES:
            yield f"{field}.value_json", f"is {size} bytes long; at most {MAX_WORKLOAD_BYTES} are allowed"
            continue
        try:
            json.loads(workload.value_json)
        except (ValueError, RecursionError) as error:
            yield f"{field}.value_json", f"is not JSON: {error}"


def case_faults(request: pb.EvalRequest, toolkit: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with `cases` and `cases_code`: the path of a field in EvalRequest, and a description.

    Args:
        request: the request.
        toolkit: the toolkit that it names, or the default.
    """
    if toolkit == "kernel_simple" and not request.cases and not request.cases_code.strip():
        yield "cases", "missing; the kernel_simple toolkit needs cases or cases_code"
    if toolkit == "kernelbench":
        for field in ("cases_code", "cases"):
            if getattr(request, field):
                yield field, "must be empty with the kernelbench toolkit; use toolkit kernel_simple"
    elif request.cases and request.cases_code:
        yield "cases", "given twice; use either cases or cases_code"
    if len(request.cases) > MAX_CASES:
        yield "cases", f"has {len(request.cases)} cases; at most {MAX_CASES} are allowed"
    for index, case in enumerate(request.cases[:MAX_CASES]):
        yield from _name_faults(f"cases[{index}].name", case.name)
        for name in ("inputs_json", "expected_json"):
            field = f"cases[{index}].{name}"
            try:
                value = json.loads(getattr(case, name))
            except (ValueError, RecursionError) as error:
                yield field, f"is not JSON: {error}"
            else:
                if name == "inputs_json" and not isinstance(value, list):
                    yield field, "must be a JSON array of positional arguments"


def _name_faults(field: str, value: str) -> Iterator[tuple[str, str]]:
    if len(value) > MAX_WORKLOAD_NAME_CHARS or not value.isprintable():
        shown = repr(value if len(value) <= 60 else value[:57] + "...")
        yield field, f"{shown} is no name; give at most {MAX_WORKLOAD_NAME_CHARS} printable characters"
