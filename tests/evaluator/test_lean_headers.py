"""Lean headers: what they take from PyTorch for a source, and that libraries do the same as with all headers."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

from kerneldyno.evaluator.compiling import lean, program
from kerneldyno.evaluator.shared.library_file import MOST_LOG
from kerneldyno.evaluator.shared.native_build import NativeBuild

INCLUDE = next(Path(path) for path in cpp_extension.include_paths() if "torch" in Path(path).parts)
OPERATORS = INCLUDE / "ATen/ops"


def included(text: str) -> set[str]:
    """Return the names of the headers that a source gets."""
    lines = lean.used(text, OPERATORS).splitlines()
    assert lines[0] == "#pragma once"
    return {line.removeprefix("#include <").removesuffix(">") for line in lines[1:]}


def ops(*names: str) -> set[str]:
    return {f"ATen/ops/{name}.h" for name in names}


USED = {
    "nothing": ("", set()),
    "no operator": ("int f(int x) { return relu(x); }", set()),
    "torch::": ("auto y = torch::relu(x);", ops("relu")),
    "at::": ("auto y = at::relu(x);", ops("relu")),
    "with a leading ::": ("auto y = ::at::relu(x);", ops("relu")),
    "several": (
        "auto y = torch::empty_like(x); auto z = at::zeros({1}, y.options()); torch::from_blob(p, {1});",
        ops("empty_like", "zeros", "from_blob"),
    ),
    "twice": ("torch::relu(x); at::relu(x);", ops("relu")),
    "in place": ("torch::relu_(x);", ops("relu")),
    "variants for an output": ("torch::matmul_out(y, a, b); at::addmm_outf(a);", ops("matmul", "addmm")),
    "without a call": ("auto f = &torch::relu;", ops("relu")),
    "names that are no operators": ("torch::Tensor x; at::ScalarType t; c10::Half h; torch::kFloat32;", set()),
    "what torch does not have": ("torch::flash_attention_9(x); at::no_such_thing(x);", set()),
    "a path": ("torch::../../../etc/passwd(x); at::____(x);", set()),
    "other namespaces": ("mytorch::relu(x); std::relu(x); nat::zeros(x);", set()),
    "using namespace torch": ("using namespace torch;\nauto y = relu(x) + softmax (x, 1);", ops("relu", "softmax")),
    "using namespace at": ("using  namespace  at;\nauto y = relu(x);", ops("relu")),
    "using another namespace": ("using namespace std;\nauto y = relu(x);", set()),
    "using one name": ("using at::relu;\nauto y = relu(x);", ops("relu")),
    "an index": ("x.index({torch::indexing::Slice()});", {"ATen/TensorIndexing.h"}),
    "an index of a pointer": ("x->index_put_({0}, 1);", {"ATen/TensorIndexing.h"}),
    "a tensor that is printed": ("std::cout << x;", {"ATen/core/Formatting.h"}),
    "a shift": ("int a = 1 << 3;", set()),
    "a library": ("TORCH_LIBRARY(a, m) {}", {"torch/library.h"}),
    "a fragment of a library": ("TORCH_LIBRARY_FRAGMENT(a, m) {}", {"torch/library.h"}),
}


@pytest.mark.pure
@pytest.mark.parametrize(("text", "expected"), USED.values(), ids=USED)
def test_a_source_gets_the_headers_of_what_it_names(text: str, expected: set[str]) -> None:
    assert included(text) == expected


@pytest.mark.pure
def test_only_headers_that_torch_has_are_included() -> None:
    words = sorted(path.stem for path in OPERATORS.glob("a*.h"))
    text = " ".join(f"torch::{word}(x); at::{word}_nope(x); torch::{word.upper()}();" for word in words)
    for header in included(text):
        assert (INCLUDE / header).is_file()


NEEDS_ALL = [
    "x.requires_grad();",
    "x.requires_grad_(true);",
    "torch::autograd::Function<F>",
    "using namespace torch::autograd;",
    "torch::nn::Linear l(1, 2);",
    "namespace F = torch::nn::functional;",
    "torch::jit::load(a);",
    "torch::optim::SGD s;",
    "torch::data::datasets::MNIST m;",
    "at::globalContext().deterministicAlgorithms()",
    "at::checkAllSameGPU(c, {a, b});",
    "at::TensorArg a{x};",
    "at::expand_size(x);",
]
NEEDS_FEW = ["", "int n;", "torch::Tensor x;", "torch::nnx", "mytorch::jit", "int autogradient;", "x.requires();"]


@pytest.mark.pure
@pytest.mark.parametrize("text", NEEDS_ALL)
def test_some_sources_need_all_headers(text: str) -> None:
    assert not lean.is_possible(text)
    assert not lean.is_possible(f"#include <torch/extension.h>\n{text}\n")


@pytest.mark.pure
@pytest.mark.parametrize("text", NEEDS_FEW)
def test_most_sources_do_not_need_all_headers(text: str) -> None:
    assert lean.is_possible(text)


BINDING = "#include <torch/extension.h>\n"
TWO = NativeBuild(
    "a",
    (
        ("main.cpp", f"{BINDING}auto y = torch::relu(x);"),
        ("csrc/k.cu", '#include "a.cuh"\nauto y = at::zeros(1);'),
        ("a.cuh", "inline auto f() { return at::ones(1); }"),
    ),
)


def folders(flags: list[str]) -> list[Path]:
    return [Path(flag[2:]) for flag in flags if flag.startswith("-I")]


@pytest.mark.pure
def test_each_source_has_a_folder_with_what_it_and_its_headers_name(tmp_path: Path) -> None:
    found = {}
    for source in TWO.sources:
        first, own = folders(lean.flags(TWO, source, INCLUDE, tmp_path))
        assert first == lean.HEADERS
        assert own.parent == tmp_path
        found[source] = (own / lean.USED).read_text()
    assert found == {
        "main.cpp": lean.used("at::relu at::ones", OPERATORS),
        "csrc/k.cu": lean.used("at::zeros at::ones", OPERATORS),
    }


@pytest.mark.pure
def test_nvcc_reads_bindings_only_for_a_source_that_has_one(tmp_path: Path) -> None:
    binding = NativeBuild("a", (("k.cu", "PYBIND11_MODULE(a, m) {}"), ("l.cu", "int a;"), ("m.cpp", "pybind11::x")))
    defined = {
        source: "-DKERNELDYNO_BINDING" in lean.flags(binding, source, INCLUDE, tmp_path) for source in binding.sources
    }
    assert defined == {"k.cu": True, "l.cu": False, "m.cpp": False}


MODULE = '\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\nm.def("f", torch::wrap_pybind_function(f), "f");\n}'
#: Sources, and whether they only declare functions and bind them, as `load_inline` writes it.
BINDINGS = {
    "a declaration": ("main.cpp", f"{BINDING}at::Tensor f(at::Tensor x);{MODULE}", True),
    "with own lines": ("main.cpp", f'{BINDING}#line 1 "cpp_sources"\nint f();{MODULE}', True),
    "a definition": ("main.cpp", f"{BINDING}at::Tensor f(at::Tensor x) {{ return x.relu(); }}{MODULE}", False),
    "no binding": ("main.cpp", f"{BINDING}at::Tensor f(at::Tensor x);", False),
    "another header first": ("main.cpp", f"#include <vector>\n{BINDING}int f();{MODULE}", False),
    "for nvcc": ("main.cu", f"{BINDING}int f();{MODULE}", False),
}


@pytest.mark.pure
@pytest.mark.parametrize(("source", "text", "uses"), BINDINGS.values(), ids=BINDINGS)
def test_bindings_that_only_declare_use_the_header_that_was_compiled_ahead(
    source: str, text: str, *, uses: bool, tmp_path: Path
) -> None:
    build, ahead = NativeBuild("a", ((source, text),)), tmp_path / "header"
    assert (str(ahead / lean.PRECOMPILED) in lean.flags(build, source, INCLUDE, tmp_path, ahead)) is uses
    (tmp_path / "again").mkdir()
    assert "-include" not in lean.flags(build, source, INCLUDE, tmp_path / "again"), "there may be no such header"


@pytest.mark.pure
def test_every_lean_header_stands_for_one_of_torch() -> None:
    places = [INCLUDE, INCLUDE / "torch/csrc/api/include"]
    ours = [path.relative_to(lean.HEADERS) for path in lean.HEADERS.rglob("*.h")]
    assert ours
    for path in ours:
        assert path.parts[0] == "thrust" or any((place / path).is_file() for place in places), path


Build = Callable[..., tuple[dict[str, Any], Path]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds a library of C++ sources. Returns the answer of the compiler process, and the path of the library."""

    def built(name: str, *files: tuple[str, str], **more: Any) -> tuple[dict[str, Any], Path]:
        scratch, target = tmp_path / name, tmp_path / f"{name}{cpp_extension.LIB_EXT}"
        scratch.mkdir()

        def store(path: Path) -> int:
            shutil.copy(path, target)
            return target.stat().st_size

        described = NativeBuild(name, files, with_cuda=False, **more).with_own_lines()
        return program.build_library(described, scratch, store), target

    return built


def imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_library_without_torch(build: Build) -> None:
    answer, path = build(
        "plain",
        ("src/a.cpp", '#include "inner/a.h"\nextern "C" int f() { return SIZE * g(); }'),
        ("b.cc", 'extern "C" int g() { return MORE; }'),
        ("inner/a.h", '#define SIZE 6\nextern "C" int g();'),
        cpp_flags=("-O1", "-DMORE=7"),
    )
    assert answer["log"] == ""
    assert answer["lean"] is True
    assert answer["size"] == path.stat().st_size
    assert sorted(name.split()[-1] for name, _ in answer["steps"]) == ["b.cc", "link", "src/a.cpp"]
    assert all(seconds > 0 for _, seconds in answer["steps"])
    assert ctypes.CDLL(str(path)).f() == 42


def test_a_message_counts_the_lines_of_the_candidate(build: Build) -> None:
    answer, _ = build("typo", ("main.cpp", "int a;\n\nint f() { return qwertyFoo; }\n"))
    assert answer["size"] == 0
    assert answer["log"].count("main.cpp:3:18: error:") == 1
    assert "return qwertyFoo;" in answer["log"], "the compiler quotes the line"
    assert "/typo/" not in answer["log"], "paths of the builder are nobody's business"
    assert len(answer["steps"]) == 1, "all headers would not help"


