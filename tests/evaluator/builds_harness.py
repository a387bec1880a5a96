"""A real evaluator server on the CPU device with its builders, and native code that g++ builds in a second.

Most of these candidates include no header of PyTorch, because those take most of the time of a build.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil

from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2 as service_pb
from kerneldyno.v1 import evaluator_service_pb2_grpc as pb_grpc
from tests.e2e.e2e_harness import Service, metric, page

#: What all candidates here must compute, unless they have another reference.
REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 3

def get_inputs():
    return [torch.randn(64)]

def get_init_inputs():
    return []
"""

#: A Python extension without PyTorch's headers. `scale(x, y, count)` takes addresses.
_EXTENSION = """#include <Python.h>
#define JOINED(a, b) a##b
#define INIT(name) JOINED(PyInit_, name)
static PyObject* scale(PyObject*, PyObject* args) {
    unsigned long long x, y;
    long long count;
    if (!PyArg_ParseTuple(args, "KKL", &x, &y, &count)) return nullptr;
    for (long long i = 0; i < count; i++) ((float*)y)[i] = FACTOR * ((float*)x)[i];
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = {{"scale", scale, METH_VARARGS, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "scaling", "", -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""

_BUILDING = '''
import os
import torch
from torch.utils import cpp_extension

SOURCE = r"""
{source}
"""

def build(name, factor, source=SOURCE, **options):
    with open(name + ".cpp", "w") as file:
        file.write(source.replace("FACTOR", str(factor)))
    return cpp_extension.load(name=name, sources=[os.path.abspath(name + ".cpp")], **options)

def scaled(module, x):
    y = torch.empty_like(x)
    module.scale(x.data_ptr(), y.data_ptr(), x.numel())
    return y

'''

#: The end of a candidate that has built `module`.
PLAIN_END = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return scaled(module, x)
"""

#: For `kernel_files`: a candidate's Python, and its native source.
NATIVE_PYTHON = """
import native, torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        native.scale(x, y, x.numel())
        return y
"""
NATIVE_SOURCE = """
extern "C" void scale(const float* x, float* y, long long count) {
    for (long long i = 0; i < count; i++) y[i] = 3 * x[i];
}
"""

#: Text that keeps g++ busy for minutes. It needs 40 MiB a second.
ENDLESS = """
constexpr unsigned long spin(unsigned long count) {
    unsigned long value = 1;
    for (unsigned long i = 0; i < count; i++) value = value * 31 + i;
    return value;
}
static_assert(spin(3000000000ul) != 0);
"""
ENDLESS_FLAGS = {"cpp": ["-fconstexpr-ops-limit=999999999999", "-fconstexpr-loop-limit=2147483647"]}

_numbers = itertools.count()


def building(code: str, end: str = PLAIN_END) -> str:
    """Return a candidate: `code`, then `end`. Both may use `build(name, factor)` and `scaled(module, x)`."""
    return f"{_BUILDING.format(source=_EXTENSION)}{code}\n{end}"


def native(source: str = NATIVE_SOURCE, **changes: Any) -> dict[str, Any]:
    """Return the fields of a request whose candidate is `NATIVE_PYTHON` with a native source."""
    return {"kernel_code": NATIVE_PYTHON, "kernel_files": {"scale.cpp": source}, **changes}


def request(kernel_code: str = "", **changes: Any) -> pb.EvalRequest:
    """Return a request that takes milliseconds when its libraries are there."""
    fields = {
        "id": f"b{next(_numbers)}",
        "reference_code": REFERENCE,
        "kernel_code": kernel_code,
        "backend": "torch",
        "num_correct_trials": 1,
        "stress_inputs": False,
        "run_performance": False,
        **changes,
    }
    return request_from_json(fields)


