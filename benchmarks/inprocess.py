"""A conventional evaluator for comparison: reference, candidate, clock and comparison in one process.

The method is the published one of KernelBench, in a few lines of our own: both sources are executed in one process (in
one dict, except for Triton, which needs a file), weights and inputs come from public seeds, and five trials compare
with `torch.allclose` under `no_grad`. Then the candidate is called a hundred times on one list of inputs, each call
between two CUDA events on the current stream, after flushing the L2 cache by zeroing 256 MB; the reference is timed
after it. On the CPU the clock is `perf_counter`. `python -m benchmarks.inprocess REFERENCE CANDIDATE` judges one
candidate in this process, without protection.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

Inputs = Callable[[], list[Any]]

SEED = 42
TRIALS = 5
CALLS = 100
WARMUP_CALLS = 3
FLUSH_BYTES = 256 << 20
#: Absolute and relative tolerance for float32. The older rule was 1e-2, which still holds for half precision.
TOLERANCE = 1e-4


def evaluate(
    reference_source: str, candidate_source: str, backend: str, device: torch.device, tolerance: float, turn: Any = None
) -> dict[str, Any]:
    """Judge one candidate: whether it compiled and is correct, seconds per call of both, and the speedup.

    `turn` is a context manager that is entered while times are measured. `fingerprint` in the result is not part of the
    method: it shows whether the process could still judge another candidate, as shared processes must.
    """
    result: dict[str, Any] = {"compiled": False, "correct": False, "message": ""}
    context, reference = _reference(reference_source, device)
    get_inputs = context["get_inputs"]
    try:
        arguments, keywords = _constructor_arguments(context["get_init_inputs"]())
        candidate = _construct(_load(candidate_source, backend, context), arguments, keywords, device)
        result["compiled"] = True
        result["correct"], result["message"] = check(reference, candidate, get_inputs, device, tolerance)
        if result["correct"]:
            with turn or nullcontext():
                times = measure(candidate, get_inputs, device)
                reference_times = measure(reference, get_inputs, device)
            result.update(_summary(times, reference_times))
    except Exception as error:
        result.update(correct=False, message=f"{type(error).__name__}: {error}"[:2000])
    result["fingerprint"] = _fingerprint(reference, get_inputs, device)
    return result


def fingerprint(reference_source: str, device: torch.device) -> list[float]:
    """Return sums of the reference's outputs. The calling process must not have run a candidate."""
    context, reference = _reference(reference_source, device)
    return _fingerprint(reference, context["get_inputs"], device)


def check(reference: Any, candidate: Any, get_inputs: Inputs, device: Any, tolerance: float) -> tuple[bool, str]:
    """Compare outputs in five trials, whose seeds are derived from a public one."""
    torch.manual_seed(SEED)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(TRIALS)]
    with torch.no_grad():
        for number, seed in enumerate(seeds):
            inputs = _inputs(get_inputs, seed, device)
            output = reference(*inputs)
            _synchronize(device)
            output_new = candidate(*inputs)
            _synchronize(device)
            if not _same(output, output_new, tolerance):
                return False, f"outputs of trial {number} differ"
    return True, ""


def measure(model: Any, get_inputs: Inputs, device: torch.device) -> list[float]:
    """Return the seconds of each call on the same inputs."""
    inputs = _inputs(get_inputs, SEED, device)
    for _ in range(WARMUP_CALLS):
        model(*inputs)
    _synchronize(device)
    seconds = []
    if device.type == "cpu":
        for _ in range(CALLS):
            begin = time.perf_counter()
            model(*inputs)
            seconds.append(time.perf_counter() - begin)
        return seconds
    cache = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    for _ in range(CALLS):
        cache.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize(device)
        seconds.append(start.elapsed_time(end) / 1000)
    return seconds


def _summary(times: list[float], reference_times: list[float]) -> dict[str, Any]:
    mean, reference_mean = statistics.fmean(times), statistics.fmean(reference_times)
    return {
        "mean_seconds": mean,
        "median_seconds": statistics.median(times),
        "reference_mean_seconds": reference_mean,
        "speedup": reference_mean / mean if mean > 0 else math.inf,
    }


def _reference(source: str, device: torch.device) -> tuple[dict[str, Any], torch.nn.Module]:
    if device.type == "cpu":
        torch.set_num_threads(1)
    context: dict[str, Any] = {}
    exec(compile(source, "reference.py", "exec"), context)
    torch.manual_seed(SEED)
    return context, _construct(context["Model"], *_constructor_arguments(context["get_init_inputs"]()), device)


def _constructor_arguments(given: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    if len(given) == 2 and isinstance(given[0], list) and isinstance(given[1], dict):
        return given[0], given[1]
    return given, {}


def _construct(kind: Any, arguments: list[Any], keywords: dict[str, Any], device: torch.device) -> torch.nn.Module:
    torch.manual_seed(SEED)
    with torch.no_grad():
        model: torch.nn.Module = kind(*arguments, **keywords).to(device)
    return model


def _load(source: str, backend: str, context: dict[str, Any]) -> Any:
    if backend != "triton":
        exec(compile(source, "candidate.py", "exec"), context)
        return context["ModelNew"]
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:  # Triton reads kernels from a file
        file.write(source)
    spec = importlib.util.spec_from_file_location("candidate", file.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew


def _inputs(get_inputs: Inputs, seed: int, device: torch.device) -> list[Any]:
    torch.manual_seed(seed)
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in get_inputs()]


def _same(output: Any, output_new: Any, tolerance: float) -> bool:
    if isinstance(output, tuple | list):
        return all(_same(part, new, tolerance) for part, new in zip(output, output_new, strict=True))
    if not isinstance(output, torch.Tensor):
        return bool(output == output_new)
    return output.shape == output_new.shape and torch.allclose(output, output_new, atol=tolerance, rtol=tolerance)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _fingerprint(model: Any, get_inputs: Inputs, device: torch.device) -> list[float]:
    try:
        with torch.no_grad():
            output = model(*_inputs(get_inputs, SEED, device))
        leaves = output if isinstance(output, tuple | list) else [output]
        return [leaf.double().abs().sum().item() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    except Exception:
        return []


def main() -> None:
    """Judge one candidate and print the result."""
    parser = argparse.ArgumentParser(description="Judge a candidate in this process, without protection.")
    parser.add_argument("reference", help="file with Model, get_inputs and get_init_inputs")
    parser.add_argument("candidate", help="file with ModelNew")
    parser.add_argument("--backend", default="triton", choices=("triton", "cuda", "torch"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    options = parser.parse_args()
    reference, candidate = (Path(path).read_text(encoding="utf-8") for path in (options.reference, options.candidate))
    device = torch.device(options.device)
    print(json.dumps(evaluate(reference, candidate, options.backend, device, options.tolerance)))


if __name__ == "__main__":
    main()
