"""EvalSpec: the request to a judge, as it is read from the message, its enums, and the keys of its parts."""

from __future__ import annotations

import dataclasses
import json
from enum import IntEnum
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from kerneldyno.evaluator.judge.request import UnreadableRequestError, read_request
from kerneldyno.evaluator.shared import enums
from kerneldyno.evaluator.shared.spec import EvalSpec, ProblemSpec, Rules, TimedForm, ToleranceRule
from kerneldyno.rpc.identity import NOT_THE_WORK
from kerneldyno.rpc.validation import effective
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

#: Our enums, and the contract's with the prefix of its names.
ENUMS: list[tuple[type[IntEnum], Any, str]] = [
    (enums.Precision, pb.Precision, "PRECISION_"),
    (enums.ModuleMode, pb.ModuleMode, "MODULE_MODE_"),
    (enums.ReferenceBackend, pb.ReferenceBackend, "REFERENCE_BACKEND_"),
    (enums.Preset, pb.Tolerance.Preset, "PRESET_"),
    (enums.StressKind, pb.StressKind, "STRESS_KIND_"),
    (enums.OutputReuse, pb.OutputReuse, "OUTPUT_REUSE_"),
    (enums.ProvenancePolicy, pb.ProvenancePolicy, "PROVENANCE_POLICY_"),
    (enums.Sanitize, pb.Sanitize, "SANITIZE_"),
    (enums.MemoryErrors, pb.MemoryErrors, "MEMORY_ERRORS_"),
    (enums.CodeListing, pb.CodeListing, "CODE_LISTING_"),
]
#: Fields with values of enums, of those that change the work.
WORK_ENUMS = [
    each.name
    for each in pb.EvalRequest.DESCRIPTOR.fields
    if each.enum_type is not None and each.name not in NOT_THE_WORK
]
#: One other value for each field of the parts that have a key.
OTHERS: dict[type, dict[str, Any]] = {
    ProblemSpec: {
        "toolkit": "kernel_simple",
        "reference_code": "another",
        "entry_point": "Other",
        "cases_code": "cases",
        "cases": (("a", "[1]", "1"),),
        "workloads": (("w", "1"),),
        "workload": 1,
        "precision": enums.Precision.BF16,
        "backward": True,
        "module_mode": enums.ModuleMode.TRAIN,
        "secret_constants": True,
    },
    TimedForm: {"backend": enums.ReferenceBackend.TORCH_COMPILE, "cuda_graph": True, "baseline_code": "library"},
    Rules: {
        "tolerance": ToleranceRule(enums.Preset.LOOSE),
        "allowed_precision": enums.Precision.FP16,
        "stress_inputs": False,
        "stress_kinds": (enums.StressKind.ROWS,),
    },
    ToleranceRule: {"preset": enums.Preset.LOOSE, "atol": 0.0, "rtol": 0.0, "share": 0.5},
}


def spec(**fields: Any) -> EvalSpec:
    return read_request(effective(pb.EvalRequest(kernel_code="k", reference_code="r", **fields)))


@pytest.mark.parametrize(("ours", "theirs", "prefix"), ENUMS)
def test_enums_are_the_contracts(ours: type[IntEnum], theirs: Any, prefix: str) -> None:
    assert {prefix + each.name: each.value for each in ours} == dict(theirs.items())


def test_all_enums_are_compared() -> None:
    defined = {each for each in vars(enums).values() if isinstance(each, type) and each.__module__ == enums.__name__}
    assert defined == {ours for ours, _, _ in ENUMS}


@pytest.mark.parametrize(
    "part", [ProblemSpec("kernelbench", "r", "Model"), TimedForm(), Rules(ToleranceRule(enums.Preset.CALIBRATED))]
)
def test_every_field_is_in_the_key(part: ProblemSpec | TimedForm | Rules) -> None:
    others = OTHERS[type(part)]
    assert set(others) == {each.name for each in dataclasses.fields(part)}, "give each field another value here"
    changed = [dataclasses.replace(part, **{name: other}) for name, other in others.items()]  # type: ignore[type-var]
    keys = {part.key(), *(each.key() for each in changed)}
    assert len(keys) == 1 + len(others)
    assert dataclasses.replace(part).key() == part.key()  # type: ignore[type-var]


def test_every_field_of_a_tolerance_is_in_the_key() -> None:
    rule = ToleranceRule(enums.Preset.CALIBRATED)
    others = OTHERS[ToleranceRule]
    assert set(others) == {each.name for each in dataclasses.fields(rule)}
    rules = [rule, *(dataclasses.replace(rule, **{name: other}) for name, other in others.items())]
    assert len({Rules(each).key() for each in rules}) == len(rules)


def test_keys_of_different_parts_differ() -> None:
    assert len({spec().problem.key(), spec().checks.rules.key(), spec().timing.form.key()}) == 3


def test_a_request_decides_each_key_by_its_own_fields() -> None:
    """What belongs to the candidate or to the search for its time changes no key, and each other field changes one."""
    plain = spec()
    mine: list[dict[str, Any]] = [
        {"candidate_device_memory_bytes": 1 << 30},
        {"num_correct_trials": 3},
        {"num_perf_trials": 7},
        {"sanitize": pb.SANITIZE_WINNERS},
        {"code_listing": pb.CODE_LISTING_SASS},
        {"library_baselines": [pb.LibraryBaseline(name="a", code="b")]},
    ]
    for fields in mine:
        asked = spec(**fields)
        assert asked != plain
        assert (asked.examined_key, asked.timed_key) == (plain.examined_key, plain.timed_key), fields
    compiled = spec(reference_backend=pb.REFERENCE_BACKEND_TORCH_COMPILE)
    assert compiled.examined_key == plain.examined_key, "the judge need not examine the problem again"
    assert compiled.timed_key != plain.timed_key
    coarser = spec(allowed_precision=pb.PRECISION_BF16)
    assert coarser.examined_key != plain.examined_key
    assert coarser.timed_key == plain.timed_key, "one runner of the reference serves both"
    posed = spec(precision=pb.PRECISION_BF16)
    assert posed.examined_key != plain.examined_key
    assert posed.timed_key != plain.timed_key


