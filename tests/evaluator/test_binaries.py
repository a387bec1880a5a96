"""The code of kernels in the runner: what is read from real tools' outputs, and from tools that fail, talk or sleep."""

from __future__ import annotations

import json
import mmap
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kerneldyno.evaluator.backends import Compiled
from kerneldyno.evaluator.runner import binaries
from kerneldyno.evaluator.shared import wire
from tests.evaluator.judge_harness import DEVICE, Judge, candidate, request
from tests.needed import needs

RECORDED = Path(__file__).with_name("recorded_code")
ADD, PICK, SHARED = "_Z3addPKfS0_Pfi", "pick", "_Z6sharedIfLi256EEvPKT_PS0_"
READERS: dict[str, Callable[[str, int], Mapping[str, object]]] = {
    "res-usage": binaries.usage,
    "sass": binaries.sass,
    "ptx": binaries.ptx,
}


def recorded(what: str) -> str:
    return (RECORDED / f"{what}.txt").read_text()


def wanted(*, ptx: bool = False, sass: bool = False, seconds: float = 30.0) -> binaries.Wanted:
    return binaries.Wanted(ptx, sass, seconds, "9.0")


def test_what_kernels_use_is_that_of_the_device() -> None:
    hopper = binaries.usage(recorded("res-usage"), 90)
    assert hopper == {
        ADD: {"REG": 12, "STACK": 0, "SHARED": 0, "LOCAL": 0},
        PICK: {"REG": 14, "STACK": 64, "SHARED": 0, "LOCAL": 0},
        SHARED: {"REG": 12, "STACK": 0, "SHARED": 1024, "LOCAL": 0},
    }
    assert binaries.usage(recorded("res-usage").replace("sm_90", "sm_90a"), 90) == hopper
    before, _, after = recorded("res-usage").rpartition("REG:14")
    assert binaries.usage(f"{before}REG:15{after}", 90)[PICK]["REG"] == 15
    assert binaries.usage(f"{before}REG:15{after}", 86)[PICK]["REG"] == 14, "a device of sm_86 runs the code for sm_80"
    assert set(binaries.usage(recorded("res-usage"), 75)) == {ADD, PICK, SHARED}, "it cannot run, but can be shown"


def test_instructions_come_without_their_encoding() -> None:
    found = binaries.sass(recorded("sass"), 90)
    assert set(found) == {ADD, PICK, SHARED}
    lines = found[ADD].splitlines()
    assert lines[0] == "/*0000*/ LDC R1, c[0x0][0x28] ;"
    assert "/*0070*/ @P0 EXIT ;" in lines
    assert "/*0110*/ FADD R9, R4, R3 ;" in lines
    assert lines[-1] == "/*0140*/ BRA 0x140;", "what fills the last line of the cache is left out"
    assert "0x0000" not in found[ADD]
    assert "ULDC.64" in binaries.sass(recorded("sass"), 80)[ADD]
    assert "LDC R1" not in binaries.sass(recorded("sass"), 80)[ADD]


def test_each_kernel_has_its_own_ptx() -> None:
    found = binaries.ptx(recorded("ptx"), 90)
    assert set(found) == {ADD, PICK, SHARED}
    for name, text in found.items():
        assert text.startswith(".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry " + name)
        assert text.count(".entry") == 1
        assert text.endswith("}")
    nested = recorded("ptx").replace("ret;", "{ // callseq\nret;\n}", 1)
    assert binaries.ptx(nested, 90)[ADD].endswith("{ // callseq\nret;\n}\n\n}")


@pytest.mark.parametrize("what", READERS)
def test_garbage_is_read_as_far_as_it_goes(what: str) -> None:
    rng, text, read = random.Random(7), recorded(what), READERS[what]
    for _ in range(100):
        cut = text[: rng.randrange(len(text))]
        assert len(read(cut, 90)) <= 3
        changed = list(text)
        for _ in range(200):
            changed[rng.randrange(len(text))] = chr(rng.randrange(1, 0x300))
        read("".join(changed), 90)
    assert read("", 90) == read("arch = sm_" + "9" * 6000, 90) == {}
    assert set(read("Function : \n Function x:\n\n.entry\n}", 0)) <= {"x"}


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[Path]:
    """The scratch of a process that has loaded a library with the recorded kernels."""
    library = tmp_path / "ours.so"
    architectures = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"]
    shared = ["-O2", "-shared", "-Xcompiler", "-fPIC", "-cudart", "shared"]
    subprocess.run([needs("nvcc"), *shared, *architectures, "-o", library, RECORDED / "kernels.cu"], check=True)
    (tmp_path / "host.so").write_bytes(b"\x7fELF\x02\x01" + bytes(5000))
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        yield tmp_path


