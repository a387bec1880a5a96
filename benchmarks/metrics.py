"""Measure the cost of the metrics pages: series, bytes and time of a scrape, of idle and of busy services.

    python -m benchmarks.metrics [--seconds 60] [--devices cpu] [--json FILE]

It starts a scheduler, an evaluator and a gateway as a user does, and scrapes each page as Prometheus does (OpenMetrics,
gzip). While the services are idle it scrapes back to back, to get the processor time of one scrape. While the evaluator
judges candidates on all its lanes it scrapes four times a second, to get the duration of one. It prints the table of
docs/metrics.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.service import capacity, collect
from kerneldyno.client import AsyncClient, EvalRequest, LocalServices

PROBLEM = Path(__file__).resolve().parents[1] / "examples" / "problems" / "softmax"
#: Request headers that Prometheus sends.
HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}
#: Number of scrapes of an idle service; Prometheus makes fewer in half an hour.
IDLE_SCRAPES = 200
#: Seconds between two scrapes of a busy service: sixty times as often as usual.
PERIOD = 0.25


@dataclass
class Page:
    """One process and its metrics page."""

    name: str
    url: str
    process: psutil.Process
    series: int = 0
    size: int = 0
    zipped: int = 0
    cpu_milliseconds: float = 0.0
    idle: list[float] = field(default_factory=list)
    """Milliseconds, as `busy`."""
    busy: list[float] = field(default_factory=list)

    def scrape(self) -> float:
        """Fetch the page, record it, and return the duration in milliseconds."""
        begun = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(self.url, headers=HEADERS), timeout=30) as response:
            body, encoding = response.read(), response.headers.get("Content-Encoding")
        took = (time.perf_counter() - begun) * 1e3
        plain = gzip.decompress(body) if encoding == "gzip" else body
        self.zipped, self.size = len(body), len(plain)
        self.series = sum(1 for line in plain.splitlines() if line and not line.startswith(b"#"))
        return took

    def while_idle(self) -> None:
        """Scrape back to back while the services are idle."""
        before = self._cpu_seconds()
        self.idle = [self.scrape() for _ in range(IDLE_SCRAPES)]
        self.cpu_milliseconds = (self._cpu_seconds() - before) / IDLE_SCRAPES * 1e3

    def row(self) -> dict[str, Any]:
        """Return the figures of the table's row."""
        return {
            "process": self.name,
            "series": self.series,
            "bytes": self.size,
            "bytes_gzip": self.zipped,
            "cpu_ms": self.cpu_milliseconds,
            "idle_ms_median": statistics.median(self.idle),
            "busy_ms_median": statistics.median(self.busy),
            "busy_ms_p99": statistics.quantiles(self.busy, n=100)[98],
            "busy_scrapes": len(self.busy),
        }

    def _cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to keep the evaluator busy, in seconds")
    parser.add_argument("--devices", default="cpu", help="devices of the evaluator")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with LocalServices(devices=options.devices) as services, gateway(services.address) as (url, process):
        children = psutil.Process().children()
        pages = [
            Page(name, f"http://{where['metrics']}/metrics", _of(children, f"kerneldyno.{name}"))
            for name, where in (("scheduler", services.scheduler), ("evaluator", services.evaluator))
        ]
        pages.append(Page("gateway", f"{url}/metrics", process))
        for page in pages:
            page.while_idle()
        judged = asyncio.run(busy(services.address, pages, options.seconds))
    rows = [page.row() for page in pages]
    print(table(rows))
    print(f"{judged} candidates judged in {options.seconds:g} s, {os.cpu_count()} processors")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "judged": judged}, indent=1) + "\n")
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of docs/metrics.md."""
    lines = [
        "| process | series | bytes | gzip | processor time | idle: median | busy: median | busy: 99th percentile |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r['process']} | {r['series']:,} | {r['bytes']:,} | {r['bytes_gzip']:,} | {r['cpu_ms']:.1f} ms "
        f"| {r['idle_ms_median']:.1f} ms | {r['busy_ms_median']:.1f} ms | {r['busy_ms_p99']:.0f} ms |"
        for r in rows
    ]
    return "\n".join(lines)


async def busy(address: str, pages: list[Page], seconds: float) -> int:
    """Keep all lanes of the evaluator busy and scrape meanwhile; return the number of judged candidates."""
    async with AsyncClient(address) as client:
        _, devices, lanes = await capacity(client)
    over = threading.Event()
    scrapers = [threading.Thread(target=_keep_scraping, args=(page, over)) for page in pages]
    for scraper in scrapers:
        scraper.start()
    try:
        results, _ = await collect(address, requests(), seconds, lanes * len(devices))
    finally:
        over.set()
        for scraper in scrapers:
            scraper.join()
    return len(results)


def requests() -> Iterator[EvalRequest]:
    """Yield requests with timing; correct and wrong candidates take turns, and no two are equal."""
    sources = [(PROBLEM / f"{name}.py").read_text() for name in ("triton_rows", "wrong_mask", "cached_first")]
    reference = (PROBLEM / "reference.py").read_text()
    for number in itertools.count():
        source = f"{sources[number % len(sources)]}\n# {number}\n"
        yield EvalRequest(id=f"c{number}", reference_code=reference, kernel_code=source, num_perf_trials=10)


@contextmanager
def gateway(scheduler: str) -> Iterator[tuple[str, psutil.Process]]:
    """Start a gateway; yield its URL and its process."""
    command = [
        sys.executable,
        "-m",
        "kerneldyno.cli",
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--scheduler",
        scheduler,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1], psutil.Process(process.pid)
        finally:
            process.terminate()


def _keep_scraping(page: Page, over: threading.Event) -> None:
    while not over.wait(PERIOD):
        page.busy.append(page.scrape())


def _of(children: list[psutil.Process], module: str) -> psutil.Process:
    return next(child for child in children if module in child.cmdline())


if __name__ == "__main__":
    sys.exit(main())
