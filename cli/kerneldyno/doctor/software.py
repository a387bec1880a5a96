"""Checks of installed software: Python, KernelDyno, torch, triton, NVIDIA driver, compilers. For `kerneldyno doctor`.

Nothing here imports torch: versions come from metadata, and torch's own description from a separate process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kerneldyno.doctor.checks import Check, ProbeError, State, gib, output_of
from kerneldyno.rpc import installing
from kerneldyno.rpc.version import VERSION

_TORCH_SECONDS = 60.0
_NVCC_SECONDS = 10.0
_ASK_TORCH = """
import json, torch, triton
cuda = torch.cuda.is_available()
devices = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())] if cuda else []
arches = torch.cuda.get_arch_list() if cuda else []
print(json.dumps({"cuda": torch.version.cuda, "available": cuda, "devices": devices, "arches": arches}))
"""


@dataclass(frozen=True, slots=True)
class Driver:
    """What NVML reports about this machine."""

    version: str
    cuda: tuple[int, int]
    """Newest CUDA version that it supports."""
    devices: tuple[str, ...]


def python() -> Iterator[Check]:
    """Yield findings on the interpreter, and on the parts of KernelDyno that it can run."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", State.OK, f"{version}, {sys.executable}")
    services = {
        "scheduler": ("prometheus_client", "grpc_health"),
        "evaluator": ("prometheus_client", "torch", "triton"),
    }
    able = [name for name, needed in services.items() if all(importlib.util.find_spec(one) for one in needed)]
    if able:
        yield Check("kerneldyno", State.OK, f"{VERSION}: client, {', '.join(able)}")
    else:
        text = f"{VERSION}: client only; the services cannot run in this Python"
        yield Check("kerneldyno", State.NOTE, text, f"{installing.command('evaluator')}, if they should")


def torch() -> Iterator[Check]:
    """Yield findings on torch and triton: whether they fit each other and this machine's GPUs, and can be imported."""
    name = "torch, triton"
    found = {one: _version(one) for one in ("torch", "triton")}
    missing = [one for one, version in found.items() if version is None]
    if missing:
        text = f"not installed: {', '.join(missing)}; only an evaluator needs them"
        yield Check(name, State.NOTE, text, f"{installing.command('evaluator')}, if one should run here")
        return
    text = ", ".join(f"{one} {version}" for one, version in found.items())
    for one, least in _least().items():
        if one in found and _parts(found[one] or "") < _parts(least):
            yield Check(
                name, State.FAILED, f"{text}; {one} {least} is the oldest that works", f"pip install '{one}>={least}'"
            )
            return
    wanted = _triton_of_torch()
    if wanted is not None and _parts(found["triton"] or "") != _parts(wanted):
        yield Check(
            name, State.FAILED, f"{text}; this torch is made for triton {wanted}", f"pip install triton=={wanted}"
        )
        return
    try:
        said = json.loads(output_of([sys.executable, "-c", _ASK_TORCH], _TORCH_SECONDS).splitlines()[-1])
    except (ProbeError, ValueError, IndexError) as error:
        remedy = f"{installing.command('evaluator')}, with --force-reinstall"
        yield Check(name, State.FAILED, f"{text}; they cannot be imported: {error}", remedy)
        return
    text += ", made for each other" if wanted else ""
    yield _fits(name, text, said, _driver_or_none())


def driver() -> Iterator[Check]:
    """Yield a finding on the NVIDIA driver and its devices, from NVML."""
    name = "NVIDIA driver"
    try:
        found = _driver()
    except ProbeError as error:
        if list(Path("/dev").glob("nvidia[0-9]*")):
            text = f"GPUs are here (/dev/nvidia*), but NVML does not answer: {error}"
            yield Check(name, State.FAILED, text, "install the driver that the kernel module has; nvidia-smi must work")
        else:
            yield Check(name, State.NOTE, f"none ({error}): candidates run on the CPU device, times are not a GPU's")
        return
    cuda = ".".join(map(str, found.cuda))
    yield Check(name, State.OK, f"{found.version}, serves CUDA {cuda}: {'; '.join(found.devices) or 'no device'}")


