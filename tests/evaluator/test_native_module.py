"""The module `native`: which functions it finds in C++ sources, and what it lets Python pass to them."""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.runner.native_module import Finder, PrototypeError, prototypes
from kerneldyno.evaluator.shared.native_build import NATIVE, NativeBuild

FOUND = {
    "one": ('extern "C" void f(float* x, int n) {}', {"f": ("void", ["*", "int"])}),
    "a declaration": ('extern "C" int f(int64_t n);', {"f": ("int", ["int64_t"])}),
    "no parameters": ('extern "C" int f() {}', {"f": ("int", [])}),
    "void": ('extern "C" int f(void) {}', {"f": ("int", [])}),
    "without names": (
        'extern "C" void f(const float*, float *__restrict__, int, unsigned int);',
        {"f": ("void", ["*", "*", "int", "unsigned int"])},
    ),
    "const and restrict": (
        'extern "C" void f(const float* __restrict__ x, float* const __restrict y, const int n, int const m) {}',
        {"f": ("void", ["*", "*", "int", "int"])},
    ),
    "arrays": ('extern "C" void f(float x[], const int n[4]) {}', {"f": ("void", ["*", "*"])}),
    "pointers to pointers": ('extern "C" void f(float** x, void *y) {}', {"f": ("void", ["*", "*"])}),
    "a stream": (
        'extern "C" cudaError_t f(float* x, cudaStream_t stream) {}',
        {"f": ("cudaError_t", ["*", "cudaStream_t"])},
    ),
    "words of types": (
        'extern "C" long long f(unsigned long long a, long int b, unsigned c, std::size_t d, std::int32_t e, bool g);',
        {"f": ("long long", ["unsigned long long", "long int", "unsigned", "size_t", "int32_t", "bool"])},
    ),
    "several lines": (
        'extern "C"\nvoid\nf(\n    float* x,   // the input\n    int n /* its size, in elements */\n)\n{\n}\n',
        {"f": ("void", ["*", "int"])},
    ),
    "a pointer as the result": ('extern "C" float* f(int n) {}', {"f": ("*", ["int"])}),
    "a pointer beside the name": ('extern "C" const char *f(int n) {}', {"f": ("*", ["int"])}),
    "a function that cannot throw": ('extern "C" void f(int n) noexcept {}', {"f": ("void", ["int"])}),
    "a visible function": (
        'extern "C" __attribute__((visibility("default"))) void f(int n) {}',
        {"f": ("void", ["int"])},
    ),
    "an attribute": ('extern "C" [[nodiscard]] int f(int n) {}', {"f": ("int", ["int"])}),
    "a type that is not known": ('extern "C" void f(dim3 grid, half x) {}', {"f": ("void", ["dim3", "half"])}),
    "a block": (
        'extern "C" {\nvoid f(float* x) { if (x) { g(x); } for (;;) {} }\nint h(int n);\n}\nvoid i(int n);\n',
        {"f": ("void", ["*"]), "h": ("int", ["int"])},
    ),
    "two blocks": (
        'extern "C" { int f(int a); }\nextern "C" { int g(int a) { return a; } }',
        {"f": ("int", ["int"]), "g": ("int", ["int"])},
    ),
    "a block that is not closed": ('extern "C" { int f(int a);', {"f": ("int", ["int"])}),
    "a block in a header for C": (
        '#ifdef __cplusplus\nextern "C" {\n#endif\n\nvoid f(float* x);\n\n#ifdef __cplusplus\n}\n#endif\n',
        {"f": ("void", ["*"])},
    ),
    "a block with a definition": (
        'extern "C" {\n#include <stdint.h>\n#define SIZE \\\n    4\nint f(int a) { return SIZE; }\n'
        "#define X 1\nint g(int a);\n}",
        {"f": ("int", ["int"]), "g": ("int", ["int"])},
    ),
    "in a namespace": ('namespace a { extern "C" int f(int n) { return n; } }', {"f": ("int", ["int"])}),
    "declared and defined": (
        'extern "C" int f(int n);\nextern "C" int f(int n) { return n; }',
        {"f": ("int", ["int"])},
    ),
}