def test_in_doubt_the_build_is_repeated_with_all_headers(build: Build) -> None:
    answer, _ = build("doubt", ("main.cpp", "namespace at {}\nint f() { return at::qwertyFoo; }\n"))
    assert answer["size"] == 0
    assert "qwertyFoo" in answer["log"]
    assert answer["lean"] is False
    assert len(answer["steps"]) == 2


def test_a_very_long_message_is_cut(build: Build) -> None:
    source = "".join(f"int a{n} = qwerty{n};\n" for n in range(2000))
    answer, _ = build("long", ("main.cpp", source))
    assert len(answer["log"]) == MOST_LOG
    assert "main.cpp:1:10: error:" in answer["log"]


def test_a_flag_that_the_compiler_does_not_know_is_its_message(build: Build) -> None:
    answer, _ = build("flag", ("main.cpp", "int a;"), cpp_flags=("-fno-such-flag-at-all",))
    assert answer["size"] == 0
    assert "no-such-flag-at-all" in answer["log"]


def test_a_library_that_is_not_there_is_the_linkers_message(build: Build) -> None:
    answer, _ = build("link", ("main.cpp", "int a;"), link_flags=("-lnosuchlibrary",))
    assert answer["size"] == 0
    assert "nosuchlibrary" in answer["log"]


