"""Flags for compilers: what people use is allowed; what loads, runs, reads or writes something else is refused."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.rpc.build_flags import Compiler, refused

pytestmark = pytest.mark.pure

#: Flags that no compiler may get, and words of the reason.
DANGEROUS = {
    "-fplugin=./evil.so": "plug-in",
    "-fplugin-arg-evil-x=1": "plug-in",
    "-fdump-tree-all": "what a compiler writes",
    "-fprofile-generate": "what a compiler writes",
    "-fprofile-use=../x": "what a compiler writes",
    "-fopt-info-all=/tmp/x": "what a compiler writes",
    "-fdiagnostics-format=sarif-file": "what a compiler writes",
    "-fcallgraph-info": "what a compiler writes",
    "-fmodule-mapper=|touch x": "has a space",
    "-fmodule-mapper=|sh": "chooses another program",
    "-fuse-ld=./ld": "chooses another program",
    "-foffload=x": "chooses another program",
    "-B.": "chooses another program",
    "-wrapper": "chooses another program",
    "-wrapper,sh": "chooses another program",
    "-specs=x": "chooses another program",
    "--specs=x": "chooses another program",
    "-ccbin=./gcc": "chooses another program",
    "--compiler-bindir=./": "chooses another program",
    "-x": "chooses another program",
    "@flags": "from a file",
    "@/etc/passwd": "from a file",
    "/etc/passwd": "not a flag",
    "a.o": "not a flag",
    "-o": "what a compiler writes",
    "-o/tmp/x": "what a compiler writes",
    "-MD": "what a compiler writes",
    "-MF/tmp/x": "what a compiler writes",
    "-save-temps": "what a compiler writes",
    "--keep": "what a compiler writes",
    "-Wl,--version-script=x": "not on the list",
    "-Wl,-plugin,x": "not on the list",
    "-Wa,-alh=/tmp/x": "not on the list",
    "-Wp,-MD,/tmp/x": "not on the list",
    "-Wl,-rpath,/tmp": "folder of libraries",
    "-include": "not on the list",
    "-imacros=x": "not on the list",
    "-L/tmp": "folder of libraries",
    "-l:evil.so": "name of a library",
    "-l../evil": "name of a library",
    "-flto": "linking",
    "-dlto": "linking",
    "--frobnicate": "not on the list",
    "-march=native;touch": "not on the list",
    "-O3`id`": "not on the list",
    "-O3\n": "has a space",
    "-": "not on the list",
    "": "empty",
    "-" + "x" * 300: "301 characters",
}


@pytest.mark.parametrize("compiler", ["cuda", "cpp", "link"])
@pytest.mark.parametrize(("flag", "words"), DANGEROUS.items())
def test_what_reaches_beyond_the_compiler_is_refused(flag: str, words: str, compiler: Compiler) -> None:
    ((found, reason),) = refused([flag], compiler)
    assert found == flag[:200]
    if words != "not on the list":
        assert words in reason, reason


@pytest.mark.parametrize(
    "flags",
    [
        *(["-I/etc"], ["-I", "/etc"], ["-I.."], ["-Iinclude/../.."], ["-I", "../x"], ["-I~"], ["-I/usr/local/cudax"]),
        *(["-isystem", "/usr"], ["-I"], ["-D"], ["-DX=$(id)"], ["-DX=`id`"], ["-DX=a;b"], ["-DX=a|b"], ["-D", "1X"]),
        *(["-std=c++17;"], ["-std=f95"], ["-mcmodel=large"], ["-Wno-unused;id"]),
    ],
    ids=" ".join,
)
def test_g_plus_plus_gets_no_folders_of_others_and_nothing_for_a_shell(flags: list[str]) -> None:
    assert len(refused(flags, "cpp")) == 1
    assert len(refused(flags, "cuda")) == 1


@pytest.mark.parametrize(
    "flags",
    [
        *(
            ["-Xcompiler", "-fplugin=x"],
            ["-Xcompiler=-O3,-fplugin=x"],
            ["--compiler-options", "-O3,@x"],
            ["-Xcompiler"],
        ),
        *(["-Xcompiler", "-I/etc"], ["-Xcompiler", "-Wl,x"], ["-Xcompiler", "-O3 -Wall"], ["-Xcompiler", ""]),
        *(["-Xptxas", "-o,x"], ["-Xptxas=--output-file=x"], ["-Xptxas", "@x"], ["-Xptxas", "-v;id"], ["-Xptxas=-v,"]),
        *(["-Xnvlink", "-v"], ["-Xlinker", "-v"], ["-Xarchive", "x"], ["-Xcudafe", "--gen_c_file_name=x"]),
        *(["-gencode", "arch=x"], ["-arch", "sm_90;id"], ["-arch=90"], ["-maxrregcount", "many"], ["-maxrregcount"]),
        *(["-t", "1000"], ["--options-file", "x"], ["-optf", "x"], ["--run"], ["-dryrun"], ["--time", "x"]),
    ],
    ids=" ".join,
)
def test_nvcc_passes_nothing_on_that_is_not_allowed(flags: list[str]) -> None:
    assert refused(flags, "cuda")


def test_a_flag_and_its_value_are_one_flag_and_the_rest_is_still_checked() -> None:
    flags = ["-O3", "-Xptxas", "-v", "-I", "/etc", "-Xcompiler", "-fplugin=x", "-lineinfo", "--keep", "-maxrregcount"]
    assert [flag for flag, _ in refused(flags, "cuda")] == [
        *("-I /etc", "-Xcompiler -fplugin=x", "--keep", "-maxrregcount")
    ]
    assert "next flag" in refused(flags, "cuda")[-1][1]


@pytest.mark.parametrize(
    "flags",
    [
        *("-O3", "-O2", "-O", "--use_fast_math", "-use_fast_math", "-std=c++17", "--std=c++20", "-std c++17"),
        *("-DTILE=64", "-D TILE=64", "-DT=float", "-DX=1.0f", "-DNDEBUG", "-U__CUDA_NO_HALF_OPERATORS__", "-DS=a::b"),
        *("-lineinfo", "--generate-line-info", "-maxrregcount=64", "--maxrregcount 64", "-g -G", "-w", "-v"),
        *("--expt-relaxed-constexpr", "-expt-relaxed-constexpr", "--expt-extended-lambda", "--extended-lambda"),
        *("-Xptxas -v", "-Xptxas=-v", "--ptxas-options=-v,-O3", "-Xptxas -dlcm=ca", "-Xptxas -dlcm=cg -Xptxas -v"),
        *("-Xptxas --warn-on-spills", "-Xptxas -allow-expensive-optimizations=true", "-Xptxas -O3,-v,-warn-spills"),
        *("-Xcompiler -O3", "-Xcompiler=-fPIC,-O3", "--compiler-options -fPIC", "-Xcompiler -Wall,-Wextra,-fopenmp"),
        *("-gencode arch=compute_90,code=sm_90", "-gencode=arch=compute_90a,code=sm_90a", "-arch=sm_90", "-arch sm_80"),
        *("-gencode arch=compute_80,code=[sm_80,compute_80]", "--gpu-architecture=compute_90", "-code=sm_90"),
        *("-arch=native", "--fmad=false", "-fmad=true", "--ftz=true", "-prec-div=false", "--prec-sqrt=false"),
        *("-rdc=true", "--relocatable-device-code=true", "-Wno-deprecated-gpu-targets", "--diag-suppress=177,550"),
        *("-diag-suppress 177", "-Xcudafe --diag_suppress=177", "-m64", "-lcublas", "-l cublas", "--restrict"),
        *("-I.", "-Iinclude", "-I include", "-Iinclude/kernels/", "-I./a", "-I/usr/local/cuda/include"),
        *("--threads 4", "--threads=4", "-t4", "-t 4", "-t=4", "--split-compile=4", "-res-usage"),
        *("--default-stream per-thread", "--default-stream=legacy", "-Xfatbin -compress-all", "-Werror"),
    ],
)
def test_nvcc_gets_what_people_use(flags: str) -> None:
    assert refused(flags.split(), "cuda") == []


@pytest.mark.parametrize(
    "flags",
    [
        *("-O3", "-Ofast", "-Os", "-std=c++17", "-std=gnu++20", "-g", "-g0", "-DX", "-D X=1", "-UX", "-w", "-Wall"),
        *(
            "-Wno-unused-variable",
            "-Werror=return-type",
            "-march=native",
            "-mtune=native",
            "-mavx2",
            "-mavx512f",
            "-mfma",
        ),
        *(
            "-msse4.2",
            "-fopenmp",
            "-pthread",
            "-fPIC",
            "-ffast-math",
            "-fno-strict-aliasing",
            "-funroll-loops",
            "-pipe",
        ),
        *("-fvisibility=hidden", "-ftree-vectorize", "-I.", "-Iinclude", "-isystem include", "-m64", "-lm"),
    ],
)
def test_g_plus_plus_gets_what_people_use(flags: str) -> None:
    assert refused(flags.split(), "cpp") == []


@pytest.mark.parametrize(
    "flags",
    [
        *("-lcublas", "-l cublasLt", "-lstdc++", "-L/usr/local/cuda/lib64", "-L /usr/local/cuda-12.8/lib64/stubs"),
        *("-Wl,--no-as-needed", "-Wl,-rpath,/usr/local/cuda/lib64", "-O3", "-fopenmp", "-s", "-shared", "-pthread"),
    ],
)
def test_the_linker_gets_what_people_use(flags: str) -> None:
    assert refused(flags.split(), "link") == []


@given(st.lists(st.text(alphabet="-=,./@$;|&`'\"\\ \n*?(){}<>~" + string.ascii_letters, max_size=12), max_size=4))
def test_nothing_that_is_allowed_has_a_character_of_a_shell(flags: list[str]) -> None:
    compilers: tuple[Compiler, ...] = ("cuda", "cpp", "link")
    for compiler in compilers:
        if not refused(flags, compiler):
            assert not set("".join(flags)) & set("@$;|&`'\"\\ \n?(){}<>~"), flags