NOT_FOUND = {
    "nothing": "",
    "not of C": "void f(int n) {}",
    "another language": 'extern "C++" void f(int n) {}',
    "in a line of comment": '// extern "C" void f(int n) {}',
    "in a comment": '/* extern "C" void f(int n) {}\n extern "C" { void g(int n); } */',
    "a variable": 'extern "C" int f;',
    "a variable with a value": 'extern "C" int f = g(3);',
    "a variable in a block": 'extern "C" { int f; int g = h(3); }',
    "a call in a function": 'extern "C" { }\nvoid i() { f(3); }',
    "a function in a class in a block": 'extern "C" { struct S { void f(int n); }; }',
    "a kernel of a template": "template <typename T> __global__ void f(T* x) {}",
    "a word that ends like it": 'myextern_"C" void f(int n) {}',
}


@pytest.mark.pure
@pytest.mark.parametrize(("text", "expected"), FOUND.values(), ids=FOUND)
def test_functions_are_found(text: str, expected: dict[str, Any]) -> None:
    assert prototypes(text) == expected


@pytest.mark.pure
@pytest.mark.parametrize("text", NOT_FOUND.values(), ids=NOT_FOUND)
def test_what_is_no_function_of_c_is_not_found(text: str) -> None:
    assert prototypes(text) == {}


