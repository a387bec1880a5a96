"""Native code that a candidate built: names come from real shared objects, and verdicts name library calls (B11)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kerneldyno.evaluator.runner import native
from tests.evaluator.judge_harness import Judge, candidate, request

SOURCE = """
extern "C" int cublasSgemm_v2(void*);
extern "C" int cublasCreate_v2(void*);
#define KERNEL(name) void name(float* x)
extern "C" KERNEL(behind_a_macro) { *x = 1; }
template <typename T, int N> __attribute__((noinline)) void scaled(T* x, int n) { x[n] = N; }
namespace mine { void inner(const float* a, float* b) { *b = *a; } }
static __attribute__((noinline, used)) void local(int* p) { *p = 3; }
void go(float* x) { scaled<float, 4>(x, 1); cublasCreate_v2(x); cublasSgemm_v2(x); }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    source = folder / "code.cpp"
    source.write_text(SOURCE)
    library = folder / "code.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


def test_functions_are_known_by_the_names_that_profilers_write(built: Path) -> None:
    found = native.demangled(native.read(built).defines)
    wanted = {
        "behind_a_macro",
        "void scaled<float, 4>(float*, int)",
        "mine::inner(float const*, float*)",
        "local(int*)",
    }
    assert wanted <= found
    assert not any("cublas" in name for name in found)


def test_only_what_computes_in_a_library_counts_as_a_call_of_it(built: Path) -> None:
    needs = native.demangled(native.read(built).needs)
    assert {"cublasSgemm_v2", "cublasCreate_v2"} <= needs
    assert [name for name in needs if native.is_library_call(name)] == ["cublasSgemm_v2"]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("cublasGemmStridedBatchedEx", True),
        ("cublasLtMatmul", True),
        ("cublasLtMatmulDescCreate", True),
        ("cudnnConvolutionForward", True),
        ("void at::cuda::blas::gemm<float, float>(char, char)", True),
        ("cublasSetStream_v2", False),
        ("cudaLaunchKernel", False),
        ("at::_ops::empty_like::call(at::Tensor const&)", False),
    ],
)
def test_library_calls(name: str, counts: bool) -> None:
    assert native.is_library_call(name) is counts


@pytest.mark.parametrize("content", [b"", b"no ELF", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 500])
def test_what_is_no_shared_object_is_passed_over(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(content)
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f10 r-xp 00000000 00:1f 12 {broken}\n7f10-7f20 r--p 00000000 00:1f 13 {tmp_path}/gone.so\n")
    monkeypatch.setattr(native, "_MAPS", maps)
    assert native.loaded(str(tmp_path)) == native.Native()


def test_only_what_lies_in_the_scratch_is_the_candidates(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "with a space.so"
    shutil.copy(built, copy)
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f10 r-xp 00000000 00:1f 12 {built}\n7f20-7f30 rw-p 00000000 00:00 0\n")
    monkeypatch.setattr(native, "_MAPS", maps)
    assert native.loaded(str(tmp_path)) == native.Native()
    maps.write_text(f"7f00-7f10 r-xp 00000000 00:1f 12 {copy}\n")
    assert "behind_a_macro" in native.loaded(str(tmp_path)).defines


def test_a_verdict_names_operators_of_torch_and_libraries_that_native_code_calls(judge: Judge) -> None:
    builds = f"""
import ctypes, subprocess
with open("code.cpp", "w") as file:
    file.write({SOURCE!r})
subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", "code.so", "code.cpp"], check=True)
ctypes.CDLL("./code.so", mode=1)  # RTLD_LAZY
"""
    plain = judge.evaluate(request(candidate(body="pass")))
    native_too = judge.evaluate(request(candidate(prologue=builds)))
    as_torch = judge.evaluate(request(candidate(), backend="torch"))
    assert [each["outcome"] for each in (plain, native_too, as_torch)] == ["CORRECT"] * 3, native_too["message"]
    assert labels(plain) == ["torch's own operators did work in a call: aten::addmm"]
    assert labels(native_too) == [f"{labels(plain)[0]}; its native code calls cublasSgemm_v2"]
    assert labels(as_torch) == []
    assert plain["logs"] == "", "a profiler that talks would talk in the candidate's name"


def labels(result: dict[str, list[dict[str, str]]]) -> list[str]:
    return [finding["evidence"] for finding in result.get("findings", []) if finding["id"] == "B11"]