def test_kernels_of_a_library_that_is_loaded(mapped: Path) -> None:
    frame = binaries.listing("cuda", [], str(mapped), {"pick"}, wanted(ptx=True, sass=True))
    assert frame["failed"] == ""
    first, *others = frame["kernels"]
    assert (first["name"], first["origin"]) == ("pick", "ours.so"), "what ran in a profile comes first"
    assert (first["stack_bytes"], first["spill_bytes"]) == (64, 64)
    assert sorted(each["name"] for each in others) == [
        "add(float const*, float const*, float*, int)",
        "void shared<float, 256>(float const*, float*)",
    ]
    for each in frame["kernels"]:
        assert each["registers"] > 0
        assert ".visible .entry" in each["ptx"]
        assert "EXIT" in each["sass"]
        assert not each["truncated"]
    plain = binaries.listing("cuda", [], str(mapped), set(), wanted())
    assert [(each["ptx"], each["sass"]) for each in plain["kernels"]] == [("", "")] * 3
    assert len(wire.encode({"ok": frame})) < wire.MAX_RUNNER_FRAME


def test_listings_are_cut_so_that_the_frame_stays_small(tmp_path: Path) -> None:
    text = "\t\x00\"'\n\u1234" * 50_000
    kernels = [Compiled(f"k{number}" + "\u1234" * 500, 255, 64, 1024, 8, ptx=text) for number in range(60)]
    frame = binaries.listing("triton", kernels, str(tmp_path), set(), wanted(ptx=True))
    assert len(frame["kernels"]) == binaries.MOST_KERNELS
    assert {len(each["ptx"]) for each in frame["kernels"][:6]} == {binaries.MOST_LISTING}
    assert frame["kernels"][-1]["ptx"] == ""
    assert all(each["truncated"] for each in frame["kernels"])
    assert len(wire.encode({"ok": frame})) < wire.MAX_RUNNER_FRAME


