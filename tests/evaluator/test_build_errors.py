"""Errors of a build with lean headers: which are certainly the candidate's, and which all headers could mend.

A wrong True would refuse a candidate that PyTorch can build, so every doubt must give False.
"""

# ruff: noqa: RUF001 (g++ writes such quotation marks)
from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from kerneldyno.evaluator.compiling import errors, lean

HEADERS = [Path(path) for path in cpp_extension.include_paths() if "torch" in Path(path).parts]


def own(message: str, source: str, name: str = "x.cu") -> bool:
    """Return what is said about a message on a source. Tests with the marker `pure` may not search headers."""
    return errors.is_certainly_own(message, {name: source}, HEADERS)


#: Messages of nvcc 13.0 and g++ 12 that need no search in headers, each with the source.
OWN_GRAMMAR = {
    "nvcc, a variable twice": (
        'x.cu(2): error: variable "a" has already been defined (previous definition at line 2)\n',
        "int b;\nint a; int a;\n",
    ),
    "nvcc, a function twice": ('x.cu(2): error: function "f" has already been defined\n', "void f() {}\nvoid f() {}\n"),
    "g++, a variable twice": ("x.cu:1:12: error: redefinition of ‘int a’\n", "int a; int a;\n"),
    "g++, another type": ("x.cu:2:7: error: conflicting declaration ‘float a’\n", "int a;\nfloat a;\n"),
    "nvcc, no semicolon": ('x.cu(2): error: expected a ";"\n', "int b = 3\nint c;\n"),
    "g++, no semicolon": ("x.cu:1:10: error: expected ‘,’ or ‘;’ at end of input\n", "int b = 3\n"),
    "g++ in the C locale": ("x.cu:1:10: error: expected ',' or ';' at end of input\n", "int b = 3\n"),
    "nvcc, a character": ("x.cu(1): error: unrecognized token\n", "int a = `3;\n"),
    "g++, a character": ("x.cu:1:9: error: stray ‘`’ in program\n", "int a = `3;\n"),
    "nvcc, a quote": ("x.cu(1): error: missing closing quote\n", 'auto a = "3;\n'),
    "g++, a comment": ("x.cu:1:1: error: unterminated comment\n", "/* int a;\n"),
    "in a folder": ("csrc/x.cu:1:10: error: expected ‘;’ before ‘}’ token\n", "int b = 3\n"),
    "after a warning": (
        'x.cu(1): warning #177-D: variable "b" was declared but never referenced\n\nx.cu(2): error: expected a ";"\n',
        "int b;\nint c = 3\n",
    ),
    "after the names of the including files": (
        "In file included from main.cpp:1:\nx.cu:2:10: error: expected ‘;’ before ‘}’ token\n",
        "int b;\nint c = 3\n",
    ),
}


@pytest.mark.pure
@pytest.mark.parametrize(("message", "source"), OWN_GRAMMAR.values(), ids=OWN_GRAMMAR)
def test_what_no_header_can_mend_is_the_candidates(message: str, source: str) -> None:
    assert own(message, source)


