"""The backends cute, cutile and tilelang: offered where their packages are, and told of launches by functions in them.

The packages here are stand-ins with the functions that the real ones have. Tests at the end look at the real ones, if
they are installed; candidates in these languages need a GPU (tests/gpu/test_tile_languages_gpu.py).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
import torch

from kerneldyno.evaluator.backends import Backend, backends, tile_language
from kerneldyno.evaluator.backends.cute import CuteBackend
from kerneldyno.evaluator.backends.cutile import CutileBackend
from kerneldyno.evaluator.backends.tile_language import PackageMissingError
from kerneldyno.evaluator.backends.tilelang import TilelangBackend
from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.runner import profiler
from kerneldyno.evaluator.server import registry
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, request

LANGUAGES = ("cute", "cutile", "tilelang")
PACKAGES = ("nvidia_cutlass_dsl", "cuda.tile", "tilelang")
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
DEVICE = open_device("cpu")
#: A candidate for TileLang's CPU target, which needs no GPU.
ON_THE_CPU = """
import tilelang
import tilelang.language as T
import torch

@tilelang.jit(out_idx=[1], target="c", execution_backend="cython")
def squared(count):
    @T.prim_func
    def main(x: T.Tensor((count,), "float32"), out: T.Tensor((count,), "float32")):
        with T.Kernel(1) as _:
            for i in T.serial(count):
                out[i] = x[i] * x[i]
    return main

class ModelNew(torch.nn.Module):
    def forward(self, x):
        ANSWER
"""
SQUARE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * x

def get_inputs():
    return [torch.randn(1000)]

def get_init_inputs():
    return []
"""


def module(name: str, **contents: Any) -> Any:
    """Return a module with these contents, in place of any of that name, until `no_packages` ends."""
    made = ModuleType(name)
    vars(made).update(contents)
    sys.modules[name] = made
    return made


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """None of the packages can be imported; a test may put stand-ins there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for language in LANGUAGES:
        monkeypatch.setenv(getattr(backends()[language], "cache_variable"), "/elsewhere")  # noqa: B009 (not of Backend)
    before = dict(sys.modules)
    for name in ("cutlass", "cuda", "cuda.tile", "tilelang"):
        cast(dict[str, Any], sys.modules)[name] = None  # Python then says that there is no such module
    yield
    sys.modules.clear()
    sys.modules.update(before)


def test_they_are_offered_where_their_packages_are(monkeypatch: pytest.MonkeyPatch) -> None:
    always = ("triton", "cuda", "torch")
    looked_for = []

    def find(name: str) -> object:
        looked_for.append(name)
        if name == "cuda.tile":
            raise ModuleNotFoundError("No module named 'cuda'")
        return None if name == "nvidia_cutlass_dsl" else object()

    monkeypatch.setattr(metadata, "entry_points", lambda group: ())
    monkeypatch.setattr(importlib.util, "find_spec", find)
    assert registry.backend_names() == (*always, "tilelang")
    assert looked_for == list(PACKAGES)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert registry.backend_names() == (*always, *LANGUAGES)


def test_the_server_looks_for_packages_without_importing_them(tmp_path: Path) -> None:
    for package in PACKAGES:
        folder = tmp_path / package.replace(".", "/")
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise AssertionError('imported')\n")
    program = "from kerneldyno.evaluator.server import registry; print(*registry.backend_names())"
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert set(LANGUAGES) <= set(done.stdout.split()), done.stderr


def test_each_has_an_extra_and_an_entry_point() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    assert set(LANGUAGES) <= set(project["optional-dependencies"])
    points = project["entry-points"]["kerneldyno.backends"]
    assert points == {name: f"kerneldyno.evaluator.backends.{name}:BACKEND" for name in points}
    assert set(points) == set(registry._BUILT_IN["kerneldyno.backends"])
    assert set(points) <= set(backends())
    assert all(backends()[name].must_launch for name in LANGUAGES)


@pytest.mark.usefixtures("no_packages")
@pytest.mark.parametrize("name", LANGUAGES)
def test_a_missing_package_is_said_with_its_extra(name: str) -> None:
    with pytest.raises(PackageMissingError, match=rf"^backend {name} is not .*: install kerneldyno\[{name}\]$"):
        backends()[name].prepare(DEVICE)


def test_a_judge_that_is_asked_nevertheless_says_so() -> None:
    if set(LANGUAGES) & set(registry.backend_names()):
        pytest.skip("a package is installed")
    with Judge() as judge:
        result = judge.evaluate(request("class ModelNew: ...", backend="cute"))
    assert result["outcome"] == "COMPILE_ERROR"
    assert "backend cute is not installed on this node" in result["compile_error"]["message"]


def test_names_are_cut_as_in_a_profile() -> None:
    assert tile_language.LONGEST_NAME == profiler.NAME


class Calls(list[str]):
    """What was launched."""


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def cute(no_packages: None, calls: Calls) -> Any:
    """A stand-in for CuTe DSL: its executor, its compiled functions, and those that are called through TVM's FFI."""

    class JitExecutor:
        def run_compiled_program(self, arguments: list[object]) -> int:
            calls.append("native")
            return 0

    class JitCompiledFunction:
        def __init__(self, *kernels: str) -> None:
            self.kernel_info = dict.fromkeys(kernels, ())

        def __call__(self, *arguments: object) -> int:
            return JitExecutor().run_compiled_program([*arguments])

    class TVMFFIJitCompiledFunction(JitCompiledFunction):
        def __call__(self, *arguments: object) -> int:
            calls.append("ffi")
            return 0

    class TVMFFIJitCompiledFunctionWithKwargs(TVMFFIJitCompiledFunction):
        def __call__(self, *arguments: object) -> int:
            calls.append("ffi with names")
            return 0

    cutlass = module("cutlass")
    cutlass.cute, cutlass.base_dsl = module("cutlass.cute"), module("cutlass.base_dsl")
    module("cutlass.base_dsl.jit_executor", JitExecutor=JitExecutor, JitCompiledFunction=JitCompiledFunction)
    module("cutlass.cutlass_dsl")
    return module(
        "cutlass.cutlass_dsl.tvm_ffi_provider",
        TVMFFIJitCompiledFunction=TVMFFIJitCompiledFunction,
        TVMFFIJitCompiledFunctionWithKwargs=TVMFFIJitCompiledFunctionWithKwargs,
        Native=JitCompiledFunction,
    )


