"""Candidates of several files: what the contract refuses, and how a person reads one."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldyno.rpc.candidate_files import as_one_text, candidate_text
from kerneldyno.rpc.jsonio import request_from_json, request_to_json
from kerneldyno.rpc.validation import MAX_VIOLATIONS, effective, validate
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

LIMIT = 1024 * 1024


def request(*files: str | tuple[str, str], **fields: Any) -> pb.EvalRequest:
    pairs = [(file, "text") if isinstance(file, str) else file for file in files]
    known = {"id": "a", "reference_code": "r", "kernel_code": "k"} | fields
    return pb.EvalRequest(**known, kernel_files=[pb.CandidateFile(path=path, content=text) for path, text in pairs])


def flagged(**kinds: list[str]) -> pb.EvalRequest:
    return request("a.cu", build_flags=pb.BuildFlags(**kinds))


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/etc/passwd.py",
            "../a.py",
            "a/../b.py",
            "a/./b.py",
            "./a.py",
            "a//b.py",
            "a/",
            "/",
            ".",
            "..",
            ".hidden.py",
        ),
        *("a\\b.py", "C:a.py", "ü.py", "a b.py", "1.py", "-a.py", "a/1/b.cu", "a.py\n", "a\0.py", "~/a.py", "$a.py"),
    ],
)
def test_a_path_that_is_not_plain_is_refused(path: str) -> None:
    (found,) = validate(request(path))
    assert found.field == "kernel_files[0].path"
    assert "is not a usable path" in found.description
    assert "relative" in found.description


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "is empty"),
        ("a" * 98 + ".py", "101 characters"),
        ("a.txt", "suffix '.txt'"),
        ("a.so", "suffix '.so'"),
        ("a.CU", "suffix '.CU'"),
        ("Makefile", "suffix ''"),
        ("a.cu.o", "suffix '.o'"),
        ("candidate.py", "the module of the entry point has this name"),
        ("Candidate.py", "taken"),
        ("native.py", "module of the native sources has"),
        ("native/__init__.py", "taken"),
    ],
)
def test_other_paths_are_refused_with_the_reason(path: str, words: str) -> None:
    (found,) = validate(request(path))
    assert found.field == "kernel_files[0].path"
    assert words in found.description


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (("a.cu", "a.cu"), "twice"),
        (("a.cu", "A.cu"), "differ only in case"),
        (("a.cu", "a.cu/b.h"), "that is a file"),
        (("a.cu/b/c.h", "a.cu"), "also a folder"),
        (("A.cu/b.h", "a.cu"), "also a folder"),
        (("a.cu", "A.cu/b.h"), "that is a file"),
    ],
)
def test_files_that_cannot_lie_beside_each_other_are_refused(paths: tuple[str, str], words: str) -> None:
    (found,) = validate(request(*paths))
    assert found.field == "kernel_files[1].path"
    assert words in found.description


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (request(("a.cu", "")), "kernel_files[0].content", "'a.cu' is empty"),
        (request("b.cu", ("a.cu", "int\0")), "kernel_files[1].content", "NUL byte at position 3"),
        (request(*(f"f{i}.cu" for i in range(65))), "kernel_files", "65 files; at most 64"),
        (request(("a.cu", "x" * (LIMIT + 1))), "kernel_files", "1048577 bytes"),
        (request(("a.cu", "é" * (LIMIT // 4)), ("b.cu", "é" * (LIMIT // 4 + 1))), "kernel_files", "1048578 bytes"),
        (request("a.cuh", "b.py", "c.h", kernel_code=""), "kernel_code", "native sources (.cu, .cpp)"),
        (request(kernel_code=" \n"), "kernel_code", "missing"),
        (flagged(cuda=["-O3"] * 33), "build_flags.cuda", "33 items; at most 32"),
        (flagged(libraries=["m"] * 33), "build_flags.libraries", "33 items"),
        (flagged(cuda=["-O3", "--keep"]), "build_flags.cuda", "'--keep' decides what a compiler writes"),
        (flagged(cpp=["-fplugin=x"]), "build_flags.cpp", "plug-in"),
        (flagged(cpp=["--use_fast_math"]), "build_flags.cpp", "not on the list"),
        (flagged(libraries=["-lcublas"]), "build_flags.libraries", "such as cublas"),
        (flagged(libraries=["../evil"]), "build_flags.libraries", "name of a library"),
        (flagged(libraries=[""]), "build_flags.libraries", "name of a library"),
    ],
)
def test_the_limits_name_the_field(request_: pb.EvalRequest, field: str, words: str) -> None:
    (found,) = validate(request_)
    assert found.field == field
    assert words in found.description


def test_many_faults_are_reported_up_to_the_limit() -> None:
    assert len(validate(request(*(f"{i}.cu" for i in range(64))))) == MAX_VIOLATIONS


@pytest.mark.parametrize(
    "request_",
    [
        request("kernels/softmax.cu", "kernels/tile.cuh", "util.py", "_x-1.2.hpp", "native/a.cu", "nativex.py"),
        request("a.cu", kernel_code=""),
        request("a.c", kernel_code="\n"),
        request(*(f"f{i}.cu" for i in range(64))),
        request(("a.cu", "é" * (LIMIT // 2))),
        request("a" * 97 + ".py"),
        request("pack/__init__.py", "pack/candidate.py", "pack/native.py"),
        flagged(cuda=["-O3", "-Xptxas", "-v"], cpp=["-O2"], libraries=["cublas", "nvToolsExt"]),
        request(build_flags=pb.BuildFlags(cuda=["-O3"])),
    ],
    ids=lambda request: str(request)[:60],
)
def test_what_is_within_the_limits_passes(request_: pb.EvalRequest) -> None:
    assert validate(request_) == []
    assert validate(effective(request_)) == []


def test_files_are_sorted_and_lose_their_byte_order_marks() -> None:
    full = effective(request(("b.cu", "\ufeffint b;"), "a.h"))
    assert [(file.path, file.content) for file in full.kernel_files] == [("a.h", "text"), ("b.cu", "int b;")]


def test_a_person_gives_files_as_an_object() -> None:
    base = {"id": "a", "reference_code": "r", "kernel_code": "k"}
    flags = {"cuda": ["-O3"], "libraries": ["cublas"]}
    given = request_from_json(base | {"kernel_files": {"a.cu": "x", "b.h": "y"}, "buildFlags": flags})
    assert [(file.path, file.content) for file in given.kernel_files] == [("a.cu", "x"), ("b.h", "y")]
    assert (list(given.build_flags.cuda), list(given.build_flags.libraries)) == (["-O3"], ["cublas"])
    assert request_from_json(request_to_json(given)) == given


@pytest.mark.parametrize("files", [{"a.cu": 1}, {"a.cu": {"content": "x"}}, ["a.cu"], [{"name": "a.cu"}], "a.cu", 5])
def test_files_of_the_wrong_type_name_the_field(files: Any) -> None:
    with pytest.raises(ValueError, match=r"kernel_files|kernelFiles|content"):
        request_from_json({"id": "a", "kernel_files": files})


def test_a_candidate_of_one_file_is_its_text() -> None:
    assert candidate_text(request()) == "k"
    assert as_one_text("x = 1", {}) == "x = 1"


def test_a_candidate_of_several_files_is_one_text_whatever_their_order() -> None:
    text = candidate_text(request(("b.cu", "int b;\n"), ("a.h", "int a;"), kernel_code="import native\n"))
    assert text == "==== candidate.py ====\nimport native\n\n==== a.h ====\nint a;\n\n==== b.cu ====\nint b;\n"
    assert as_one_text("", {"a.cu": "x"}) == "==== a.cu ====\nx\n"
    assert candidate_text(flagged(cuda=["-O3", "-w"], libraries=["m"])).endswith(
        "==== build flags ====\ncuda: -O3 -w\nlibraries: m\n"
    )
