"""Scouts: which builds they find in a candidate without a device, and which errors are those of a failed build.

A scout changes torch for the whole process. Each one here is a fork of a process that has imported torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.shared.native_build import NativeBuild

#: Reads orders, and runs each in a fork with a scratch of its own. Writes the answers, or None for one that ended.
DRIVER = """
    import json, os, sys
    import torch.utils.cpp_extension
    from kerneldyno.evaluator.runner import scout

    answers = []
    for number, order in enumerate(json.load(sys.stdin)):
        scratch = os.path.abspath(f"scratch{number}")
        os.mkdir(scratch)
        child = os.fork()
        if child == 0:
            os.environ["TORCH_EXTENSIONS_DIR"] = os.environ["TMPDIR"] = f"{scratch}/tmp"
            os.mkdir(f"{scratch}/tmp")
            os.chdir(scratch)
            answer = scout._scout(order, scratch)
            with open("answer", "w") as file:
                json.dump(answer, file)
            os._exit(0)
        os.waitpid(child, 0)
        answer = os.path.join(scratch, "answer")
        answers.append(json.load(open(answer)) if os.path.exists(answer) else None)
    json.dump(answers, open("answers", "w"))
"""


@dataclass(frozen=True)
class Case:
    """A candidate, and what its scout must find."""

    source: str
    #: Names of the builds, in order.
    builds: list[str] = field(default_factory=list)
    #: Class of the error that is the candidate's, and what its traceback has; "" if there is none.
    error: str = ""
    traceback: str = ""
    files: dict[str, str] = field(default_factory=dict)
    native: NativeBuild | None = None
    #: Names of builds that have failed. Their digests are known from an earlier scout.
    failed: tuple[str, ...] = ()
    symbol: str = "ModelNew"
    has_sketch: bool = True
    architecture: str = "9.0a"


HEAD = """
import os
import torch
import tempfile
from torch.utils.cpp_extension import load, load_inline

def build(name, text="int f() { return 1; }", **more):
    return load_inline(name, cpp_sources=[text], functions=["f"], **more)

