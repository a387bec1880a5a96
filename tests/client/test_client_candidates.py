"""Candidates of several files: read from a folder by the client, and judged by `kerneldyno evaluate`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from kerneldyno.client import CandidateFilesError, EvalRequest, read_candidate
from kerneldyno.rpc.validation import validate
from tests.client.command import invoke
from tests.client.fake_fleet import FakeFleet


def folder(path: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def paths(request: EvalRequest) -> list[str]:
    return [file.path for file in request.kernel_files]


class TestReading:
    pytestmark = pytest.mark.pure

    @pytest.mark.parametrize(
        ("files", "words"),
        [
            ({}, "has no source: put candidate.py, or a .cu or .cpp file, into it"),
            ({"a.cuh": "x"}, "has no source"),
            ({"a.py": "x", "b.py": "x", "c.cu": "x"}, r"several Python files \(a.py, b.py\): name .* candidate.py"),
            ({"lib/a.py": "x", "c.cu": "x"}, "only in folders below it: .* at its top, as candidate.py"),
            ({"a.cu": "x", "notes.txt": "x"}, "notes.txt cannot be a part of a candidate.*move it elsewhere"),
            ({"a.cu": "x", "build/a.o": b"\0"}, "build/a.o cannot be a part"),
            ({"a.cu": "x", "Makefile": "x"}, "Makefile cannot be a part"),
            ({"a.cu": b"\xff\xfe"}, "a.cu is not UTF-8 text: .* at byte 0"),
            ({"candidate.py": b"\xff", "a.cu": "x"}, "candidate.py is not UTF-8"),
            ({"candidate.py": "x", "native.py": "x"}, "native.py: .*native.py' is taken"),
            ({"model.py": "x", "my kernel.cu": "x"}, "my kernel.cu: .* is not a usable path"),
            ({"candidate.py": "x", "a.cu": "x", "A.cu": "x"}, "differ only in case"),
            ({"a.cu": "int\0"}, "NUL byte"),
            ({"a.cu": "x" * 1_048_577}, "1048577 bytes"),
            ({f"f{i}.cu": "x" for i in range(65)}, "65 files; at most 64"),
        ],
    )
    def test_files_that_are_no_candidate_are_named(
        self, tmp_path: Path, files: Mapping[str, str | bytes], words: str
    ) -> None:
        with pytest.raises(CandidateFilesError, match=words) as error:
            read_candidate(folder(tmp_path, files))
        assert str(tmp_path) in str(error.value)

    def test_what_is_not_there_is_an_error_of_the_system(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            read_candidate(tmp_path / "none.cu")
        (tmp_path / "a.cu").symlink_to("nowhere.cu")
        with pytest.raises(FileNotFoundError):
            read_candidate(tmp_path)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
    def test_a_link_to_a_folder_is_not_followed(self, tmp_path: Path) -> None:
        (folder(tmp_path, {"candidate.py": "x"}) / "again").symlink_to(tmp_path)
        with pytest.raises(CandidateFilesError, match="again cannot be a part"):
            read_candidate(tmp_path)

    @pytest.mark.parametrize(
        ("files", "entry"),
        [
            ({"candidate.py": "c", "model.py": "m", "util.py": "u"}, "c"),
            ({"model.py": "m", "util.py": "u"}, "m"),
            ({"any.py": "a", "lib/candidate.py": "x"}, "a"),
            ({"lib/a.cpp": "x"}, ""),
        ],
    )
    def test_the_entry_point(self, tmp_path: Path, files: Mapping[str, str], entry: str) -> None:
        assert read_candidate(folder(tmp_path, files))["kernel_code"] == entry

    def test_a_folder(self, tmp_path: Path) -> None:
        files = {
            "model.py": "import native\n",
            "kernels/softmax.cu": "int s;\n",
            "kernels/tile.cuh": "int t;\n",
            "lib/__init__.py": "",
            "__pycache__/model.cpython-311.pyc": b"\0",
            ".git/config": "x",
            ".clang-format": "x",
        }
        fields = read_candidate(folder(tmp_path, files))
        request = EvalRequest(id="a", reference_code="r", **fields)
        assert validate(request) == []
        assert request.kernel_code == "import native\n"
        assert paths(request) == ["kernels/softmax.cu", "kernels/tile.cuh", "lib/__init__.py"]
        assert request.kernel_files[2].content == "\n", "the contract has no empty files"
        assert request.backend == "cuda"

    def test_python_alone_leaves_the_backend_open(self, tmp_path: Path) -> None:
        fields = read_candidate(folder(tmp_path, {"candidate.py": "x", "util.py": "y"}))
        assert "backend" not in fields
        assert read_candidate(tmp_path / "candidate.py") == {"kernel_code": "x"}

    @pytest.mark.parametrize("name", ["relu.cu", "relu.cpp"])
    def test_one_native_file(self, tmp_path: Path, name: str) -> None:
        folder(tmp_path, {name: "int r;", "other.txt": "not looked at"})
        assert read_candidate(str(tmp_path / name)) == {
            "kernel_code": "",
            "kernel_files": [{"path": name, "content": "int r;"}],
            "backend": "cuda",
        }


@pytest.mark.slow
class TestEvaluate:
    @pytest.mark.parametrize(
        ("files", "options", "says"),
        [
            ({"a.cu": "x", "b.md": "x"}, [], "b.md cannot be a part of a candidate"),
            ({"candidate.py": "x"}, ["--cuda-flag=-O3"], "need a candidate with native sources"),
            ({"a.cu": "x"}, ["--cuda-flag", "--keep"], "--cuda-flag: '--keep' decides what a compiler writes"),
            ({"a.cu": "x"}, ["--cpp-flag", "-O3 @x"], "--cpp-flag: '@x' reads flags from a file"),
            ({"a.cu": "x"}, ["--library", "-lcublas"], "--library: '-lcublas' is not the name of a library"),
            ({"a.cu": "x"}, ["--cuda-flag", "-DX='"], "a flag cannot be read"),
        ],
    )
    async def test_usage(self, tmp_path: Path, files: Mapping[str, str], options: list[str], says: str) -> None:
        folder(tmp_path, {"reference.py": "class Model: ...\n"})
        candidate = folder(tmp_path / "candidate", files)
        ran = await invoke("evaluate", tmp_path / "reference.py", candidate, *options)
        assert ran.status == 2
        assert says in ran.err
        assert "Traceback" not in ran.err

    async def test_a_folder_is_no_reference(self, tmp_path: Path) -> None:
        folder(tmp_path, {"reference.py": "class Model: ...\n", "mine/a.cu": "x"})
        ran = await invoke("evaluate", tmp_path / "mine", tmp_path / "reference.py")
        assert ran.status == 2
        assert "is a folder, but a reference is one file" in ran.err

    async def test_a_folder_with_flags(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        folder(tmp_path, {"softmax/reference.py": "class Model: ...\n"})
        candidate = folder(tmp_path / "mine", {"candidate.py": "class ModelNew: ...\n", "k/a.cu": "int a;\n"})
        options = ["--cuda-flag", "-O3", "--cuda-flag", "-Xptxas -v", "--cpp-flag=-O2", "--library", "cublas"]
        at = ("--address", scheduler.address)
        ran = await invoke("evaluate", tmp_path / "softmax/reference.py", candidate, *options, *at)
        assert ran.status == 0, ran.err
        request = scheduler.messages[0].requests[0]
        assert (request.kernel_code, request.backend) == ("class ModelNew: ...\n", "cuda")
        assert [(file.path, file.content) for file in request.kernel_files] == [("k/a.cu", "int a;\n")]
        assert list(request.build_flags.cuda) == ["-O3", "-Xptxas", "-v"]
        assert (list(request.build_flags.cpp), list(request.build_flags.libraries)) == (["-O2"], ["cublas"])
        assert request.labels["problem"] == "softmax"

    async def test_the_backend_that_the_user_names_counts(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        folder(tmp_path, {"r.py": "class Model: ...\n", "a.cpp": "x", "request.json": '{"backend": "torch"}'})
        at = ("--address", scheduler.address)
        for options in ([], ["--backend", "triton"], ["--request", str(tmp_path / "request.json")]):
            assert (await invoke("evaluate", tmp_path / "r.py", tmp_path / "a.cpp", *options, *at)).status == 0
        requests = [message.requests[0] for message in scheduler.messages if message.requests]
        assert [request.backend for request in requests] == ["cuda", "triton", "torch"]
        assert all((request.kernel_code, paths(request)) == ("", ["a.cpp"]) for request in requests)

    async def test_one_native_file_with_cases(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        folder(tmp_path, {"cases.py": "def get_cases(): ...\n", "relu.cu": "x"})
        ran = await invoke(
            *("evaluate", tmp_path / "relu.cu", "--cases", tmp_path / "cases.py", "--entry-point", "relu"),
            *("--address", scheduler.address),
        )
        assert ran.status == 0, ran.err
        request = scheduler.messages[0].requests[0]
        assert (request.toolkit, request.backend, paths(request)) == ("kernel_simple", "cuda", ["relu.cu"])

    async def test_a_request_in_a_file_may_have_the_files(self, scheduler: FakeFleet, tmp_path: Path) -> None:
        whole = {"reference_code": "r", "kernel_files": {"a.cu": "x"}, "build_flags": {"cuda": ["-g"], "cpp": ["-g"]}}
        folder(tmp_path, {"request.json": json.dumps(whole), "r.py": "x", "mine/b.cu": "y"})
        file, at = ("--request", tmp_path / "request.json"), ("--address", scheduler.address)
        ran = await invoke("evaluate", *file, "--cuda-flag=-O3", *at)
        assert ran.status == 0, ran.err
        request = scheduler.messages[0].requests[0]
        assert (request.backend, paths(request)) == ("cuda", ["a.cu"])
        assert (list(request.build_flags.cuda), list(request.build_flags.cpp)) == (["-O3"], ["-g"])
        twice = await invoke("evaluate", tmp_path / "r.py", tmp_path / "mine", *file, *at)
        assert twice.status == 2
        assert "kernel_files, reference_code: in" in twice.err
