"""Descriptions of native builds: what a candidate may describe, what names a build, and whose lines compilers count."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.evaluator.shared.native_build import NativeBuild, of_files

pytestmark = pytest.mark.pure

BUILD = NativeBuild(
    "scale",
    (("main.cpp", "int f();"), ("cuda.cu", "__global__ void k();"), ("include/a.cuh", "#pragma once")),
    cpp_flags=("-O3",),
    cuda_flags=("--use_fast_math",),
    link_flags=("-lcublas",),
    architectures="9.0a;10.0+PTX",
)
#: The lines that `load_inline` writes in front of each kind of source.
CPP, CUDA = (
    "#include <torch/extension.h>\n",
    "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n",
)

MALFORMED = {
    "a number for a name": {"name": 3},
    "a name with a slash": {"name": "../native"},
    "an empty name": {"name": ""},
    "a name with a line break": {"name": "scale\n"},
    "a long name": {"name": "n" * 101},
    "a name that is not ASCII": {"name": "größe"},
    "no files": {"files": []},
    "files without texts": {"files": [["main.cpp"]]},
    "files with three parts": {"files": [["main.cpp", "", ""]]},
    "files that are a number": {"files": 3},
    "no source": {"files": [["a.h", ""], ["b.cuh", ""]]},
    "a path above": {"files": [["../main.cpp", ""]]},
    "a path above, inside": {"files": [["main.cpp", ""], ["a/../../b.h", ""]]},
    "an absolute path": {"files": [["/tmp/main.cpp", ""]]},
    "the directory itself": {"files": [["main.cpp", ""], [".", ""]]},
    "an empty path": {"files": [["main.cpp", ""], ["", ""]]},
    "a path with a dot": {"files": [["./main.cpp", ""]]},
    "a path with an empty part": {"files": [["a//main.cpp", ""]]},
    "a path that ends with a slash": {"files": [["main.cpp", ""], ["include/", ""]]},
    "a hidden file": {"files": [["main.cpp", ""], [".ninja_log", ""]]},
    "a path like a flag": {"files": [["-o.cpp", ""]]},
    "a path with a space": {"files": [["a b.cpp", ""]]},
    "a path with a line break": {"files": [["main.cpp\n", ""], ["b.cpp", ""]]},
    "a path for a shell": {"files": [["$(id).cpp", ""]]},
    "a path with a quote": {"files": [["a'.cpp", ""]]},
    "a long part of a path": {"files": [["n" * 101 + ".cpp", ""]]},
    "a path twice": {"files": [["main.cpp", "1"], ["main.cpp", "2"]]},
    "two sources of one name": {"files": [["a/k.cu", ""], ["b/k.cu", ""]]},
    "too many files": {"files": [["main.cpp", ""], *([f"h{n}.h", ""] for n in range(80))]},
    "too long a text": {"files": [["main.cpp", "x" * ((4 << 20) + 1)]]},
    "too long a flag": {"cpp_flags": ["-D" + "x" * (4 << 20)]},
    "too many flags": {"cuda_flags": ["-O3"] * 81},
    "flags without end": {"cuda_flags": 3},
    "no flags": {"link_flags": None},
    "a line break in a C++ flag": {"cpp_flags": ["-O3\nbuild x: y"]},
    "a line break in a CUDA flag": {"cuda_flags": ["-O3\n"]},
    "a zero byte in a flag of the linker": {"link_flags": ["-la\0"]},
    "no text of Unicode": {"files": [["main.cpp", "\ud800"]]},
    "no flag of Unicode": {"cpp_flags": ["-D\udfff"]},
    "architectures for a shell": {"architectures": "9.0$(id)"},
    "architectures with a line break": {"architectures": "9.0\n"},
    "many architectures": {"architectures": "9.0;" * 26},
}


@pytest.mark.parametrize("said", MALFORMED.values(), ids=MALFORMED)
def test_malformed_descriptions_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        NativeBuild.from_json({**BUILD.to_json(), **said})


@pytest.mark.parametrize("said", [None, [], {}, "build", 3, [BUILD.to_json()]])
def test_what_is_no_description_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match="no description of a build"):
        NativeBuild.from_json(said)


@pytest.mark.parametrize("name", BUILD.to_json())
def test_a_description_without_one_of_its_parts_is_refused(name: str) -> None:
    described = BUILD.to_json()
    del described[name]
    with pytest.raises(ValueError, match=f"no description of a build: '{name}'"):
        NativeBuild.from_json(described)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(BUILD.to_json())), inner),
        max_leaves=12,
    )
)
def test_any_value_is_a_build_or_a_value_error(said: Any) -> None:
    try:
        build = NativeBuild.from_json(said)
    except ValueError:
        return
    build.check()


def test_a_description_survives_its_way_through_json() -> None:
    back = NativeBuild.from_json(json.loads(json.dumps(BUILD.to_json())))
    assert back == BUILD
    assert back.digest == BUILD.digest
    assert BUILD.sources == ["main.cpp", "cuda.cu"]


def test_the_largest_build_that_is_allowed() -> None:
    files = (("a.cpp", "x" * (4 << 20)), *((f"h{n}.h", "") for n in range(79)))
    build = NativeBuild("n" * 100, files)
    # The line breaks between the files count, too.
    fits = replace(build, files=(("a.cpp", "x" * ((4 << 20) - 79)), *files[1:]))
    assert NativeBuild.from_json(fits.to_json()) == fits
    with pytest.raises(ValueError, match="too long"):
        build.check()


OTHERS = {
    "name": "scale2",
    "files": (("main.cpp", "int f(); "), *BUILD.files[1:]),
    "cpp_flags": ("-O2",),
    "cuda_flags": (),
    "link_flags": ("-lcublas", "-lcudnn"),
    "with_cuda": False,
    "architectures": "9.0",
}


def test_the_digest_changes_with_each_field() -> None:
    assert set(OTHERS) == set(BUILD.to_json())
    digests = {replace(BUILD, **{name: value}).digest for name, value in OTHERS.items()}
    assert len(digests | {BUILD.digest}) == len(OTHERS) + 1


def test_texts_cannot_move_from_one_field_to_another_without_another_digest() -> None:
    builds = [
        replace(BUILD, cpp_flags=("-a", "-b"), cuda_flags=()),
        replace(BUILD, cpp_flags=("-a",), cuda_flags=("-b",)),
        replace(BUILD, cpp_flags=("-a -b",), cuda_flags=()),
        replace(BUILD, files=(("a.cpp", "1"), ("b.h", "2"))),
        replace(BUILD, files=(("a.cpp", '1"], ["b.h", "2'),)),
        replace(BUILD, files=(("b.h", "2"), ("a.cpp", "1"))),
    ]
    assert len({build.digest for build in builds}) == len(builds)


def test_the_digest_is_the_same_in_every_version() -> None:
    """A cache survives restarts, so a digest depends on nothing but the build."""
    build = NativeBuild("a", (("a.cpp", "1"),))
    assert build.digest == "787bf31cf25e379a35f836328b9b23579ed971a86b123fabbd27e8d08b5c666d"


def test_compilers_count_the_lines_that_the_candidate_wrote() -> None:
    build = NativeBuild("a", (("main.cpp", f"{CPP}int f();"), ("cuda.cu", f"{CUDA}int g();"), ("a.h", "int h();")))
    counted = build.with_own_lines()
    assert dict(counted.files) == {
        "main.cpp": f'{CPP}#line 1 "cpp_sources"\nint f();',
        "cuda.cu": f'{CUDA}#line 1 "cuda_sources"\nint g();',
        "a.h": "int h();",
    }
    assert counted.shown == {"cpp_sources": "int f();", "cuda_sources": "int g();", "a.h": "int h();"}
    assert counted.sources == build.sources


@pytest.mark.parametrize("text", ["", "int f();", f"\n{CPP}", CPP.strip(), CUDA.replace("<cuda.h>", "<cuda.h> ")])
def test_a_source_that_load_inline_did_not_begin_stays_as_it_is(text: str) -> None:
    build = NativeBuild("a", (("csrc/k.cpp", text),))
    assert build.with_own_lines() == build
    assert build.shown == {"k.cpp": text}


def test_sources_are_shown_by_the_name_without_folders() -> None:
    build = NativeBuild("a", (("csrc/k.cu", "1"), ("csrc/include/k.cuh", "2")))
    assert build.shown == {"k.cu": "1", "k.cuh": "2"}


@pytest.mark.parametrize("files", [(), (("candidate.py", ""),), (("a.h", ""), ("b.cuh", ""))])
def test_files_without_a_native_source_are_no_build(files: tuple[tuple[str, str], ...]) -> None:
    assert of_files(files, (), (), ()) is None


def test_files_of_a_request_become_the_library_native() -> None:
    files = (("k.cu", "int k;"), ("helper.py", "import native"), ("include/a.h", ""))
    build = of_files(files, ("-O3",), ("-O2",), ("cublas", "cudnn"))
    assert build is not None
    assert build.name == "native"
    assert build.files == (("include/a.h", ""), ("k.cu", "int k;"))
    assert (build.cuda_flags, build.cpp_flags) == (("-O3",), ("-O2",))
    assert build.link_flags == ("-lcublas", "-lcudnn")
    assert build.with_cuda


def test_the_order_of_files_does_not_matter() -> None:
    files = (("a.cpp", "1"), ("b.h", "2"), ("c.cpp", "3"))
    first, second = of_files(files, (), (), ()), of_files(files[::-1], (), (), ())
    assert first == second


@pytest.mark.parametrize(
    ("files", "with_cuda"),
    [
        ((("a.cpp", "int f();"),), False),
        ((("a.cpp", "#include <cuda_runtime.h>"),), True),
        ((("a.cpp", "int f();"), ("b.h", "#include <cuda.h>")), True),
        ((("a.cpp", "int f();"), ("k.cu", "")), True),
    ],
)
def test_cuda_is_used_if_a_file_needs_it(files: tuple[tuple[str, str], ...], *, with_cuda: bool) -> None:
    build = of_files(files, (), (), ())
    assert build is not None
    assert build.with_cuda is with_cuda
