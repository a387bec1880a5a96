"""The plan of nvcc's steps: both passes side by side for one architecture, and no plan for anything else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kerneldyno.evaluator.compiling import nvcc

#: What nvcc 13.0 prints to `nvcc --dryrun -gencode=arch=compute_90a,code=sm_90a -O3 -c x.cu -o x.o`, shortened.
RECORDED = r"""
#$ _NVVM_BRANCH_=nvvm
#$ _SPACE_= 
#$ _CUDART_=cudart
#$ _HERE_=/usr/local/cuda-13.0/bin
#$ _TARGET_SIZE_=
#$ _TARGET_DIR_=targets/x86_64-linux
#$ TOP=/usr/local/cuda-13.0/bin/..
#$ CICC_PATH=/usr/local/cuda-13.0/bin/../nvvm/bin
#$ NVVMIR_LIBRARY_DIR=/usr/local/cuda-13.0/bin/../nvvm/libdevice
#$ LD_LIBRARY_PATH=/usr/local/cuda-13.0/bin/../lib:
#$ PATH=/usr/local/cuda-13.0/bin/../nvvm/bin:/usr/local/cuda-13.0/bin:/usr/bin:/bin
#$ INCLUDES="-I/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include"  
#$ SYSTEM_INCLUDES="-isystem" "/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include/cccl"  
#$ CUDAFE_FLAGS=
#$ PTXAS_FLAGS=
#$ gcc -D__CUDA_ARCH_LIST__=900 -E -x c++ -D__CUDACC__ -D__NVCC__  -O3 -include "cuda_runtime.h" -m64 "x.cu" -o "/tmp/tmpxft_1-5_x.cpp4.ii" 
#$ cudafe++ --c++17 --static-host-stub --device-hidden-visibility --gnu_version=120200 --display_error_number --orig_src_file_name "x.cu" --orig_src_path_name "/tmp/nv/x.cu" --allow_managed  --m64 --parse_templates --gen_c_file_name "/tmp/tmpxft_1-6_x.cudafe1.cpp" --stub_file_name "tmpxft_1-6_x.cudafe1.stub.c" --gen_module_id_file --module_id_file_name "/tmp/tmpxft_1-4_x.module_id" "/tmp/tmpxft_1-5_x.cpp4.ii" 
#$ gcc -D__CUDA_ARCH__=900 -D__CUDA_ARCH_FEAT_SM90_ALL -D__CUDA_ARCH_LIST__=900 -E -x c++  -DCUDA_DOUBLE_MATH_FUNCTIONS -D__CUDACC__ -D__NVCC__  -O3 -include "cuda_runtime.h" -m64 "x.cu" -o "/tmp/tmpxft_1-7_x.cpp1.ii" 
#$ "$CICC_PATH/cicc" --c++17 --static-host-stub --device-hidden-visibility --gnu_version=120200 --orig_src_file_name "x.cu" -arch compute_90a -m64 --no-version-ident -ftz=0 -prec_div=1 --include_file_name "tmpxft_1-3_x.fatbin.c" -tused --module_id_file_name "/tmp/tmpxft_1-4_x.module_id" --gen_c_file_name "/tmp/tmpxft_1-6_x.cudafe1.c" --stub_file_name "/tmp/tmpxft_1-6_x.cudafe1.stub.c" --gen_device_file_name "/tmp/tmpxft_1-6_x.cudafe1.gpu"  "/tmp/tmpxft_1-7_x.cpp1.ii" -o "/tmp/tmpxft_1-6_x.ptx"
#$ ptxas -arch=sm_90a -m64  "/tmp/tmpxft_1-6_x.ptx"  -o "/tmp/tmpxft_1-8_x.cubin" 
#$ fatbinary -64 --cicc-cmdline="-ftz=0 -prec_div=1 " "--image3=kind=elf,sm=90a,file=/tmp/tmpxft_1-8_x.cubin" --embedded-fatbin="/tmp/tmpxft_1-3_x.fatbin.c" 
#$ rm /tmp/tmpxft_1-3_x.fatbin
#$ gcc -D__CUDA_ARCH__=900 -D__CUDA_ARCH_LIST__=900 -c -x c++  -DCUDA_DOUBLE_MATH_FUNCTIONS -O3 -Wno-psabi -m64 "/tmp/tmpxft_1-6_x.cudafe1.cpp" -o "x.o" 
""".lstrip("\n")  # noqa: E501
LINES = RECORDED.splitlines()


def changed(old: str, new: str) -> str:
    """Return the recorded text with `new` in place of `old`, which it has."""
    assert old in RECORDED
    return RECORDED.replace(old, new)


def line(program: str) -> str:
    """Return the first recorded line of a program."""
    return next(each for each in LINES if each.startswith(f"#$ {program}")) + "\n"


@pytest.mark.pure
def test_the_two_passes_are_apart_and_the_rest_comes_last() -> None:
    plan = nvcc.read(RECORDED, "csrc/x.cu")
    assert plan is not None
    assert [nvcc.program(each) for each in plan.host] == ["gcc -E", "cudafe++"]
    assert [nvcc.program(each) for each in plan.device] == ["gcc -E", "cicc", "ptxas", "fatbinary"]
    assert nvcc.program(plan.last) == "gcc -c"
    assert plan.last.endswith('-o "x.o" ')
    # No chain reads what the other writes, besides the name of static symbols.
    assert "cpp1.ii" not in "".join(plan.host)
    assert "cpp4.ii" not in "".join(plan.device)


@pytest.mark.pure
def test_the_commands_are_those_of_nvcc_in_its_environment() -> None:
    plan = nvcc.read(RECORDED, "x.cu")
    assert plan is not None
    planned = [*plan.host, *plan.device, plan.last]
    printed = [each.removeprefix("#$ ") for each in LINES if each.startswith("#$ ") and " -" in each]
    printed = [each for each in printed if "=" not in each.split()[0]]
    assert planned == [each.replace(" --gen_module_id_file", "") for each in printed]
    assert plan.environment == {
        "TOP": "/usr/local/cuda-13.0/bin/..",
        "CICC_PATH": "/usr/local/cuda-13.0/bin/../nvvm/bin",
        "NVVMIR_LIBRARY_DIR": "/usr/local/cuda-13.0/bin/../nvvm/libdevice",
        "LD_LIBRARY_PATH": "/usr/local/cuda-13.0/bin/../lib:",
        "PATH": "/usr/local/cuda-13.0/bin/../nvvm/bin:/usr/local/cuda-13.0/bin:/usr/bin:/bin",
    }


@pytest.mark.pure
def test_neither_pass_writes_the_name_of_static_symbols_that_the_other_reads() -> None:
    plan = nvcc.read(RECORDED, "x.cu")
    assert plan is not None
    file, name = plan.identity
    assert file == Path("/tmp/tmpxft_1-4_x.module_id")
    assert not any("--gen_module_id_file" in each for each in (*plan.host, *plan.device))
    assert all(f'--module_id_file_name "{file}"' in each for each in (plan.host[1], plan.device[1]))
    assert name.isidentifier()


@pytest.mark.pure
def test_each_source_has_a_name_of_its_own_for_static_symbols() -> None:
    sources = ["x.cu", "a/x.cu", "a_x.cu", "a-x.cu", "x.y.cu"]
    plans = [nvcc.read(RECORDED, source) for source in sources]
    names = [plan.identity[1] for plan in plans if plan]
    assert len(set(names)) == len(sources)
    assert all(name.isidentifier() for name in names)
    again = nvcc.read(RECORDED, "x.cu")
    assert again is not None
    assert again.identity[1] == names[0]


TWO_ARCHITECTURES = "".join(
    [*map(str.__add__, LINES[:17], ["\n"] * 17), line("gcc"), line('"'), line("ptxas")]
) + "\n".join(LINES[17:])

OTHER_SHAPES = {
    "nothing": "",
    "other messages": "nvcc fatal   : Unsupported gpu architecture 'compute_20'\n",
    "variables only": "\n".join(LINES[:15]),
    "two architectures": TWO_ARCHITECTURES,
    "relocatable device code": changed("--allow_managed  --m64", "--allow_managed  --device-c  --m64"),
    "relocatable device code, flag last": changed(
        "--device-hidden-visibility", "--device-hidden-visibility --device-c"
    ),
    "only PTX": RECORDED.replace(line("ptxas"), ""),
    "a step more": RECORDED + "#$ nvlink -o a.o x.o\n",
    "the linker": RECORDED + line("gcc"),
    "another order": RECORDED.replace(line("cudafe++"), "").replace(line("ptxas"), line("cudafe++") + line("ptxas")),
    "no name of static symbols": changed('--module_id_file_name "/tmp/tmpxft_1-4_x.module_id"', ""),
    "another name in the other pass": RECORDED.replace("1-4_x.module_id", "1-5_x.module_id", 1),
    "a name that nobody writes": changed(" --gen_module_id_file", ""),
    "another host compiler": RECORDED.replace("#$ gcc ", "#$ clang "),
}


@pytest.mark.pure
@pytest.mark.parametrize("printed", OTHER_SHAPES.values(), ids=OTHER_SHAPES)
def test_other_shapes_are_left_to_nvcc(printed: str) -> None:
    assert nvcc.read(printed, "x.cu") is None


@pytest.mark.pure
@pytest.mark.parametrize("compiler", ["g++", "/usr/bin/g++", '"/usr/bin/gcc-12"', "c++", "g++-12"])
def test_the_host_compiler_may_have_another_name(compiler: str) -> None:
    assert nvcc.read(RECORDED.replace("#$ gcc ", f"#$ {compiler} "), "x.cu") is not None


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(
    ("flags", "planned"),
    [
        (["-gencode=arch=compute_90a,code=sm_90a"], True),
        (["-gencode=arch=compute_90,code=sm_90", "-DX=1", "--use_fast_math", "-lineinfo"], True),
        (["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=sm_80"], False),
        (["-gencode=arch=compute_90a,code=sm_90a", "-rdc=true"], False),
        (["-gencode=arch=compute_90,code=[compute_90,sm_90]"], True),
    ],
)
def test_the_recorded_form_is_that_of_the_nvcc_of_this_machine(
    flags: list[str], *, planned: bool, tmp_path: Path
) -> None:
    (tmp_path / "x.cu").write_text("")
    dry = subprocess.run(
        ["nvcc", "--dryrun", *flags, "-c", "x.cu", "-o", "x.o"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (nvcc.read(dry.stderr, "x.cu") is not None) is planned