@pytest.mark.pure
@pytest.mark.parametrize("piece", ['extern "C" {', 'extern "C" ', "void f(", "/*", "a ", "#", "__attribute__((", "[["])
def test_a_hostile_text_takes_no_long_time(piece: str) -> None:
    """It runs in the candidate's own process, but a judge waits for it."""
    prototypes(piece * (10_000 // len(piece)))


SOURCE = r"""
#include <cstdint>
#include <cstddef>

static double seen[8];

extern "C" {
#define LENGTH 3
void scale(const float* __restrict__ x, float* __restrict__ y, int64_t n, float by)
{
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * by;
}
int length(void) { return LENGTH; }
}

extern "C" double sum(int a, unsigned b, long c, size_t d, float e, double f, bool g, short h)
{
    return a + b + c + d + e + f + (g ? 1000 : 0) + h;
}

extern "C" int64_t address(const void* x) { return reinterpret_cast<int64_t>(x); }

extern "C" int is_null(const float* x) { return x == nullptr; }

typedef int cudaError_t;
extern "C" cudaError_t fails(int status) { return status; }

struct pair { int a, b; };
extern "C" int takes_a_struct(pair x) { return x.a; }

typedef void* cudaStream_t;
extern "C" int64_t on_a_stream(const float* x, cudaStream_t stream) { return reinterpret_cast<int64_t>(stream); }

extern "C" int only_declared(int a);
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of `SOURCE`."""
    directory = tmp_path_factory.mktemp("native")
    (directory / "a.cpp").write_text(SOURCE)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", "native.so", "a.cpp"], cwd=directory, check=True, timeout=60)
    return directory / "native.so"


@pytest.fixture
def import_native() -> Iterator[Callable[[NativeBuild, Callable[[], Path]], ModuleType]]:
    """Imports `native` for a build, and forgets it after the test."""
    finders: list[Finder] = []

    def imported(build: NativeBuild, path: Callable[[], Path]) -> ModuleType:
        finders.append(Finder(build, path))
        sys.meta_path.insert(0, finders[-1])
        return importlib.import_module(NATIVE)

    yield imported
    for finder in finders:
        sys.meta_path.remove(finder)
    sys.modules.pop(NATIVE, None)


@pytest.fixture
def native(library: Path, import_native: Any) -> Any:
    return import_native(NativeBuild(NATIVE, (("a.cpp", SOURCE),)), lambda: library)


def test_functions_take_tensors_and_numbers(native: Any) -> None:
    x, y = torch.arange(5, dtype=torch.float32), torch.zeros(5)
    assert native.scale(x, y, 5, 2.5) is None
    assert torch.equal(y, x * 2.5)
    assert native.length() == 3
    assert native.sum(1, 2, 3, 4, 0.5, 0.25, True, 6) == 1016.75
    assert native.sum(-1, 2, 3, 4, 1, 2, False, -6) == 5
    assert native.scale.__name__ == "scale"


def test_pointers_are_tensors_addresses_or_none(native: Any) -> None:
    x = torch.ones(4)
    assert native.address(x) == x.data_ptr()
    assert native.address(x[1:]) == x.data_ptr() + 4
    assert native.address(x.data_ptr()) == x.data_ptr()
    assert native.address(torch.nn.Parameter(x)) == x.data_ptr()
    assert native.is_null(None) == 1
    assert native.is_null(x) == 0
    buffer = (ctypes.c_float * 2)()
    assert native.address(ctypes.addressof(buffer)) == ctypes.addressof(buffer)


def test_a_stream_is_an_object_of_torch_or_its_address(native: Any) -> None:
    class Stream:
        cuda_stream = 1234

    assert native.on_a_stream(torch.ones(1), Stream()) == 1234
    assert native.on_a_stream(torch.ones(1), 99) == 99


def test_the_current_stream_is_the_default(native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        cuda_stream = 4321

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    assert native.on_a_stream(torch.ones(1)) == 4321
    with pytest.raises(PrototypeError, match="takes 2 arguments, not 0"):
        native.on_a_stream()


def test_an_error_of_cuda_is_raised(native: Any) -> None:
    assert native.fails(0) == 0
    with pytest.raises(RuntimeError, match="CUDA error: fails returned 700"):
        native.fails(700)


WRONG = {
    "too few": (
        "scale",
        (torch.ones(1), torch.ones(1), 1),
        r"scale\(\*, \*, int64_t, float\) takes 4 arguments, not 3",
    ),
    "too many": ("length", (1,), r"length\(\) takes 0 arguments, not 1"),
    "a tensor as a number": ("sum", (torch.ones(1), 2, 3, 4, 5, 6, True, 7), r"sum\(.*\): int got a tensor; use .item"),
    "a tensor as a fraction": ("scale", (torch.ones(1), torch.ones(1), 1, torch.ones(1)), "float got a tensor"),
    "a fraction as an integer": ("scale", (torch.ones(1), torch.ones(1), 1.5, 2.0), "int64_t got float"),
    "a text as a number": ("fails", ("1",), "int got str"),
    "none as a number": ("fails", (None,), "int got NoneType"),
    "a fraction as a pointer": ("address", (1.5,), r"address\(\*\): \* got float"),
    "a text as a pointer": ("address", ("x",), r"\* got str"),
    "a list as a pointer": ("address", ([1.0],), r"\* got list"),
    "a transposed tensor": ("address", (torch.ones(2, 3).t(),), r"strides \(1, 3\); use .contiguous\(\)"),
    "every second element": ("address", (torch.ones(4)[::2],), r"strides \(2,\); use .contiguous\(\)"),
    "a struct": ("takes_a_struct", (1,), r"takes_a_struct\(pair\): pair cannot be passed from Python; use pointers"),
}


@pytest.mark.parametrize(("name", "args", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_say_what_is_expected(native: Any, name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(PrototypeError, match=message):
        getattr(native, name)(*args)


def test_arguments_have_no_names(native: Any) -> None:
    with pytest.raises(TypeError, match="keyword"):
        native.fails(status=0)


def test_a_function_that_is_only_declared_is_not_there(native: Any) -> None:
    assert not hasattr(native, "only_declared")


def test_the_error_of_a_build_is_the_error_of_the_import(import_native: Any) -> None:
    def fails() -> Path:
        raise RuntimeError("Error building extension 'native': a.cpp:1: error")

    build = NativeBuild(NATIVE, (("a.cpp", SOURCE),))
    for _ in range(2):  # a failed import is not remembered
        with pytest.raises(RuntimeError, match="Error building extension 'native'"):
            import_native(build, fails)
        assert NATIVE not in sys.modules
    with pytest.raises(RuntimeError, match="Error building extension 'native'"):
        import_native(NativeBuild(NATIVE, (("a.cpp", "PYBIND11_MODULE(native, m) {}"),)), fails)


def test_a_file_that_is_no_library_is_an_import_that_fails(import_native: Any, tmp_path: Path) -> None:
    (tmp_path / "native.so").write_bytes(b"no library")
    with pytest.raises(OSError, match=r"native\.so"):
        import_native(NativeBuild(NATIVE, (("a.cpp", SOURCE),)), lambda: tmp_path / "native.so")


@pytest.mark.pure
def test_other_modules_are_found_by_others() -> None:
    finder = Finder(NativeBuild(NATIVE, (("a.cpp", SOURCE),)), Path)
    assert finder.find_spec("natives", None) is None
    assert finder.find_spec("torch.native", None) is None