#: Messages that a further declaration could mend, or that say nothing.
DOUBTS = {
    "nothing": ("", "int a;\n"),
    "no line with an error": ("Killed\n", "int a;\n"),
    "a signal": ("g++: internal compiler error: Segmentation fault signal terminated program cc1plus\n", "int a;\n"),
    "the linker": (
        "/usr/bin/ld: cannot find -lnope: No such file or directory\ncollect2: error: ld returned 1\n",
        "int a;\n",
    ),
    "ptxas": ("ptxas error   : Entry function 'k' uses too much shared data\n", "int a;\n"),
    "a text that looks like an error": ("note: error: expected\n", "int a;\n"),
    "a macro on the line": ('x.cu(1): error: expected a ";"\n', "C10_EXPORTS int c\n"),
    "a macro on the line before": ('x.cu(2): error: expected a ";"\n', "TORCH_SOMETHING(f)\nint c;\n"),
    "in a header of torch": ("/torch/include/ATen/Dispatch.h:80:1: error: expected ‘;’ at end of input\n", "int a;\n"),
    "a redefinition in a header of torch": (
        '/torch/include/c10/util/Half.h(12): error: variable "a" has already been defined\n',
        "int a;\n",
    ),
    "first in torch, then in the source": (
        '/torch/include/c10/util/Half.h(12): error: expected a declaration\nx.cu(1): error: expected a ";"\n',
        "int a\n",
    ),
    "a member that may be there": ("x.cu:1:5: error: ‘nope’ is not a member of ‘at’\n", "auto a = at::nope();\n"),
    "nvcc, a member": ('x.cu(1): error: namespace "at" has no member "nope"\n', "at::nope a;\n"),
    "a type in a namespace": ("x.cu:1:5: error: ‘Nope’ in namespace ‘at’ does not name a type\n", "at::Nope g();\n"),
    "a template in a namespace": (
        "x.cu:1:5: error: ‘Nope’ in namespace ‘at’ does not name a template type\n",
        "at::Nope<int> g();\n",
    ),
    "a namespace in a namespace": ("x.cu:1:1: error: ‘at::nope’ has not been declared\n", "at::nope::T g();\n"),
    "no overload": ("x.cu:1:1: error: no matching function for call to ‘f(int)’\n", "auto a = f(1);\n"),
    "an incomplete type": ("x.cu:1:1: error: invalid use of incomplete type ‘class at::Generator’\n", "int a;\n"),
    "a header that is missing": ("x.cu:1:10: fatal error: ATen/Nope.h: No such file or directory\n", "#include <a>\n"),
    "an argument that has no type": ("x.cu:1:6: error: variable or field ‘h’ declared void\n", "void h(at::Nope x);\n"),
    "a vector register": ("x.cu:1:1: error: ‘__m256’ does not name a type\n", "__m256 a;\n"),
    "a function of the processor": ("x.cu:1:9: error: ‘_mm_pause’ was not declared in this scope\n", "_mm_pause();\n"),
    "nvcc, an object of Python": ('x.cu(1): error: identifier "PyObject" is undefined\n', "PyObject* a;\n"),
    "an object of PyTorch in C": ("x.cu:1:1: error: ‘THPObjectPtr’ does not name a type\n", "THPObjectPtr a;\n"),
}


@pytest.mark.pure
@pytest.mark.parametrize(("message", "source"), DOUBTS.values(), ids=DOUBTS)
def test_in_doubt_all_headers_are_tried(message: str, source: str) -> None:
    assert not own(message, source)


@pytest.mark.pure
def test_an_error_in_a_file_that_is_not_the_candidates_is_in_doubt() -> None:
    assert not own('other.cu(1): error: expected a ";"\n', "int b = 3\n")
    assert not errors.is_certainly_own('x.cu(1): error: expected a ";"\n', {}, HEADERS)
    assert not errors.is_certainly_own('x.cu(1): error: expected a ";"\n', {"x.cu": ""}, HEADERS)


@pytest.mark.pure
@pytest.mark.parametrize("number", [0, 3, 99999999999999999999])
def test_a_line_that_is_not_there_raises_nothing(number: int) -> None:
    assert own(f'x.cu({number}): error: expected a ";"\n', "int a\nint b\n")


UNKNOWN = {
    "nvcc": 'x.cu(1): error: identifier "{0}" is undefined\n',
    "nvcc with numbers": 'x.cu(1): error #20: identifier "{0}" is undefined\n',
    "g++": "x.cu:1:18: error: ‘{0}’ was not declared in this scope\n",
    "g++ with a guess": "x.cu:1:18: error: ‘{0}’ was not declared in this scope; did you mean ‘foe’?\n",
    "g++ in the C locale": "x.cu:1:18: error: '{0}' was not declared in this scope\n",
    "g++, a type": "x.cu:1:1: error: ‘{0}’ does not name a type\n",
    "g++, a namespace": "x.cu:1:1: error: ‘{0}’ has not been declared\n",
}


@pytest.mark.parametrize("form", UNKNOWN.values(), ids=UNKNOWN)
def test_a_name_that_torch_does_not_have_is_the_candidates(form: str) -> None:
    assert own(form.format("qwertyFoo"), "x[0] = qwertyFoo;\n")
    assert own(form.format("qwertyFoo"), "x[0] = qwertyFoo(1);\n")
    assert own(form.format("qwertyFoo"), "using namespace torch;\nx[0] = qwertyFoo(1);\n")