"""


def case(body: str, *builds: str, **more: Any) -> Case:
    return Case(HEAD + textwrap.dedent(body), list(builds), **more)


def in_forward(body: str, *builds: str, **more: Any) -> Case:
    """Return a candidate that does this when it is called with `x` and `y`."""
    indented = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    head = "class ModelNew:\n    def __init__(self, *_, **__):\n        pass\n    def __call__(self, x, y):\n"
    return case(f"{head}{indented}\n", *builds, **more)


NATIVE = NativeBuild("native", (("k.cpp", 'extern "C" void scale(float* x, int n) {}'),), with_cuda=False)
#: A native error of the compilers.
LOG = "main.cpp:3:5: error: expected ';'"

CASES = {
    "nothing": case(""),
    "a syntax error": case("class ModelNew(:"),
    "no class": case("def other(): build('never')"),
    "at import": case("m = build('a')", "a"),
    "two at import": case("m = build('a')\nn = build('b', 'int f() { return 2; }')", "a", "b"),
    "the same one twice": case("m = build('a')\nn = build('a')", "a"),
    "one name for two sources": case("m = build('a')\nn = build('a', 'int f() { return 2; }')", "a", "a_v1"),
    "in a list": case(
        "m = [build(f'b{n}', f'int f() {{ return {n}; }}') for n in range(40)]", *(f"b{n}" for n in range(16))
    ),
    "with CUDA": case(
        "m = load_inline('a', cpp_sources='int f();', cuda_sources='__global__ void k() {}', functions=['f'],"
        " with_cuda=True)",
        "a",
    ),
    "not a module of Python": case(
        "load_inline('a', cpp_sources='TORCH_LIBRARY(a, m) {}', is_python_module=False)", "a"
    ),
    "with a header compiled ahead": case("m = build('a', use_pch=True)", "a"),
    "in the constructor": case(
        """
        class ModelNew(torch.nn.Module):
            def __init__(self, size, *, bias):
                super().__init__()
                assert (size, bias) == (4, True)
                self.linear = torch.nn.Linear(size, size)
                self.m = build("a")
        """,
        "a",
    ),
    "in forward": in_forward("return build('a').f(x)", "a"),
    "in forward, on the GPU": in_forward("if x.is_cuda:\n    return build('a').f(x)\nreturn x", "a"),
    "in forward, by the device": in_forward("assert x.device.type == 'cuda' and x.get_device() == 0\nbuild('a')", "a"),
    "in forward, on another device": in_forward("if not x.is_cuda:\n    build('never')"),
    "in forward, on a copy": in_forward(
        "x = x.cpu() if not x.is_cuda else x.cuda()\nassert x.is_cuda\nbuild('a')", "a"
    ),
    "in forward, on a new tensor": in_forward(
        """
        z = torch.empty((2, 3), device="cuda:0") + torch.zeros(3, device=x.device) + torch.ones_like(y[0, 0, 0, :3])
        assert z.is_cuda and z.shape == (2, 3) and z.to("cuda").is_cuda and z.to(torch.device("cuda")).is_cuda
        build("a")
        """,
        "a",
    ),
    "in forward, by a value": in_forward(
        "n = int(x.sum().item())\n"
        "if (x > 0).any() and float(x.max()) > 0:\n    build('a', f'int f() {{ return {n}; }}')",
        "a",
    ),
    "in forward, by the shape": in_forward(
        "assert x.shape == (2, 4) and x.dtype == torch.float16 and y.stride() == (60, 1, 15, 3)\n"
        "build(f'a{x.numel()}')",
        "a8",
    ),
    "in forward, for this GPU": in_forward(
        """
        major, minor = torch.cuda.get_device_capability()
        properties = torch.cuda.get_device_properties(x.device)
        assert torch.cuda.is_available() and torch.cuda.current_stream().cuda_stream == 0
        torch.cuda.synchronize()
        build(f"sm_{major}{minor}_{properties.major}{properties.minor}")
        """,
        "sm_90_90",
    ),
    "for another GPU": in_forward(
        "build('sm_%d_%d' % torch.cuda.get_device_capability())", "sm_10_3", architecture="10.3a;9.0"
    ),
    "without a GPU": in_forward("build('sm_%d_%d' % torch.cuda.get_device_capability())", "sm_9_0", architecture=""),
    "in forward, without a sketch": in_forward("build('never')", has_sketch=False),
    "in forward, after one that is not there": in_forward("x = build('a').f(x)\nreturn build('never').f(x)", "a"),
    "in forward, after an error": in_forward("raise ValueError('mine')\nbuild('never')"),
    "a function": case("def scale(x, y):\n    return build('a').f(x)", "a", symbol="scale"),
    "a function of another name": case("def scale(x, y):\n    build('never')", symbol="other"),
    "not called if nothing more can be found": Case(
        "import os\nfrom torch.utils.cpp_extension import load_inline\nm = load_inline('a', cpp_sources='')\n"
        "class ModelNew:\n    def __init__(self, *_, **__):\n        os.abort()\n",
        ["a"],
    ),
    "in a file beside it": case(
        "import helper.kernels", "a", files={"helper/kernels.py": HEAD + "m = build('a')\n", "helper/__init__.py": ""}
    ),
    "inside try": case("try:\n    m = build('a')\nexcept Exception:\n    m = None\n", "a"),
    "load from files": case(
        """
        folder = tempfile.mkdtemp()
        for name in ("a.cpp", "b.cu"):
            open(os.path.join(folder, name), "w").write("int a;")
        m = load("a", [os.path.join(folder, "a.cpp"), os.path.join(folder, "b.cu")], extra_cuda_cflags=["-O3 -DX"])
        """,
        "a",
    ),
    "load from its own files": case(
        "m = load('a', [os.path.join(os.path.dirname(__file__), 'csrc', 'a.cpp')], extra_include_paths=['include'])",
        "a",
        files={
            "csrc/a.cpp": '#include "a.h"\n#include "b.h"\n',
            "csrc/a.h": '# include "deep/c.inc"\n',
            "csrc/deep/c.inc": '#include "../a.h"\n',
            "csrc/not_included.h": "",
            "include/b.h": "",
        },
    ),
    "load with a header above": case(
        "m = load('a', ['csrc/a.cpp'])", files={"csrc/a.cpp": '#include "../b.h"\n', "b.h": ""}
    ),
    "load with two headers of one name": case(
        "m = load('a', ['csrc/a.cpp'], extra_include_paths=['include'])",
        files={"csrc/a.cpp": '#include "b.h"\n', "csrc/b.h": "int a;", "include/b.h": "int b;"},
    ),
    "load with a source of another suffix": case(
        "m = load('a', ['a.cpp', 'b.C'])", files={"a.cpp": "int a;", "b.C": "int b;"}
    ),
    "load of a file that is not there": case("m = load('a', ['a.cpp'])"),
    "load of a file that is no text": case("open('a.cpp', 'wb').write(b'\\xff')\nm = load('a', ['a.cpp'])"),
    "another compiler": case("os.environ['CXX'] = 'clang++'\nm = build('never')\nclass ModelNew: pass"),
    "other settings of nvcc": case("os.environ['NVCC_APPEND_FLAGS'] = '-O0'\nm = build('never')\nclass ModelNew: pass"),
    "an exit": case("m = build('a')\nraise SystemExit(3)", "a"),
    "an interrupt": case("m = build('a')\nraise KeyboardInterrupt", "a"),
    "an error": case("m = build('a')\nraise ValueError('mine')", "a"),
    "a name that is no identifier": case("m = build('../a')"),
    "kernel_files": case("import native\nassert callable(native.scale)", "native", native=NATIVE),
    "kernel_files, a name": case("from native import scale\nclass ModelNew: pass", "native", native=NATIVE),
    "kernel_files that are not imported": case("", native=NATIVE),
    "kernel_files and no entry file": Case("", ["native"], native=NATIVE, files={"k.cpp": ""}),
    "kernel_files and another build": case("import native\nm = build('a')", "native", "a", native=NATIVE),
    "a failed build": case("m = build('a')", "a", failed=("a",), error="RuntimeError", traceback="m = build('a')"),
    "a failed build in the constructor": case(
        "class ModelNew:\n    def __init__(self, *_, **__):\n        self.m = build('a')  # here\n",
        "a",
        failed=("a",),
        error="RuntimeError",
        traceback="self.m = build('a')  # here",
    ),
    "a failed build in forward": in_forward(
        "return build('a').f(x)", "a", failed=("a",), error="RuntimeError", traceback="return build('a').f(x)"
    ),
    "another build has failed": case("m = build('a')\nn = build('b')", "a", "b", failed=("b",), error="RuntimeError"),
    "a failed build that is handled": case(
        "try:\n    m = build('a')\nexcept RuntimeError as error:\n    assert 'Error building extension' in str(error)\n"
        "    m = build('b', 'int f() { return 2; }')\n",
        *("a", "b"),
        failed=("a",),
    ),
    "a failed build, and then another error": case(
        "try:\n    m = build('a')\nexcept RuntimeError:\n    m = None\nraise ValueError('mine')", "a", failed=("a",)
    ),
    "a failed build as the cause": case(
        "try:\n    m = build('a')\nexcept RuntimeError as error:\n    raise ImportError('no kernels') from error",
        "a",
        failed=("a",),
        error="ImportError",
        traceback="raise ImportError('no kernels') from error",
    ),
    "an error while a failed build is handled": case(
        "try:\n    m = build('a')\nexcept RuntimeError as error:\n    m.f()", "a", failed=("a",), error="NameError"
    ),
    "a failed build ends the process": case(
        "try:\n    m = build('a')\nexcept RuntimeError:\n    raise SystemExit(1)",
        "a",
        failed=("a",),
        error="SystemExit",
    ),
    "failed kernel_files": case(
        "import native", "native", native=NATIVE, failed=("native",), error="RuntimeError", traceback="import native"
    ),
    "failed kernel_files that are handled": case(
        "try:\n    import native\nexcept RuntimeError:\n    native = None", "native", native=NATIVE, failed=("native",)
    ),
    "failed kernel_files that are not imported": case("", native=NATIVE, failed=("native",)),
}


def sketch() -> dict[str, Any]:
    """Return the sketch of a problem with a constructor, and two inputs of which one is not contiguous."""
    x, y = torch.empty(2, 4, dtype=torch.float16), torch.empty_strided((1, 3, 4, 5), (60, 1, 15, 3))
    args, _ = tree.flatten([4])
    kwargs, _ = tree.flatten({"bias": True})
    inputs, tensors = tree.flatten([x, y])
    specs = [tree.describe(each).to_json() for each in tensors]
    sketched = {"args": args, "kwargs": kwargs, "inputs": inputs, "specs": specs}
    return {**sketched, "precision": 0, "training": None, "cotangents": 0}


def order(each: Case, failures: dict[str, str]) -> dict[str, Any]:
    return {
        "source": each.source if each.source != HEAD else HEAD + "pass",
        "files": list(each.files.items()),
        "native": None if each.native is None else each.native.to_json(),
        "symbol": each.symbol,
        "sketch": sketch() if each.has_sketch else None,
        "failures": failures,
        "architecture": each.architecture,
    }


def scouted(orders: list[dict[str, Any]], directory: Path) -> list[Any]:
    """Return the answers of scouts to orders, which run one after the other."""
    directory.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER)],
        cwd=directory,
        input=json.dumps(orders),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answers: list[Any] = json.loads((directory / "answers").read_text())
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answers of all scouts. The digests of builds that fail are those of a scout before."""
    directory = tmp_path_factory.mktemp("scouts")
    failing = {name: each for name, each in CASES.items() if each.failed}
    failures = {}
    first = scouted([order(each, {}) for each in failing.values()], directory / "first")
    for (name, each), answer in zip(failing.items(), first, strict=True):
        builds = [NativeBuild.from_json(said) for said in answer["builds"]]
        failures[name] = {build.digest: LOG for build in builds if build.name in each.failed}
    orders = [order(each, failures.get(name, {})) for name, each in CASES.items()]
    return dict(zip(CASES, scouted(orders, directory / "second"), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_scouts(answers: dict[str, Any], name: str) -> None:
    each, answer = CASES[name], answers[name]
    assert answer is not None, "the scout has ended"
    assert [NativeBuild.from_json(said).name for said in answer["builds"]] == each.builds
    if not each.error:
        assert answer["error"] is None
        return
    assert answer["error"]["type"] == each.error
    assert 'File "candidate.py", line' in answer["error"]["traceback"]
    assert each.traceback in answer["error"]["traceback"]
    assert LOG in answer["error"]["traceback"]
    assert "Error building extension '" in answer["error"]["traceback"]
    assert "extensions.py" not in answer["error"]["traceback"], "only the candidate's own lines"


def found(answers: dict[str, Any], name: str, at: int = 0) -> NativeBuild:
    return NativeBuild.from_json(answers[name]["builds"][at])


def test_a_source_of_load_inline_is_described_as_torch_writes_it(answers: dict[str, Any]) -> None:
    build = found(answers, "with CUDA")
    assert build.sources == ["main.cpp", "cuda.cu"]
    assert build.with_cuda
    assert build.shown["cuda_sources"] == "__global__ void k() {}"
    assert build.shown["cpp_sources"].startswith("int f();\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
    assert not found(answers, "at import").with_cuda


def test_the_same_build_has_the_same_digest_in_every_process(answers: dict[str, Any]) -> None:
    names = ["at import", "in forward", "in the constructor", "inside try", "in a file beside it", "an exit"]
    assert len({found(answers, name).digest for name in names}) == 1


def test_the_files_of_load_are_found_with_their_headers(answers: dict[str, Any]) -> None:
    build = found(answers, "load from files")
    assert build.files == (("a.cpp", "int a;"), ("b.cu", "int a;"))
    assert build.cuda_flags == ("-O3", "-DX")
    own = dict(found(answers, "load from its own files").files)
    assert sorted(own) == ["a.cpp", "a.h", "b.h", "deep/c.inc"]


def test_a_value_of_an_input_is_taken_to_be_one(answers: dict[str, Any]) -> None:
    assert "return 1;" in found(answers, "in forward, by a value").text


def test_a_candidate_that_ends_the_process_ends_only_its_scout(tmp_path: Path) -> None:
    sources = ["import os\nos._exit(0)", "import os\nos.abort()", HEAD + "m = build('a')"]
    got = scouted([order(Case(source), {}) for source in sources], tmp_path / "all")
    assert got[:2] == [None, None]
    assert [said["name"] for said in got[2]["builds"]] == ["a"]