@pytest.mark.parametrize(
    "files",
    [
        [("a.cpp", "int a;"), ("a.cc", "int b;")],  # both would be a.o
        [("a.cpp", "int a;"), ("a.cpp/b.h", "")],  # a file and a folder of one name
        [("a.cpp", "int f() { return 1; }"), ("build.ninja/a.h", "")],
    ],
)
def test_files_that_cannot_be_built_together_are_an_answer(build: Build, files: list[tuple[str, str]]) -> None:
    answer, _ = build("files", *files)
    assert answer["size"] == 0
    assert answer["log"]


@pytest.mark.parametrize("name", ["lean_a.cpp/b.h", "kerneldyno_used.h", "torch/types.h", "full/b.h"])
def test_a_candidates_file_may_have_any_name(build: Build, name: str) -> None:
    answer, path = build("names", ("a.cpp", 'extern "C" int f() { return 3; }'), (name, "#error not included"))
    assert answer["log"] == ""
    assert ctypes.CDLL(str(path)).f() == 3


def test_a_library_of_exactly_the_largest_size_is_stored_and_a_larger_one_is_not(tmp_path: Path) -> None:
    path, memory_file = tmp_path / "library.so", os.memfd_create("test")
    try:
        path.write_bytes(b"x" * 1000)
        assert program._store(path, memory_file, 1000) == 1000
        assert os.fstat(memory_file).st_size == 1000
        for content in (b"x" * 1001, b""):
            path.write_bytes(content)
            with pytest.raises(program.TooLarge, match="MiB"):
                program._store(path, memory_file, 1000)
        assert os.fstat(memory_file).st_size == 1000
    finally:
        os.close(memory_file)


def test_a_library_that_is_too_large_is_built_only_once(tmp_path: Path) -> None:
    memory_file = os.memfd_create("test")
    try:
        build = NativeBuild("large", (("a.cpp", "char a[1 << 20] = {1};"),), with_cuda=False)
        store = functools.partial(program._store, memory_file=memory_file, most=1 << 20)
        answer = program.build_library(build, tmp_path, store)
    finally:
        os.close(memory_file)
    assert answer["size"] == 0
    assert answer["log"] == "the library has 1 MiB; at most 1 MiB are allowed"
    assert [name.split()[-1] for name, _ in answer["steps"]] == ["a.cpp", "link"]


_BINDING = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
SOURCE = """
#include <torch/extension.h>

torch::Tensor relu_plus(torch::Tensor x, double by) {
    TORCH_CHECK(x.dim() == 2, "x must have 2 dimensions, not ", x.dim());
    return torch::relu(x) * 2 + by;
}

std::vector<at::Tensor> statistics(at::Tensor x) {
    auto [values, places] = torch::max(x, 1);
    return {x.sum(), x.mean(1), values, places, at::softmax(x, -1), x.t().contiguous()};
}

at::Tensor by_hand(const at::Tensor& x) {
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "by_hand", [&] {
        const auto* from = x.data_ptr<scalar_t>();
        auto* to = y.data_ptr<scalar_t>();
        for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] * static_cast<scalar_t>(3);
    });
    return y;
}

at::Tensor first_row(at::Tensor x, std::optional<at::Tensor> bias) {
    using namespace torch::indexing;
    auto row = x.index({0, Slice(None, 2)});
    return bias ? row + *bias : row;
}

at::Tensor made(at::IntArrayRef sizes, at::ScalarType dtype) {
    return torch::full(sizes, 7, torch::TensorOptions().dtype(dtype)) + torch::arange(sizes.back(), torch::kFloat64);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("relu_plus", &relu_plus, py::arg("x"), py::arg("by") = 1.5);
    m.def("statistics", &statistics);
    m.def("by_hand", &by_hand);
    m.def("first_row", &first_row);
    m.def("made", [] { return made({2, 3}, torch::kFloat32); });
}
"""


