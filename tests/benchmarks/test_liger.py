"""Requests with kernels of Liger-Kernel: each is well-formed Python, and names files of the checkout."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import liger
from kerneldyno.rpc.jsonio import request_from_json

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("kernel", liger.KERNELS, ids=lambda kernel: kernel.file)
def test_every_request_is_valid(tmp_path: Path, kernel: liger.Kernel) -> None:
    for path in ("utils.py", "ops/utils.py", f"ops/{kernel.file}.py"):
        place = tmp_path / "liger_kernel" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"# {path}\n")
    request = request_from_json(kernel.request(tmp_path))
    for code in (request.reference_code, request.kernel_code):
        ast.parse(code)
    assert kernel.function in request.kernel_code
    assert {file.content for file in request.kernel_files} >= {f"# ops/{kernel.file}.py\n", "\n"}
    assert request.id == f"liger_{kernel.file}"