def test_problems_and_forms_go_through_plain_values() -> None:
    for part in (ProblemSpec("kernelbench", "r", "Model"), TimedForm()):
        for name, other in OTHERS[type(part)].items():
            changed = dataclasses.replace(part, **{name: other})  # type: ignore[type-var]
            again = type(part).from_plain(json.loads(json.dumps(changed.to_plain())))
            assert again == changed
            assert again.key() == changed.key()


def test_what_a_process_that_runs_a_problem_gets_has_nothing_of_the_candidate() -> None:
    request = pb.EvalRequest(kernel_code="mine 1", reference_code="r", backend="triton")
    request.kernel_files.add(path="mine2.cu", content="mine 3")
    request.build_flags.cuda.append("-Dmine")
    asked = read_request(effective(request))
    assert "mine" in json.dumps(dataclasses.asdict(asked.candidate))
    told = json.dumps([asked.problem.to_plain(), asked.timing.form.to_plain()])
    assert "mine" not in told
    assert "triton" not in told


def test_a_spec_has_what_the_request_says() -> None:
    tolerance = pb.Tolerance(preset=pb.Tolerance.PRESET_ALLCLOSE, atol=0.0)
    asked = spec(
        tolerance=tolerance,
        allowed_precision=pb.PRECISION_BF16,
        reference_backend=pb.REFERENCE_BACKEND_TORCH_COMPILE,
        launch_mode=pb.LAUNCH_MODE_CUDA_GRAPH,
        stress_kinds=[pb.STRESS_KIND_ROWS],
        run_performance=False,
        candidate_device_memory_bytes=64 << 20,
        timeouts=pb.StageTimeouts(load_timeout=Duration(seconds=2, nanos=700_000_000)),
    )
    rules, form = asked.checks.rules, asked.timing.form
    assert rules.tolerance == ToleranceRule(enums.Preset.ALLCLOSE, 0.0, None)
    assert (rules.allowed_precision, rules.stress_kinds) == (enums.Precision.BF16, (enums.StressKind.ROWS,))
    assert (form.is_compiled, form.cuda_graph, asked.timing.wanted) == (True, True, False)
    assert (asked.candidate.limits.load, asked.candidate.limits.timing) == (2.7, 60.0)
    assert (asked.candidate.memory, spec().candidate.memory) == (64 << 20, None)
    assert asked.problem.secret_constants == rules.stress_inputs


def test_what_is_not_said_has_its_default() -> None:
    asked = spec()
    assert asked.checks.rules.tolerance.preset == enums.Preset.CALIBRATED
    assert asked.checks.provenance_policy == enums.ProvenancePolicy.REJECT_DECOYS
    assert asked.checks.output_reuse == enums.OutputReuse.LABEL
    assert asked.checks.memory_errors == enums.MemoryErrors.REJECT
    assert (asked.timing.wanted, asked.checks.rules.stress_kinds, asked.timing.precision) == (True, (), 0.01)
    assert asked.timing.form == TimedForm()
    inspection = asked.inspection
    assert (inspection.profile, inspection.counters, inspection.sanitize) == (False, False, enums.Sanitize.NONE)
    assert inspection.code_listing == enums.CodeListing.NONE


def test_what_is_asked_about_kernels_reaches_the_spec() -> None:
    for level, counters in ((pb.PROFILE_LEVEL_KERNELS, False), (pb.PROFILE_LEVEL_COUNTERS, True)):
        profiled = spec(profile_level=level).inspection
        assert (profiled.profile, profiled.counters) == (True, counters)
    asked = spec(sanitize=pb.SANITIZE_WINNERS, memory_errors=pb.MEMORY_ERRORS_LABEL, code_listing=pb.CODE_LISTING_SASS)
    assert asked.inspection.sanitize == enums.Sanitize.WINNERS
    assert asked.checks.memory_errors == enums.MemoryErrors.LABEL
    assert asked.inspection.code_listing == enums.CodeListing.SASS


@pytest.mark.parametrize(
    "field", ["entry_point", "backend", "toolkit", "num_correct_trials", "num_perf_trials", "timeouts"]
)
def test_a_request_without_its_defaults_is_refused(field: str) -> None:
    request = effective(pb.EvalRequest(kernel_code="k", reference_code="r"))
    request.ClearField(field)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=field):
        read_request(request)


@pytest.mark.parametrize("field", WORK_ENUMS)
def test_a_value_that_only_a_newer_version_knows_is_refused(field: str) -> None:
    request = effective(pb.EvalRequest(kernel_code="k", reference_code="r"))
    if field in ("baselines", "stress_kinds"):
        getattr(request, field).append(77)
    else:
        setattr(request, field, 77)
    with pytest.raises(UnreadableRequestError, match="77"):
        read_request(request)


def test_a_request_without_a_limit_is_refused() -> None:
    request = effective(pb.EvalRequest(kernel_code="k", reference_code="r"))
    request.timeouts.ClearField("timing_timeout")
    with pytest.raises(ValueError, match="timing_timeout"):
        read_request(request)
