"""Flags that mean "of this machine": a builder has no GPU, and hosts with other processors may share its cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneldyno.evaluator.builder import toolchain
from kerneldyno.evaluator.builder.toolchain import Toolchain
from kerneldyno.evaluator.builder.workshop import _refused_flags
from kerneldyno.evaluator.shared.native_build import NativeBuild

FILES = (("a.cu", "void f() {}"),)
CPUINFO = "processor\t: 0\nmodel name\t: {name}\ncpu MHz\t\t: {speed}\nflags\t\t: sse avx2\n\n"


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        (("-arch=native",), True),
        (("-O3", "-arch", "native"), True),
        (("--gpu-architecture=native",), True),
        (("--gpu-code", "native"), True),
        (("-arch=sm_90a",), False),
        (("-Xcompiler", "-march=native"), False),
        (("-DARCH=native",), False),
        ((), False),
    ],
)
def test_builders_build_for_no_gpu_that_they_do_not_see(flags: tuple[str, ...], refused: bool) -> None:
    assert ("builders have none" in _refused_flags(NativeBuild("a", FILES, cuda_flags=flags))) == refused


def test_code_for_one_kind_of_processor_is_not_found_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on(name: str, speed: int) -> Toolchain:
        cpuinfo = tmp_path / "cpuinfo"
        cpuinfo.write_text(CPUINFO.format(name=name, speed=speed))
        monkeypatch.setattr(toolchain, "_PROCESSOR", cpuinfo)
        return Toolchain("9.0a")

    one, same, other = on("A", 2100), on("A", 3000), on("B", 2100)
    plain = NativeBuild("a", FILES, cpp_flags=("-O3",))
    native = NativeBuild("a", FILES, cpp_flags=("-O3", "-march=native"))
    assert one.key(plain) == same.key(plain) == other.key(plain)
    assert one.key(native) == same.key(native) != other.key(native)