def tool(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `script` stand for cuobjdump."""
    (folder / "bin").mkdir()
    path = folder / "bin/cuobjdump"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(binaries, "_places", lambda: [path.parent])


@pytest.mark.parametrize(
    ("script", "failed"),
    [
        ("echo cannot read it >&2; exit 3", "cuobjdump: cannot read it"),
        ("exit 3", "cuobjdump: ended with status 3"),
        ("kill -9 $$", "cuobjdump: ended with status -9"),
    ],
)
def test_a_tool_that_fails_is_told(
    mapped: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, script: str, failed: str
) -> None:
    tool(tmp_path_factory.mktemp("tool"), script, monkeypatch)
    assert binaries.listing("cuda", [], str(mapped), set(), wanted()) == {"kernels": [], "failed": failed}


def test_a_tool_that_sleeps_or_never_stops_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Compiled("k", 12, 0, 0, 4, binary=b"a cubin")
    tool(tmp_path, "echo $$ >> pids; sleep 60 & wait", monkeypatch)
    begin = time.monotonic()
    frame = binaries.listing("triton", [kernel] * 3, str(tmp_path), set(), wanted(sass=True, seconds=0.5))
    assert time.monotonic() - begin < 20
    assert [each["sass"] for each in frame["kernels"]] == ["", "", ""]
    assert frame["failed"] == "cuobjdump: ended with status -9; cuobjdump had no time left"
    (tmp_path / "bin/cuobjdump").write_text("#!/bin/sh\nexec yes 'Function : k\n/*0000*/ EXIT ;'\n")
    monkeypatch.setattr(binaries, "_MOST_OUTPUT", 1 << 20)
    frame = binaries.listing("triton", [kernel], str(tmp_path), set(), wanted(sass=True))
    assert "EXIT" in frame["kernels"][0]["sass"]


def test_a_missing_tool_is_told_only_if_it_was_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_places", list)
    kernel = Compiled("k", 12, 0, 0, 4, ptx=".entry k", binary=b"a cubin")
    assert binaries.listing("triton", [kernel], str(tmp_path), set(), wanted(ptx=True))["failed"] == ""
    frame = binaries.listing("triton", [kernel], str(tmp_path), set(), wanted(sass=True))
    assert "cuobjdump was not found" in frame["failed"]
    assert frame["kernels"][0]["registers"] == 12


TRITON = """
import json, sys, triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kerneldyno.evaluator.backends import Launches, triton as backend
from kerneldyno.evaluator.runner import binaries

@triton.jit
def doubled(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)

def compiled(block):
    signature = {"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}
    return triton.compile(ASTSource(doubled, signature, {"BLOCK": block}), target=GPUTarget("cuda", 90, 32))

one, two = compiled(128), compiled(256)
for kernel in one, two:  # as a GPU's driver would say
    kernel.module, kernel.n_regs, kernel.n_spills, kernel._run = 1, 20, 3, lambda *_: None
    kernel._module_pid = -1
launches = Launches(0)
before = type(one).launch_metadata
with backend._hooked(launches):
    for _ in range(3):
        triton.knobs.runtime.launch_enter_hook(one.launch_metadata((1, 1, 1), 0))
two.launch_metadata((1, 1, 1), 0)
assert type(one).launch_metadata is before
assert (launches.count, launches.names, list(launches.kernels.values())) == (3, {"doubled"}, [one])
described = [backend.BACKEND.describe(kernel) for kernel in launches.kernels.values()]
wanted = binaries.Wanted(True, True, 60.0, "9.0")
print(json.dumps(binaries.listing("triton", described, sys.argv[1], set(), wanted)))
"""


def test_triton_kernels_are_those_that_a_call_has_launched(tmp_path: Path) -> None:
    """Triton compiles for a GPU without one, and only its driver is missing."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TRITON))
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("TRITON_INTERPRET", None)
    ran = subprocess.run(
        [sys.executable, script, tmp_path], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    frame = json.loads(ran.stdout)
    assert frame["failed"] == ""
    (kernel,) = frame["kernels"]
    assert (kernel["name"], kernel["origin"], kernel["registers"], kernel["spill_bytes"]) == (
        "doubled",
        "triton",
        20,
        12,
    )
    assert (kernel["warps"], kernel["shared_memory_bytes"], kernel["stack_bytes"]) == (4, 0, 0)
    assert ".visible .entry doubled" in kernel["ptx"]
    assert "EXIT" in kernel["sass"]


def test_an_interpreted_kernel_has_no_code(judge: Judge) -> None:
    result = judge.evaluate(request(candidate(), code_listing="CODE_LISTING_ALL"))
    assert result["outcome"] == "CORRECT", result
    assert "D22" not in {each["id"] for each in result.get("findings", [])}
    found = [(each["name"], each["origin"], each["registers"] > 0) for each in result.get("kernel_code", [])]
    assert found == ([] if DEVICE == "cpu:0" else [("scaled_relu", "triton", True)])


def test_a_verdict_has_the_kernels_of_a_library_that_the_candidate_has_built(judge: Judge) -> None:
    needs("nvcc")
    builds = f"""
import mmap, subprocess
with open("ours.cu", "w") as file:
    file.write({(RECORDED / "kernels.cu").read_text()!r})
shared = ["-shared", "-Xcompiler", "-fPIC", "-cudart", "shared", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"]
subprocess.run(["nvcc", *shared, "-o", "ours.so", "ours.cu"], check=True)
with open("ours.so", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
"""
    result = judge.evaluate(request(candidate(prologue=builds), code_listing="CODE_LISTING_ALL"))
    assert result["outcome"] == "CORRECT", result
    kernels = {each["name"]: each for each in result["kernel_code"] if each["origin"] == "ours.so"}
    assert set(kernels) == {
        "pick",
        "add(float const*, float const*, float*, int)",
        "void shared<float, 256>(float const*, float*)",
    }
    assert kernels["pick"]["spill_bytes"] == kernels["pick"]["stack_bytes"] == 64
    for each in kernels.values():
        assert each["registers"] > 0
        assert ".visible .entry" in each["ptx"]
        assert "EXIT" in each["sass"]
