"""Judge candidates of the corpus on several shapes each, and print a table for each problem, the cost, and a plot.

    python -m benchmarks.workloads [NAME...] [--tiny] [--baselines] [--json FILE] [--plot FILE]

The references are those of `corpus/problems`, with a list of sizes in place of their one size; the candidates are honest
ones of `corpus/field`, and one (`only_the_first_shape`) that is made for the first shape and slow on all others. Beside
these: one problem in bfloat16, one with both passes, and with `--baselines` one beside three compiled forms. Exit status
1 if a candidate is not CORRECT.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult, LocalServices
from kerneldyno.rpc.jsonio import request_from_json, result_to_json
from kerneldyno.v1.evaluation_pb2 import ReferenceBackend

_CORPUS = Path(__file__).resolve().parents[1] / "corpus"
#: Makes a reference take the sizes of a workload: its functions read them from the module.
_SIZED = """

_inputs, _init_inputs = get_inputs, get_init_inputs


def get_inputs(case):
    globals().update(case)
    return _inputs()


def get_init_inputs(case):
    globals().update(case)
    return _init_inputs()
"""
#: Fast for the first shape; any other is handed to the kernel in many parts.
_ONLY_FIRST = """


_WholeRows = ModelNew


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.whole = _WholeRows()

    def forward(self, x):
        if tuple(x.shape) == {first}:
            return self.whole(x)
        return torch.cat([self.whole(part) for part in x.split(max(1, len(x) // 64))])
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A problem of the corpus with several sizes, and a candidate."""

    problem: str
    candidate: str
    names: tuple[str, ...]
    sizes: Sequence[tuple[int, ...]]
    tiny: Sequence[tuple[int, ...]]
    #: Further fields of the request.
    fields: Mapping[str, Any] = field(default_factory=dict)

    def request(self, name: str, *, tiny: bool) -> EvalRequest:
        """Return the request."""
        sizes = self.tiny if tiny else self.sizes
        code = (_CORPUS / "field/honest" / f"{self.candidate}.py").read_text()
        if name == "only_the_first_shape":
            code += _ONLY_FIRST.format(first=sizes[0])
        values = [dict(zip(self.names, each, strict=True)) for each in sizes]
        return request_from_json(
            {
                "id": name,
                "reference_code": (_CORPUS / "problems" / f"{self.problem}.py").read_text() + _SIZED,
                "kernel_code": code,
                "workloads": [
                    {"name": "x".join(map(str, each)), "value": value}
                    for each, value in zip(sizes, values, strict=True)
                ],
                **self.fields,
            }
        )


_ROWS = ((8192, 4096), (8192, 4097), (64, 65536), (100000, 64), (1, 32768), (4096, 1000), (777, 8191), (16384, 2048))
_TINY_ROWS = ((16, 300), (5, 17))
ENTRIES = {
    "softmax": Entry("rows_softmax", "fused_rows_online_softmax", ("ROWS", "COLUMNS"), _ROWS, _TINY_ROWS),
    "only_the_first_shape": Entry("rows_softmax", "fused_rows_online_softmax", ("ROWS", "COLUMNS"), _ROWS, _TINY_ROWS),
    "add_rms_norm": Entry(
        *("field_add_rms_norm", "fused_rows_add_rms_norm", ("ROWS", "FEATURES")),
        ((8192, 4096), (1, 4096), (32, 8192), (16384, 1024), (4096, 5120), (1000, 3000), (65536, 512), (2048, 16384)),
        ((16, 200), (3, 50)),
    ),
    "gemm": Entry(
        *("field_half_matmul", "persistent_matmul_grouped", ("ROWS", "COLUMNS", "INNER")),
        (
            *((2048, 2048, 2048), (4096, 4096, 4096), (128, 4096, 4096), (1, 4096, 4096), (8192, 1024, 512)),
            *((1000, 1000, 1000), (512, 512, 16384), (8192, 8192, 128)),
        ),
        ((64, 64, 128), (32, 96, 64)),
    ),
    "decode_attention": Entry(
        *("field_decode_attention", "decode_attention_split", ("BATCH", "HEADS", "SHARED", "LENGTH", "WIDTH")),
        (
            *((8, 32, 8, 4096, 64), (1, 32, 8, 16384, 128), (64, 32, 8, 512, 128), (16, 32, 32, 2048, 64)),
            *((128, 16, 2, 1024, 64), (4, 64, 8, 8192, 128), (32, 8, 8, 777, 64), (1, 8, 1, 131072, 64)),
        ),
        ((1, 4, 2, 40, 16), (2, 2, 2, 25, 16)),
    ),
    "paged_attention": Entry(
        *("field_paged_attention", "paged_attention_one_pass", ("BATCH", "HEADS", "WIDTH", "PAGE", "PAGES")),
        (
            *((32, 8, 64, 32, 16), (1, 8, 128, 16, 256), (128, 8, 64, 16, 32), (8, 32, 128, 64, 16)),
            *((64, 4, 64, 16, 64), (16, 16, 64, 128, 8), (256, 8, 64, 16, 8), (4, 8, 128, 32, 128)),
        ),
        ((2, 2, 16, 4, 3), (1, 4, 16, 8, 2)),
    ),
    "moe_top2": Entry(
        *("field_moe_top2", "experts_grouped_kernel", ("TOKENS", "EXPERTS", "WIDTH", "HIDDEN")),
        (
            *((1024, 8, 512, 512), (64, 8, 512, 512), (4096, 8, 512, 1024), (1024, 32, 512, 512)),
            *((1, 8, 1024, 1024), (2048, 16, 256, 512), (512, 8, 1024, 2048), (777, 8, 512, 512)),
        ),
        ((24, 4, 32, 32), (5, 2, 32, 32)),
    ),
    "scan": Entry(
        *("field_diagonal_scan", "state_space_scan_over_time", ("BATCH", "LENGTH", "CHANNELS")),
        (
            *((8, 128, 4096), (1, 1024, 2048), (32, 64, 1024), (2, 512, 8192), (16, 100, 1000), (64, 32, 2048)),
            *((4, 256, 4096), (1, 2048, 1024)),
        ),
        ((1, 40, 16), (2, 7, 32)),
    ),
    "lm_head_loss": Entry(
        *("field_lm_head_loss", "chunked_cross_entropy_kernel", ("TOKENS", "WIDTH", "VOCABULARY")),
        (
            *((1024, 512, 16000), (256, 512, 32000), (4096, 512, 8000), (64, 1024, 16000), (1024, 256, 50257)),
            *((100, 512, 16001), (2048, 256, 4096), (512, 1024, 8000)),
        ),
        ((16, 32, 200), (5, 32, 100)),
    ),
    "rotary": Entry(
        *("field_rotary_positions", "lazy_constants_rotary_tables", ("TOKENS", "HEADS", "WIDTH", "LONGEST")),
        (
            *((8192, 16, 64, 4096), (1, 32, 128, 4096), (128, 32, 128, 4096), (65536, 8, 64, 4096)),
            *((1000, 16, 64, 4096), (4096, 64, 64, 4096), (16384, 4, 128, 4096), (512, 16, 64, 4096)),
        ),
        ((20, 2, 32, 128), (3, 4, 32, 128)),
    ),
    "gemm_bf16": Entry(
        *("field_half_matmul", "persistent_matmul_grouped", ("ROWS", "COLUMNS", "INNER")),
        ((2048, 2048, 2048), (4096, 4096, 4096)),
        (),  # Triton's interpreter cannot compute in bfloat16
        {"precision": "bf16"},
    ),
    "rms_norm_gradients": Entry(
        *("field_rms_norm_gradients", "rms_norm_gradients_fused", ("ROWS", "COLUMNS")),
        ((4096, 2048), (512, 8192), (16384, 1024), (1000, 1000)),
        ((48, 96), (5, 33)),
    ),
}
_BASELINES = ["torch-compile", "torch-compile-reduce-overhead", "torch-compile-max-autotune"]


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="Judge candidates on several shapes each.")
    parser.add_argument("names", nargs="*", help=f"only these: {', '.join(ENTRIES)} (default: all)")
    parser.add_argument("--tiny", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--baselines", action="store_true", help="also softmax beside three compiled forms")
    parser.add_argument("--address", help="a running scheduler (default: start services here)")
    parser.add_argument("--json", type=Path, help="also write the results to this file, one on each line")
    parser.add_argument("--plot", type=Path, help="also draw the speedups by shape (needs matplotlib)")
    options = parser.parse_args()
    chosen = [name for name in options.names or ENTRIES if ENTRIES[name].tiny or not options.tiny]
    requests = [ENTRIES[name].request(name, tiny=options.tiny) for name in chosen]
    if options.baselines:
        entry = replace(ENTRIES["softmax"], sizes=_ROWS[:2], tiny=_TINY_ROWS[:1], fields={"baselines": _BASELINES})
        requests.append(entry.request("softmax_baselines", tiny=options.tiny))
    if options.address:
        results, seconds = asyncio.run(_run(options.address, requests))
    else:
        with LocalServices(devices="cpu" if options.tiny else "cuda") as services:
            results, seconds = asyncio.run(_run(services.address, requests))
    for name, result in results.items():
        _print(name, result)
    judged = sum(len(result.workloads) for result in results.values())
    print(
        f"\n{judged} workloads of {len(results)} candidates in {seconds:.1f} s: {seconds / max(1, judged):.2f} s each"
    )
    if options.json:
        options.json.write_text("".join(json.dumps(result_to_json(each)) + "\n" for each in results.values()))
    if options.plot:
        _plot(results, options.plot)
    return 0 if all(result.outcome == EvalResult.CORRECT for result in results.values()) else 1


async def _run(address: str, requests: Sequence[EvalRequest]) -> tuple[dict[str, EvalResult], float]:
    results: dict[str, EvalResult] = {}
    begin = time.monotonic()
    async with AsyncClient(address) as client:
        async for result in client.evaluate(requests):
            results[result.id] = result
    order = [request.id for request in requests]
    return dict(sorted(results.items(), key=lambda pair: order.index(pair[0]))), time.monotonic() - begin


def _print(name: str, result: EvalResult) -> None:
    print(f"\n### {name}: {EvalResult.Outcome.Name(result.outcome)}, {result.message}\n")
    print("| workload | reference us | candidate us | speedup | 95 % |\n| --- | ---: | ---: | ---: | ---: |")
    for each in result.workloads:
        low, high = each.speedup_interval.low, each.speedup_interval.high
        times = (each.reference_timing.median_seconds, each.candidate_timing.median_seconds)
        cells = " | ".join(f"{seconds * 1e6:.1f}" for seconds in times)
        print(f"| {each.workload.name} | {cells} | {each.speedup:.2f} | {low:.2f} to {high:.2f} |")
    summary = result.workload_summary
    if summary.worst_speedup > 0:
        mean = f"geometric mean {result.speedup:.2f}, worst {summary.worst_speedup:.2f}"
        print(f"\n{mean}, faster in {summary.share_won:.0%} of {summary.timed}")
    for baseline in result.baselines:
        form = ReferenceBackend.Name(baseline.backend).removeprefix("REFERENCE_BACKEND_").lower()
        print(f"beside {form}: {baseline.error or f'{baseline.speedup:.2f}'}")


def _plot(results: Mapping[str, EvalResult], path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5))
    for number, result in enumerate(results.values()):
        speedups = [each.speedup for each in result.workloads if each.speedup > 0]
        axes.plot([number] * len(speedups), speedups, "o", alpha=0.6)
        if result.speedup > 0:
            axes.plot([number], [result.speedup], "k_", markersize=18)
    axes.axhline(1.0, color="grey", linewidth=1)
    axes.set_yscale("log")
    axes.set_ylabel("speedup of each workload; bar: geometric mean")
    axes.set_xticks(range(len(results)), results, rotation=30, ha="right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
