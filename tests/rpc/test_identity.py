"""The identity of work: equal to test vectors, and different exactly if something may change the verdict."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kerneldyno.rpc import identity
from kerneldyno.rpc.identity import digest, environment_fingerprint
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.rpc.validation import effective, validate
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

VECTORS = json.loads(Path(__file__).with_name("identity_vectors.json").read_text(encoding="utf-8"))
BY_NAME = {vector["name"]: vector for vector in VECTORS["requests"]}
EXCLUDED = {"id", "labels", "priority", "skip_cache", "speedup_kind", "total_timeout", "client_grace", "trace_context"}


def seconds(value: int) -> duration_pb2.Duration:
    return duration_pb2.Duration(seconds=value)


def good(**fields: Any) -> pb.EvalRequest:
    return pb.EvalRequest(**({"id": "a", "reference_code": "r", "kernel_code": "k"} | fields))


def identified(request: pb.EvalRequest) -> bytes:
    return digest(effective(request))


#: For each field a change to a valid request. It changes the identity if the field is included, not if it is excluded.
CHANGES: dict[str, Callable[[pb.EvalRequest], object]] = {
    "id": lambda r: setattr(r, "id", "b"),
    "reference_code": lambda r: setattr(r, "reference_code", "r "),
    "kernel_code": lambda r: setattr(r, "kernel_code", "k\n"),
    "entry_point": lambda r: setattr(r, "entry_point", "Net"),
    "backend": lambda r: setattr(r, "backend", "torch"),
    "toolkit": lambda r: setattr(r, "toolkit", "mine"),
    "num_correct_trials": lambda r: setattr(r, "num_correct_trials", 6),
    "num_perf_trials": lambda r: setattr(r, "num_perf_trials", 99),
    "num_warmup": lambda r: setattr(r, "num_warmup", 0),
    "tolerance": lambda r: setattr(r.tolerance, "preset", pb.Tolerance.PRESET_LOOSE),
    "tolerance.atol": lambda r: setattr(r.tolerance, "atol", 0.0),
    "tolerance.rtol": lambda r: setattr(r.tolerance, "rtol", 0.0),
    "tolerance.matched_share": lambda r: setattr(r.tolerance, "matched_share", 0.5),
    "workloads": lambda r: r.workloads.add(value_json="1"),
    "workloads.name": lambda r: r.workloads.add(value_json="1", name="one"),
    "workloads_time": lambda r: r.workloads_time.CopyFrom(seconds(5)),
    "baselines": lambda r: r.baselines.append(pb.REFERENCE_BACKEND_TORCH_COMPILE),
    "library_baselines": lambda r: r.library_baselines.add(name="a", code="b"),
    "library_baselines.name": lambda r: r.library_baselines.add(name="b", code="b"),
    "library_baselines.code": lambda r: r.library_baselines.add(name="a", code="c"),
    "module_mode": lambda r: setattr(r, "module_mode", pb.MODULE_MODE_BOTH),
    "backward": lambda r: setattr(r, "backward", True),
    "precision": lambda r: setattr(r, "precision", pb.PRECISION_FP16),
    "allowed_precision": lambda r: setattr(r, "allowed_precision", pb.PRECISION_FP16),
    "reference_backend": lambda r: setattr(r, "reference_backend", pb.REFERENCE_BACKEND_TORCH_COMPILE),
    "launch_mode": lambda r: setattr(r, "launch_mode", pb.LAUNCH_MODE_CUDA_GRAPH),
    "timing_precision": lambda r: setattr(r, "timing_precision", 0.05),
    "candidate_device_memory_bytes": lambda r: setattr(r, "candidate_device_memory_bytes", 1 << 33),
    "speedup_kind": lambda r: setattr(r, "speedup_kind", pb.SPEEDUP_KIND_END_TO_END),
    "timeouts": lambda r: r.timeouts.load_timeout.CopyFrom(seconds(61)),
    "timeouts.compile_timeout": lambda r: r.timeouts.compile_timeout.CopyFrom(seconds(61)),
    "timeouts.correctness_timeout": lambda r: r.timeouts.correctness_timeout.CopyFrom(seconds(61)),
    "timeouts.timing_timeout": lambda r: r.timeouts.timing_timeout.FromNanoseconds(60_000_000_001),
    "timeouts.build_timeout": lambda r: r.timeouts.build_timeout.CopyFrom(seconds(61)),
    "priority": lambda r: setattr(r, "priority", pb.PRIORITY_HIGH),
    "device": lambda r: setattr(r.device, "kind", "cpu"),
    "device.model": lambda r: setattr(r.device, "model", "H200"),
    "device.min_memory_bytes": lambda r: setattr(r.device, "min_memory_bytes", 1),
    "device.node_labels": lambda r: r.device.node_labels.update({"pool": "a"}),
    "device.min_devices": lambda r: setattr(r.device, "min_devices", 1),
    "run_performance": lambda r: setattr(r, "run_performance", False),
    "enable_profiling": lambda r: setattr(r, "enable_profiling", True),
    "cases_code": lambda r: setattr(r, "cases_code", "c"),
    "cases": lambda r: r.cases.add(inputs_json="[]", expected_json="1"),
    "cases.expected_json": lambda r: r.cases.add(inputs_json="[]", expected_json="2"),
    "cases.name": lambda r: r.cases.add(inputs_json="[]", expected_json="1", name="empty"),
    "skip_cache": lambda r: setattr(r, "skip_cache", True),
    "labels": lambda r: r.labels.update({"step": "7"}),
    "stress_inputs": lambda r: setattr(r, "stress_inputs", False),
    "provenance_policy": lambda r: setattr(r, "provenance_policy", pb.PROVENANCE_POLICY_LABEL),
    "output_reuse": lambda r: setattr(r, "output_reuse", pb.OUTPUT_REUSE_REJECT),
    "profile_level": lambda r: setattr(r, "profile_level", pb.PROFILE_LEVEL_COUNTERS),
    "sanitize": lambda r: setattr(r, "sanitize", pb.SANITIZE_WINNERS),
    "require_deterministic": lambda r: setattr(r, "require_deterministic", True),
    "memory_errors": lambda r: setattr(r, "memory_errors", pb.MEMORY_ERRORS_LABEL),
    "code_listing": lambda r: setattr(r, "code_listing", pb.CODE_LISTING_SASS),
    "stress_kinds": lambda r: r.stress_kinds.append(pb.STRESS_KIND_ROWS),
    "kernel_files": lambda r: r.kernel_files.add(path="a.cu", content="b"),
    "kernel_files.path": lambda r: r.kernel_files.add(path="a.cpp", content="b"),
    "kernel_files.content": lambda r: r.kernel_files.add(path="a.cu", content="b "),
    "build_flags": lambda r: r.build_flags.cuda.append("-O3"),
    "build_flags.cpp": lambda r: r.build_flags.cpp.append("-O3"),
    "build_flags.libraries": lambda r: r.build_flags.libraries.append("-O3"),
    "salt": lambda r: setattr(r, "salt", "1"),
    "total_timeout": lambda r: r.total_timeout.CopyFrom(seconds(5)),
    "client_grace": lambda r: r.client_grace.CopyFrom(seconds(5)),
    "trace_context.traceparent": lambda r: setattr(r.trace_context, "traceparent", f"00-{'1' * 32}-{'2' * 16}-01"),
}


@pytest.mark.parametrize("vector", VECTORS["requests"], ids=lambda vector: vector["name"])
def test_the_vectors_are_recomputed(vector: dict[str, Any]) -> None:
    request = request_from_json(vector["request"])
    assert validate(request, profiling=True) == []
    assert identified(request).hex() == vector["digest"]


def test_the_vectors_say_what_is_equal_and_what_is_not() -> None:
    assert len(VECTORS["requests"]) >= 12
    for first, second in VECTORS["equal"]:
        assert BY_NAME[first]["digest"] == BY_NAME[second]["digest"], (first, second)
        assert json.dumps(BY_NAME[first]["request"]) != json.dumps(BY_NAME[second]["request"])
    seconds_of_pairs = {second for _, second in VECTORS["equal"]}
    different = [vector["digest"] for vector in VECTORS["requests"] if vector["name"] not in seconds_of_pairs]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("vector", VECTORS["environments"], ids=lambda vector: vector["name"])
def test_the_vectors_of_environments_are_recomputed(vector: dict[str, Any]) -> None:
    environment = pb.Environment(**vector["environment"])
    assert environment_fingerprint(environment, vector["device_model"]).hex() == vector["fingerprint"]


def test_the_form_is_the_one_that_is_documented() -> None:
    def field(number: int, type_: bytes, value: bytes) -> bytes:
        return struct.pack(">I", number) + type_ + struct.pack(">I", len(value)) + value

    def integer(number: int, value: int) -> bytes:
        return field(number, b"i", value.to_bytes(8, "big", signed=True))

    def text(value: str) -> bytes:
        return struct.pack(">I", len(value.encode())) + value.encode()

    def limit(number: int, duration: int = 60) -> bytes:
        return field(number, b"t", (duration * 10**9).to_bytes(8, "big"))

    def file(path: str, content: str) -> bytes:
        written = field(1, b"s", path.encode()) + field(2, b"s", content.encode())
        return struct.pack(">I", len(written)) + written

    request = good(
        id="x",
        reference_code="",
        kernel_code="é",
        entry_point="f",
        toolkit="kernel_simple",
        tolerance=pb.Tolerance(atol=-0.0),
        device=pb.DeviceSelector(node_labels={"b": "1", "a": ""}),
        cases=[pb.Case(inputs_json="[]", expected_json="1")],
        labels={"not": "counted"},
        output_reuse=pb.OUTPUT_REUSE_REJECT,
        stress_kinds=[pb.STRESS_KIND_ROWS, pb.STRESS_KIND_SIGNS],
        kernel_files=[pb.CandidateFile(path="b.cu", content="2"), pb.CandidateFile(path="a.h", content="1")],
        build_flags=pb.BuildFlags(cuda=["-O3", "-g"]),
    )
    form = b"kerneldyno.request.1\0" + b"".join(
        [
            field(3, b"s", "é".encode()),
            field(4, b"s", b"f"),
            field(5, b"s", b"triton"),
            field(6, b"s", b"kernel_simple"),
            integer(7, 5),
            integer(8, 100),
            integer(9, 3),
            field(10, b"m", integer(1, 2) + field(2, b"d", struct.pack(">d", 0.0))),
            integer(12, 1),
            field(13, b"m", limit(1) + limit(2, 120) + limit(3) + limit(4)),
            field(15, b"m", field(4, b"p", text("a") + text("") + text("b") + text("1"))),
            integer(16, 1),
            integer(17, 0),
            field(19, b"l", struct.pack(">I", 21) + field(1, b"s", b"[]") + field(2, b"s", b"1")),
            integer(22, 1),  # naming kinds of stress turns stress inputs on
            integer(23, 2),
            integer(32, 2),
            field(33, b"e", (1).to_bytes(8, "big") + (3).to_bytes(8, "big")),
            field(34, b"l", file("a.h", "1") + file("b.cu", "2")),
            field(35, b"m", field(1, b"x", text("-O3") + text("-g"))),
        ]
    )
    assert identified(request) == hashlib.sha256(form).digest()


def test_every_field_is_changed_below() -> None:
    assert {name.partition(".")[0] for name in CHANGES} == set(pb.EvalRequest.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_apart_exactly_when_it_may_change_the_verdict(name: str) -> None:
    changed = good()
    CHANGES[name](changed)
    assert changed != good()
    assert (identified(changed) != identified(good())) == (name.partition(".")[0] not in EXCLUDED)


def test_changes_are_told_apart_from_each_other() -> None:
    found = set()
    included = [name for name in CHANGES if name.partition(".")[0] not in EXCLUDED]
    for name in included:
        changed = good()
        CHANGES[name](changed)
        found.add(identified(changed))
    # This includes an absolute and a relative tolerance of zero, which are different rules.
    assert len(found) == len(included)


def test_text_cannot_move_between_fields() -> None:
    assert identified(good(reference_code="ab", kernel_code="c")) != identified(
        good(reference_code="a", kernel_code="bc")
    )
    one = good(toolkit="mine", cases=[pb.Case(inputs_json="ab", expected_json="c")])
    other = good(toolkit="mine", cases=[pb.Case(inputs_json="a", expected_json="bc")])
    split = good(toolkit="mine", cases=[pb.Case(inputs_json="ab"), pb.Case(expected_json="c")])
    assert len({identified(request) for request in (one, other, split)}) == 3
    labels = ({"a": "bc"}, {"ab": "c"}, {"a": "b", "c": ""})
    assert len({identified(good(device=pb.DeviceSelector(node_labels=given))) for given in labels}) == 3


def test_to_ask_for_the_usual_launch_mode_is_to_ask_for_none() -> None:
    assert identified(good(launch_mode=pb.LAUNCH_MODE_EAGER)) == identified(good())


def test_to_ask_for_the_usual_timing_precision_is_to_ask_for_none() -> None:
    assert identified(good(timing_precision=0.01)) == identified(good())
    assert identified(good(timing_precision=0.02)) != identified(good(timing_precision=0.05))


def test_to_have_reused_outputs_labelled_is_to_ask_for_nothing() -> None:
    assert identified(good(output_reuse=pb.OUTPUT_REUSE_LABEL)) == identified(good())


def test_to_ask_for_nothing_more_about_kernels_is_to_ask_for_nothing() -> None:
    nothing = good(
        profile_level=pb.PROFILE_LEVEL_NONE,
        sanitize=pb.SANITIZE_NONE,
        memory_errors=pb.MEMORY_ERRORS_REJECT,
        code_listing=pb.CODE_LISTING_NONE,
    )
    assert identified(nothing) == identified(good()) == identified(good(enable_profiling=False))


def test_two_fields_for_one_profile_are_the_same_work() -> None:
    profiled = identified(good(enable_profiling=True))
    assert identified(good(profile_level=pb.PROFILE_LEVEL_KERNELS)) == profiled
    counters = identified(good(profile_level=pb.PROFILE_LEVEL_COUNTERS))
    assert counters == identified(good(profile_level=pb.PROFILE_LEVEL_COUNTERS, enable_profiling=True)) != profiled


def test_each_way_to_sanitize_and_to_list_is_different_work() -> None:
    ways = [{"sanitize": number} for number in range(2, 4)] + [{"code_listing": number} for number in range(2, 5)]
    assert len({identified(good(**way)) for way in ways}) == len(ways)


def test_the_usual_share_and_what_a_precision_implies_are_the_same_work() -> None:
    share = pb.Tolerance.PRESET_MATCHED_SHARE
    given = [
        pb.Tolerance(preset=share),
        pb.Tolerance(matched_share=0.95),
        pb.Tolerance(preset=share, matched_share=0.95),
    ]
    assert len({identified(good(tolerance=each)) for each in given}) == 1
    assert identified(good(precision=pb.PRECISION_FP8)) == identified(
        good(precision=pb.PRECISION_FP8, allowed_precision=pb.PRECISION_FP8)
    )


def test_kinds_of_stress_are_a_set_and_all_of_them_are_the_usual_one() -> None:
    every = [kind for kind in pb.StressKind.values() if kind]
    assert identified(good(stress_kinds=every[::-1])) == identified(good())
    assert identified(good(stress_kinds=[3, 1])) == identified(good(stress_kinds=[1, 3]))
    assert identified(good(stress_kinds=[3])) != identified(good(stress_kinds=[1]))


def test_files_are_a_set_and_flags_are_a_list() -> None:
    files = [pb.CandidateFile(path=path, content=path) for path in ("b.cu", "a.h", "c/d.py")]
    assert identified(good(kernel_files=files)) == identified(good(kernel_files=files[::-1]))
    assert identified(good(kernel_files=files)) != identified(good(kernel_files=files[1:]))
    flags = ["-O3", "-O2"]
    forward, backward = pb.BuildFlags(cuda=flags), pb.BuildFlags(cuda=flags[::-1])
    assert identified(good(build_flags=forward)) != identified(good(build_flags=backward))
    joined = pb.BuildFlags(cuda=["-O3-O2"])
    assert identified(good(build_flags=forward)) != identified(good(build_flags=joined))


def test_to_ask_for_the_usual_build_limit_is_to_ask_for_none() -> None:
    """Requests had no such limit at first, and their digests are in journals."""
    assert identified(good(timeouts=pb.StageTimeouts(build_timeout=seconds(300)))) == identified(good())
    assert identified(good(timeouts=pb.StageTimeouts(build_timeout=seconds(299)))) != identified(good())


def test_an_empty_message_is_no_message() -> None:
    request = good()
    request.device.SetInParent()
    request.build_flags.SetInParent()
    assert identified(request) == identified(good())


def test_fields_of_a_newer_contract_are_told_apart() -> None:
    """An evaluator may know these fields, so requests that differ in them must not be merged."""
    plain = effective(good()).SerializeToString()
    tails = [b"", b"\xd2\x0f\x01a", b"\xd2\x0f\x01b", b"\xda\x0f\x01a", b"\xd0\x0f\x01", b"\xd3\x0f\x08\x01\xd4\x0f"]
    assert len({digest(pb.EvalRequest.FromString(plain + tail)) for tail in tails}) == len(tails)
    one, two = b"\xd2\x0f\x01a", b"\xd8\x0f\x01"
    assert digest(pb.EvalRequest.FromString(plain + one + two)) == digest(pb.EvalRequest.FromString(plain + two + one))
    nested = effective(good(tolerance=pb.Tolerance.FromString(one)))
    assert digest(nested) != digest(effective(good()))


def test_a_new_field_belongs_to_the_work_and_none_of_an_unknown_type_is_left_out() -> None:
    """Two requests that differ in a new field are two pieces of work, until NOT_THE_WORK says that they are one."""
    file = descriptor_pb2.FileDescriptorProto(name="grown.proto", package="grown", syntax="proto3")
    message = file.message_type.add(name="Request")
    for number, name in enumerate(("old", "new"), start=1):
        message.field.add(name=name, number=number, type="TYPE_STRING", label="LABEL_OPTIONAL")
    strange = file.message_type.add(name="Strange")
    strange.field.add(name="bits", number=1, type="TYPE_FIXED64", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    grown = pool.FindMessageTypeByName("grown.Request")  # type: ignore[no-untyped-call]
    request = message_factory.GetMessageClass(grown)
    one, other = request(old="a", new="b"), request(old="a", new="c")
    assert identity.Form(grown).write(one) != identity.Form(grown).write(other)
    left_out = identity.Form(grown, excluded={"new"})
    assert left_out.write(one) == left_out.write(other) != b""
    with pytest.raises(TypeError, match="gone"):
        identity.Form(grown, excluded={"gone"})
    with pytest.raises(TypeError, match="bits"):
        identity.Form(pool.FindMessageTypeByName("grown.Strange"))  # type: ignore[no-untyped-call]


# Properties of requests with random fields.

unhurried = settings(suppress_health_check=[HealthCheck.too_slow])
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**31), 2**31 - 1)
durations = st.builds(
    duration_pb2.Duration, seconds=st.integers(0, 3600), nanos=st.sampled_from([0, 1, 500_000_000, 999_999_999])
)
requests = st.builds(
    pb.EvalRequest,
    id=texts,
    reference_code=texts,
    kernel_code=texts,
    entry_point=texts,
    backend=texts,
    num_correct_trials=st.none() | numbers,
    num_warmup=st.none() | numbers,
    tolerance=st.none()
    | st.builds(
        pb.Tolerance, preset=st.integers(0, 3), atol=st.none() | st.floats(0, 1), rtol=st.none() | st.floats(0, 1)
    ),
    allowed_precision=st.integers(0, 6),
    timeouts=st.none() | st.builds(pb.StageTimeouts, load_timeout=durations, timing_timeout=st.none() | durations),
    priority=st.integers(0, 3),
    device=st.none() | st.builds(pb.DeviceSelector, node_labels=st.dictionaries(texts, texts, max_size=4)),
    run_performance=st.none() | st.booleans(),
    cases=st.lists(st.builds(pb.Case, inputs_json=texts, expected_json=texts), max_size=3),
    labels=st.dictionaries(texts, texts, max_size=4),
    kernel_files=st.lists(
        st.builds(pb.CandidateFile, path=texts, content=texts), max_size=3, unique_by=lambda file: file.path
    ),
    build_flags=st.none() | st.builds(pb.BuildFlags, cuda=st.lists(texts, max_size=2), libraries=st.lists(texts)),
    salt=texts,
    enable_profiling=st.none() | st.booleans(),
    profile_level=st.integers(0, 3),
    sanitize=st.integers(0, 3),
    memory_errors=st.integers(0, 2),
    code_listing=st.integers(0, 4),
)


@unhurried
@given(requests)
def test_the_digest_survives_the_wire_and_any_order_of_its_bytes(request: pb.EvalRequest) -> None:
    expected = identified(request)
    again = pb.EvalRequest.FromString(effective(request).SerializeToString())
    assert digest(effective(again)) == digest(again) == expected
    # Fields may come in any order on the wire: each alone is a message, and a parser merges messages in a row.
    parts = []
    for field, _ in request.ListFields():
        one = pb.EvalRequest()
        one.CopyFrom(request)
        for other, _ in request.ListFields():
            if other.number != field.number:
                one.ClearField(other.name)
        parts.append(one.SerializeToString())
    random.Random(len(parts)).shuffle(parts)
    assert identified(pb.EvalRequest.FromString(b"".join(parts))) == expected


@unhurried
@given(requests, st.sampled_from(sorted(CHANGES)))
def test_any_change_to_any_request_is_judged_by_its_field(request: pb.EvalRequest, name: str) -> None:
    before, after = effective(request), effective(request)
    CHANGES[name](after)
    field = name.partition(".")[0]
    same = field in EXCLUDED or after == before
    assert (digest(after) == digest(before)) == same


@unhurried
@given(requests, requests)
def test_equal_digests_mean_equal_work(first: pb.EvalRequest, second: pb.EvalRequest) -> None:
    left, right = effective(first), effective(second)
    for request in (left, right):
        for name in EXCLUDED:
            request.ClearField(name)
        for name in ("device", "build_flags"):
            if not getattr(request, name).ListFields():
                request.ClearField(name)
    assert (digest(left) == digest(right)) == (left == right)


# Fingerprints of environments.

PLACE = pb.Environment(
    node_id="n1",
    device="cuda:0",
    driver_version="570.1",
    torch_version="2.9.1",
    triton_version="3.5.0",
    cuda_version="12.8",
    python_version="3.12.3",
    kerneldyno_version="0.2.0",
)


@pytest.mark.parametrize("name", pb.Environment.DESCRIPTOR.fields_by_name)
def test_an_environment_is_what_may_change_a_verdict_or_a_time(name: str) -> None:
    other, model = pb.Environment.FromString(PLACE.SerializeToString()), "NVIDIA H200"
    if name == "device_model":
        model = "NVIDIA H100"
    elif name == "triton_interpreter":
        other.triton_interpreter = True
    else:
        setattr(other, name, "changed")
    same = environment_fingerprint(other, model) == environment_fingerprint(PLACE, "NVIDIA H200")
    assert same == (name in ("node_id", "device"))


def test_a_node_and_its_results_have_the_same_fingerprint() -> None:
    of_result = pb.Environment.FromString(PLACE.SerializeToString())
    of_result.device, of_result.device_model = "cuda:5", "NVIDIA H200"
    fingerprint = environment_fingerprint(PLACE, "NVIDIA H200")
    assert environment_fingerprint(of_result, of_result.device_model) == fingerprint
    assert len(fingerprint) == identity.FINGERPRINT_BYTES == 16
    assert PLACE.device_model == "", "the caller's message is left as it is"