@pytest.mark.parametrize("form", UNKNOWN.values(), ids=UNKNOWN)
def test_a_macro_of_torch_may_be_missing(form: str) -> None:
    assert not own(form.format("CAFFE_ENFORCE"), "auto a = CAFFE_ENFORCE;\n")
    assert not own(form.format("TORCH_VERSION_MAJOR"), "auto a = TORCH_VERSION_MAJOR;\n")


@pytest.mark.parametrize("form", UNKNOWN.values(), ids=UNKNOWN)
def test_a_function_of_torch_may_be_found_by_its_arguments(form: str) -> None:
    """`softmax(x, 1)` finds at::softmax, because x is an at::Tensor; as a plain name it does not."""
    assert not own(form.format("softmax"), "auto y = softmax(x, 1);\n")
    assert not own(form.format("softmax"), "auto y = softmax\n(x, 1);\n".replace("\n(", " ("))
    assert own(form.format("softmax"), "auto y = softmax;\n")


@pytest.mark.parametrize(
    "source",
    [
        "using namespace at;\nTensorIterator a;\n",
        "using at::TensorIterator;\nTensorIterator a;\n",
        "using  namespace torch::indexing;\nTensorIterator a;\n",
        "namespace at {\nTensorIterator a;\n}\n",
        "namespace torch::x {\nTensorIterator a;\n}\n",
    ],
)
def test_a_name_of_torchs_namespaces_may_be_used_without_them(source: str) -> None:
    message = "x.cu:2:1: error: ‘TensorIterator’ does not name a type\n"
    assert not own(message, source)
    assert own(message, "\nTensorIterator a;\n")


def test_a_using_in_another_file_counts() -> None:
    files = {"x.cu": "\nTensorIterator a;\n", "x.cuh": "using namespace at;\n"}
    assert not errors.is_certainly_own("x.cu:2:1: error: ‘TensorIterator’ does not name a type\n", files, HEADERS)


def test_without_headers_to_search_a_name_is_in_doubt(tmp_path: Path) -> None:
    message = UNKNOWN["nvcc"].format("qwertyFoo")
    assert not errors.is_certainly_own(message, {"x.cu": "qwertyFoo;\n"}, [tmp_path / "none"])


#: Sources for one run of g++. The last one has a brace that is never closed.
REAL = {
    "a typing error": ("int f_a() { return qwertyFoo; }\n", True),
    "no semicolon": ("int a = 3\nint b;\n", True),
    "twice": ("int twice;\nint twice;\n", True),
    "a type of at": ("at::TensorIterator make();\n", False),
    "a type of at in a function": ("void f_e() { at::TensorIterator a; }\n", False),
    "a type of at as an argument": ("void f_f(int, at::TensorIterator& a);\n", False),
    "an operator": ("auto f_g(at::Tensor x) { return at::softmax(x, 1); }\n", False),
    "an operator by its argument": ("auto f_h(at::Tensor x) { return softmax(x, 1); }\n", False),
    "a namespace": ("auto f_i(at::Tensor x) { return at::indexing::Slice(); }\n", False),
    "a vector register": ("void f_j(float* x) { __m256 a = _mm256_loadu_ps(x); }\n", False),
    "a macro": ("void f_k(int x) { CAFFE_ENFORCE(x); }\n", False),
    "a brace": ("int f_l() { return 1;\n", True),
}


@functools.cache
def log() -> str:
    """Return the messages of this machine's g++ about all of `REAL`, after the header of tensors."""
    sources = (f'#line 1 "{name.replace(" ", "_")}.cu"\n{source}' for name, (source, _) in REAL.items())
    ran = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", "-x", "c++", *(f"-I{path}" for path in HEADERS), "-"],
        input="\n".join(["#include <ATen/core/Tensor.h>", *sources]),
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize("name", REAL)
def test_messages_of_the_compiler_of_this_machine(name: str) -> None:
    source, expected = REAL[name]
    file = f"{name.replace(' ', '_')}.cu"
    messages = [line for line in log().splitlines() if line.startswith(f"{file}:") and " error: " in line]
    assert messages, log()
    assert own(messages[0], source, file) is expected, messages[0]


def test_the_headers_that_are_searched_are_there() -> None:
    assert HEADERS
    assert (HEADERS[0] / "ATen/TensorIterator.h").is_file()
    assert not (lean.HEADERS / "ATen/TensorIterator.h").exists()