def results(module: Any) -> list[torch.Tensor]:
    """Return what all functions of `SOURCE` compute."""
    x = torch.arange(-6, 6, dtype=torch.float32).reshape(3, 4) / 3
    with pytest.raises(RuntimeError, match="x must have 2 dimensions, not 1"):
        module.relu_plus(x[0])
    with pytest.raises(RuntimeError, match=r'"by_hand" not implemented for \'Int\''):
        module.by_hand(x.int())
    with pytest.raises(TypeError, match="incompatible function arguments"):
        module.by_hand(3)
    return [
        *(module.relu_plus(x), module.relu_plus(x, by=-1.0), *module.statistics(x)),
        *(module.by_hand(x), module.by_hand(x.half()), module.by_hand(x.double())),
        *(module.first_row(x, None), module.first_row(x, torch.ones(2)), module.made()),
    ]


def expected() -> list[torch.Tensor]:
    x = torch.arange(-6, 6, dtype=torch.float32).reshape(3, 4) / 3
    return [
        *(x.relu() * 2 + 1.5, x.relu() * 2 - 1.0),
        *(x.sum(), x.mean(1), *x.max(1), x.softmax(-1), x.t().contiguous()),
        *(x * 3, x.half() * 3, x.double() * 3),
        *(x[0, :2], x[0, :2] + 1, torch.full((2, 3), 7.0) + torch.arange(3, dtype=torch.float64)),
    ]


def assert_same(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.stride() == theirs.stride()
        assert torch.equal(mine, theirs)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_library_with_lean_headers_does_what_one_with_all_headers_does(build: Build) -> None:
    """The second source uses a module of torch, so it is compiled with all headers at once."""
    few, few_path = build("few", ("main.cpp", SOURCE))
    assert few["log"] == ""
    assert few["lean"] is True
    function = "at::Tensor gelu(at::Tensor x) { return torch::nn::functional::gelu(x); }\n"
    source = SOURCE.replace(_BINDING, f'{function}{_BINDING}    m.def("gelu", &gelu);\n')
    every, every_path = build("every", ("main.cpp", source))
    assert (every["log"], every["lean"]) == ("", False)
    assert [name.split()[-1] for name, _ in every["steps"]] == ["main.cpp", "link"]
    assert_same(results(imported("few", few_path)), expected())
    module = imported("every", every_path)
    assert_same(results(module), expected())
    x = torch.arange(4.0)
    assert torch.equal(module.gelu(x), torch.nn.functional.gelu(x))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_library_of_operators_that_prints_needs_only_lean_headers(build: Build) -> None:
    source = (
        "#include <torch/extension.h>\n"
        "at::Tensor twice(const at::Tensor& x) { std::ostringstream text; text << x.sizes() << x; return x + x; }\n"
        'TORCH_LIBRARY(kerneldyno_test_lean, m) { m.def("twice", &twice); }\n'
        "void show(at::Tensor x) { std::cout << x; }\n"
    )
    answer, path = build("operators", ("main.cpp", source))
    assert (answer["log"], answer["lean"]) == ("", True)
    torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    assert torch.equal(torch.ops.kerneldyno_test_lean.twice(torch.arange(3.0)), torch.arange(3.0) * 2)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_source_that_only_all_headers_can_compile_is_compiled_with_them(build: Build) -> None:
    """Nothing in the text says that it needs them; the first compilation shows it."""
    source = (
        "#include <torch/types.h>\n"
        "at::TensorIterator make(at::Tensor& y, at::Tensor x) { return at::TensorIterator::unary_op(y, x); }\n"
        "int64_t count(at::Tensor x) { auto y = x.clone(); return make(y, x).numel(); }\n"
        'TORCH_LIBRARY(kerneldyno_test_iterator, m) { m.def("count", &count); }\n'
    )
    assert lean.is_possible(source)
    answer, path = build("iterator", ("main.cpp", source))
    assert answer["log"] == ""
    assert answer["lean"] is False
    assert [name.split()[-1] for name, _ in answer["steps"]] == ["main.cpp", "main.cpp", "link"]
    torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    assert torch.ops.kerneldyno_test_iterator.count(torch.ones(2, 3)) == 6
