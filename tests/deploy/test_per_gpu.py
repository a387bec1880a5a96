"""Two evaluators on one host, as their systemd units start them: both register and judge, each on its processors."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kerneldyno.client import Client
from kerneldyno.deploy.supervisor import Supervisor
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import EvalResult
from tests.deploy.supervised import ready
from tests.deploy.test_systemd import of_gpu
from tests.e2e.e2e_harness import REFERENCE, candidate
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


@contextmanager
def on_processors(chosen: set[int]) -> Iterator[None]:
    """Run processes that start meanwhile on these processors, as AllowedCPUs= and `cpuset` do."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def test_two_evaluators_of_one_host_judge_beside_each_other(tmp_path: Path) -> None:
    processors = sorted(os.sched_getaffinity(0))
    parts = [set(processors[number::2]) or set(processors) for number in range(2)]
    options = ("--listen", "127.0.0.1:0", "--metrics", "off", "--store", "memory")
    services = [Supervisor("scheduler", sys.executable, options)]
    try:
        address = ready(services[0])["grpc"]
        shared = ("--scheduler", address, "--build-cache", str(tmp_path / "builds"), "--lanes", "1", "--spares", "1")
        for number, part in enumerate(parts):
            # There is no GPU here, and the units' metrics ports may be taken.
            own = ("--devices", "cpu", "--metrics", "127.0.0.1:0", "--label", f"gpu={number}")
            with on_processors(part):
                services.append(Supervisor("evaluator", sys.executable, (*shared, *of_gpu(number), *own)))
        for service, part in zip(services[1:], parts, strict=True):
            page = f"http://{ready(service)['metrics']}/metrics"
            with urllib.request.urlopen(page, timeout=10) as answer:
                assert b"kerneldyno_device_ready" in answer.read()
            pid = service.state().pid
            assert pid is not None
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                assert set(process.cpu_affinity()) <= part
        with Client(address, tls_ca="", tls_cert="", tls_key="", token="") as client:
            wait_until(lambda: len(client.nodes()) == 2, "both evaluators")
            assert sorted(node.node_id for node in client.nodes()) == ["gpu-host-0", "gpu-host-1"]
            requests = [
                request_from_json(
                    {
                        "id": f"of-gpu-{number}",
                        "reference_code": REFERENCE,
                        "kernel_code": candidate(mark=f"{number}"),
                        "backend": "torch",
                        "device": {"node_labels": {"gpu": str(number)}},
                    }
                )
                for number in range(2)
            ]
            for result in client.evaluate(requests):
                assert result.outcome == EvalResult.CORRECT, result
                assert result.environment.node_id == f"gpu-host-{result.id[-1]}"
    finally:
        for service in reversed(services):
            service.stop(30)