def test_cute_launches_are_counted_and_suppressed(cute: Any, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = CuteBackend()
    backend.prepare(DEVICE)
    backend.prepare(DEVICE)  # once more changes nothing
    functions = [
        cute.Native("kernel_cutlass_relu_0"),
        cute.TVMFFIJitCompiledFunction("k" * 500),
        cute.TVMFFIJitCompiledFunctionWithKwargs("other"),
    ]
    with backend.count_launches(DEVICE) as launches:
        assert [function(1) for function in functions] == [0, 0, 0]
    assert calls == ["native", "ffi", "ffi with names"]
    assert (launches.count, launches.names) == (3, {"kernel_cutlass_relu_0", "k" * 400, "other"})
    calls.clear()
    with backend.suppress_launches(DEVICE) as launches:
        assert [function(1) for function in functions] == [None] * 3
    assert (launches.count, calls) == (3, [])
    functions[0](1)
    assert calls == ["native"]


def test_what_is_compiled_and_not_launched_has_no_name(cute: Any) -> None:
    backend = CuteBackend()
    backend.prepare(DEVICE)
    with backend.count_launches(DEVICE) as launches:
        cute.Native("kernel_cutlass_relu_0")
    assert (launches.count, launches.names) == (0, set())


def test_replays_of_graphs_are_launches(cute: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[object] = []
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replays.append)
    backend = CuteBackend()
    backend.prepare(DEVICE)
    with backend.count_launches(DEVICE) as launches:
        torch.cuda.CUDAGraph.replay(cast(Any, "graph"))
    with backend.suppress_launches(DEVICE) as suppressed:
        torch.cuda.CUDAGraph.replay(cast(Any, "graph"))
    assert (launches.count, suppressed.count, replays) == (1, 1, ["graph"])


def test_cutile_launches_are_counted_however_launch_was_imported(no_packages: None, calls: Calls) -> None:
    class Kernel:
        def _compile(self, signature: str, context: object) -> tuple[bytes, str, None, tuple[()]]:
            return b"", f"relu_{signature}", None, ()

    def original(stream: object, grid: tuple[int, ...], kernel: Kernel, arguments: tuple[object, ...]) -> None:
        kernel._compile(str(arguments[0]), None)
        calls.append("launch")

    module("cuda").tile = tile = module("cuda.tile", launch=original, kernel=Kernel)
    backend = CutileBackend()
    backend.prepare(DEVICE)
    launch = tile.launch  # as `from cuda.tile import launch` does in the candidate
    backend.prepare(DEVICE)
    assert tile.launch is launch
    launch(None, (1,), Kernel(), ("before",))
    with backend.count_launches(DEVICE) as launches:
        launch(None, (1,), Kernel(), ("f32",))
        tile.launch(None, (1,), Kernel(), ("f16",))
        with pytest.raises(IndexError):
            launch(None, (1,), Kernel(), ())
    assert (launches.count, launches.names) == (2, {"relu_before", "relu_f32", "relu_f16"})
    calls.clear()
    with backend.suppress_launches(DEVICE) as launches:
        launch(None, (1,), Kernel(), ("f32",))
    assert (launches.count, calls) == (1, [])


def test_tilelang_launches_are_counted_and_leave_no_trace_when_suppressed(no_packages: None) -> None:
    class JITKernel:
        def __call__(self, x: torch.Tensor, *, out: torch.Tensor | None = None) -> object:
            if out is not None:
                out.copy_(x + 1)
                return None
            return [x + 1, x.sum()]

        def get_kernel_source(self) -> str:
            return (
                'extern "C" __global__ void relu_kernel(float* __restrict__ x);\n'
                'extern "C" __global__ void __launch_bounds__(256, 1) relu_kernel(float* __restrict__ x) {}\n'
                'extern "C" __global__ void __launch_bounds__(128, 1) relu_kernel_1(float* __restrict__ x) {}\n'
            )

    module("tilelang")
    module("tilelang.jit", JITKernel=JITKernel)
    backend, kernel, x, out = TilelangBackend(), JITKernel(), torch.ones(3), torch.zeros(3)
    backend.prepare(DEVICE)
    with backend.count_launches(DEVICE) as launches:
        kernel(x, out=out)
    assert (launches.count, launches.names) == (1, {"relu_kernel", "relu_kernel_1"})
    assert out.tolist() == [2, 2, 2]
    with backend.suppress_launches(DEVICE) as launches:
        assert kernel(x, out=out.zero_()) is None
        returned = cast(list[torch.Tensor], kernel(x))
    assert (launches.count, out.tolist()) == (2, [0, 0, 0])
    assert [value.tolist() for value in returned] == [[0, 0, 0], 0]


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_real_package_has_what_is_replaced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in registry.backend_names():
        pytest.skip(f"kerneldyno[{name}] is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    backend: Backend = backends()[name]
    backend.prepare(DEVICE)
    with backend.suppress_launches(DEVICE) as launches:
        pass
    assert launches.count == 0


@pytest.mark.skipif(judge_harness.DEVICE != "cpu:0", reason="candidates of the CPU target need tensors of the CPU")
@pytest.mark.skipif("tilelang" not in registry.backend_names(), reason="kerneldyno[tilelang] is not installed")
@pytest.mark.parametrize(
    ("answer", "outcome", "findings"),
    [
        ("return squared(1000)(x)", "CORRECT", []),
        ("return x * x", "REJECTED", ["S19"]),
        ("squared(1000)(x); return x * x", "REJECTED", ["S20"]),
    ],
)
def test_real_candidates_of_tilelangs_cpu_target(answer: str, outcome: str, findings: list[str]) -> None:
    with Judge() as judge:
        asked = request(ON_THE_CPU.replace("ANSWER", answer), backend="tilelang", reference_code=SQUARE)
        result = judge.evaluate(asked)
    assert (result["outcome"], [finding["id"] for finding in result.get("findings", ())]) == (outcome, findings), result