def compilers() -> Iterator[Check]:
    """Yield findings on nvcc and the host compiler: the cuda backend needs both, Triton on a GPU the latter."""
    gpu = _driver_or_none() is not None
    host = next(
        (path for one in (os.environ.get("CC", ""), "gcc", "clang", "cc") if one and (path := shutil.which(one))), None
    )
    if host is not None:
        yield Check("C compiler", State.OK, host)
    elif gpu:
        yield Check(
            "C compiler", State.FAILED, "none: Triton cannot start a kernel on a GPU", "apt install build-essential"
        )
    else:
        yield Check("C compiler", State.NOTE, "none", "apt install build-essential")
    path = _nvcc()
    if path is None:
        text = "not found: candidates of the cuda backend cannot be compiled"
        remedy = "install the CUDA toolkit and set CUDA_HOME, if you will evaluate such candidates"
        yield Check("nvcc", State.NOTE, text, remedy)
        return
    try:
        release = re.search(r"release (\d+)\.(\d+)", output_of([path, "--version"], _NVCC_SECONDS))
    except ProbeError as error:
        yield Check("nvcc", State.NOTE, f"{path} does not run: {error}", "install the CUDA toolkit again")
        return
    built = re.search(r"\+cu(\d\d)", _version("torch") or "")
    text = f"{path}, CUDA {'.'.join(release.groups()) if release else 'of an unknown release'}"
    if release and built and release[1] != built[1]:
        remedy = f"install the toolkit of CUDA {built[1]}, and set CUDA_HOME to it"
        yield Check("nvcc", State.FAILED, f"{text}; torch is built for CUDA {built[1]}", remedy)
    else:
        yield Check("nvcc", State.OK, text)


def _fits(name: str, text: str, said: dict[str, Any], found: Driver | None) -> Check:
    """Return a finding on whether torch, as it describes itself, fits the driver."""
    if said["cuda"] is None:
        text += ", without CUDA"
        if found is not None and found.devices:
            remedy = "install a torch with CUDA: https://pytorch.org/get-started/locally"
            return Check(name, State.FAILED, f"{text}: this machine's GPUs cannot be used", remedy)
        return Check(name, State.OK, text)
    text += f", built for CUDA {said['cuda']}"
    if found is not None and found.cuda[0] < int(said["cuda"].split(".")[0]):
        served = ".".join(map(str, found.cuda))
        remedy = f"update the driver, or install a torch for CUDA {found.cuda[0]}"
        return Check(name, State.FAILED, f"{text}; the driver serves CUDA {served} at most", remedy)
    if found is not None and found.devices and not said["available"]:
        remedy = "check CUDA_VISIBLE_DEVICES, and the container's access to /dev/nvidia*"
        return Check(name, State.FAILED, f"{text}; it finds no GPU, the driver has {len(found.devices)}", remedy)
    built = [int(arch.removeprefix("sm_").rstrip("af")) for arch in said["arches"] if arch.startswith("sm_")]
    newest = max(built, default=0)
    beyond = [f"{major}.{minor}" for major, minor in said["devices"] if newest and major * 10 > newest // 10 * 10]
    if beyond:
        text += f"; it knows no GPU of compute capability {', '.join(sorted(set(beyond)))}"
        return Check(name, State.FAILED, text, "install a newer torch")
    return Check(name, State.OK, text + (f", {len(said['devices'])} GPU(s) in reach" if said["devices"] else ""))


def _driver() -> Driver:
    """Query NVML.

    Raises:
        ProbeError: it is not installed, or does not answer.
    """
    try:
        import pynvml
    except ImportError:
        raise ProbeError("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        devices = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            devices.append(f"{pynvml.nvmlDeviceGetName(handle)}, {gib(pynvml.nvmlDeviceGetMemoryInfo(handle).total)}")
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise ProbeError(str(error)) from None
    return Driver(version, (cuda // 1000, cuda % 1000 // 10), tuple(devices))


def _driver_or_none() -> Driver | None:
    try:
        return _driver()
    except ProbeError:
        return None


def _nvcc() -> str | None:
    """Return where torch's builder would find nvcc."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    return (
        (shutil.which("nvcc", path=f"{home}/bin") if home else None)
        or shutil.which("nvcc")
        or shutil.which("nvcc", path="/usr/local/cuda/bin")
    )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _least() -> dict[str, str]:
    """Return the oldest versions that this package works with, from its own metadata."""
    try:
        needed = metadata.requires("kerneldyno") or ()
    except metadata.PackageNotFoundError:
        return {}
    return {found[1]: found[2] for one in needed if (found := re.match(r"(torch|triton)>=([\d.]+)", one))}


def _triton_of_torch() -> str | None:
    """Return the version of triton that this torch requires; builds without CUDA require none."""
    for one in metadata.requires("torch") or ():
        if found := re.match(r"(?:pytorch-)?triton\s*\(?==\s*([\d.]+)", one):
            return found[1]
    return None


def _parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparison: "2.9.1+cu128" is (2, 9, 1)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