@dataclass(frozen=True, slots=True)
class Judged:
    """A result, and the stages that a watcher has seen until it came."""

    result: pb.EvalResult
    stages: list[str]

    @property
    def outcome(self) -> str:
        """The outcome's name."""
        return pb.EvalResult.Outcome.Name(self.result.outcome)

    @property
    def builds(self) -> dict[str, pb.NativeBuild]:
        """The builds by name."""
        return {build.name: build for build in self.result.builds}

    @property
    def spans(self) -> list[str]:
        """The stages that the result names, in order."""
        return [pb.Stage.Name(span.stage) for span in self.result.stages]


class BuildServer:
    """A running evaluator server."""

    def __init__(self, service: Service, cache: Path, log: Path) -> None:
        self.service = service
        self.cache = cache
        self._log = log

    async def judge(self, asked: pb.EvalRequest, token: str = "") -> Judged:
        """Evaluate one candidate."""
        body = service_pb.EvaluatorServiceEvaluateRequest(attempt_token=token or f"attempt-{asked.id}", request=asked)
        stages: list[str] = []
        async with grpc.aio.insecure_channel(self.service.address) as connection:
            call = pb_grpc.EvaluatorServiceStub(connection).Evaluate(body, timeout=150)
            async for answer in call:
                if (stage := pb.Stage.Name(answer.event.stage)) not in stages[-1:]:
                    stages.append(stage)
                if answer.event.HasField("result"):
                    return Judged(answer.event.result, stages)
        raise AssertionError("the call ended without a result")

    async def cancel(self, token: str) -> None:
        """Cancel an attempt."""
        async with grpc.aio.insecure_channel(self.service.address) as connection:
            stub = pb_grpc.EvaluatorServiceStub(connection)
            await stub.CancelAttempt(service_pb.CancelAttemptRequest(attempt_token=token), timeout=20)

    def compilers(self) -> list[psutil.Process]:
        """Return the running compilers proper (cc1plus) of `scale.cpp`. One of the builder's own compiles a header."""
        found = []
        for process in psutil.Process(self.service.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.name() == "cc1plus" and any(part.endswith("scale.cpp") for part in process.cmdline()):
                    found.append(process)
        return found

    def builder(self) -> psutil.Process | None:
        """Return the builder process, if it runs."""
        return self._child("kerneldyno.evaluator.builder")

    def builder_zygote(self) -> psutil.Process | None:
        """Return the builder's zygote, if it runs."""
        return self._child("kerneldyno.evaluator.runner.zygote", "--builder")

    def _child(self, *words: str) -> psutil.Process | None:
        for process in psutil.Process(self.service.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if set(words) <= set(process.cmdline()):
                    return process
        return None

    def log(self) -> str:
        """Return what the server has logged."""
        return self._log.read_text()

    def metric(self, name: str, **labels: str) -> float:
        """Return a metric."""
        return metric(page(self.service.ready["metrics"]), name, **labels)

    def cached(self) -> dict[str, str]:
        """Return the entries of the build cache: the SHA-256 of each file by its name."""
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.cache.glob("*.library")}


@contextmanager
def serving(cache: Path, *options: str, scheduler: str = "") -> Iterator[BuildServer]:
    """Run an evaluator server with this build cache. Its log is the file `<cache>.log`."""
    own = ("--devices", "cpu", "--lanes", "2", "--spares", "1", "--build-cache", str(cache))
    link = ("--scheduler", scheduler) if scheduler else ()
    log = cache.with_suffix(".log")
    with log.open("a") as file, Service("evaluator", *own, *link, *options, stderr=file) as service:
        yield BuildServer(service, cache, log)


async def together(*calls: Any) -> list[Judged]:
    """Await calls of `BuildServer.judge` at the same time."""
    return list(await asyncio.gather(*calls))


def ended(service: Service, seconds: float) -> int:
    """Wait until a server has ended, and return its exit status."""
    try:
        return service.exit_status(seconds)
    except subprocess.TimeoutExpired as late:
        raise AssertionError("the server does not end") from late
