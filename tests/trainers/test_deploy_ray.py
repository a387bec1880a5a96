"""Tests of services on a real Ray cluster of two nodes on this machine: judging, restarts after kills, cleaning up."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from kerneldyno.client import Client
from kerneldyno.client.errors import UnauthenticatedError
from kerneldyno.deploy.errors import DeployError
from kerneldyno.deploy.ray import Services, start
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from tests.rpc.certificates import Authority
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

_REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""
_CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * 2 + {summand}
# {mark}
"""


def evaluators_python() -> str:
    """Return an interpreter that can evaluate: this one, or the repository's where torch came without Triton."""
    if importlib.util.find_spec("triton"):
        return sys.executable
    other = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "python"
    assert other.exists(), "no Triton here, and no environment of the repository: make setup"
    return str(other)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Ray cluster of two nodes with one processor each, as Ray counts them."""
    node = {"num_cpus": 1, "object_store_memory": 80 * 1024 * 1024}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def services(cluster: Cluster) -> Iterator[Services]:
    options = ["--lanes", "1", "--spares", "1"]
    with start(devices="cpu", cpus=0.5, python=evaluators_python(), evaluator_options=options) as services:
        yield services


def request(name: str, node: str = "", summand: int = 1) -> EvalRequest:
    fields = {
        "id": name,
        "reference_code": _REFERENCE,
        "kernel_code": _CANDIDATE.format(summand=summand, mark=name),
        "backend": "torch",
        "num_correct_trials": 1,
        "stress_inputs": False,
        "run_performance": False,
    }
    if node:
        fields["device"] = {"node_labels": {"ray_node": node}}
    return request_from_json(fields)


def outcomes(address: str, *requests: EvalRequest) -> dict[str, str]:
    with Client(address, tls_ca="", tls_cert="", tls_key="", token="") as client:
        return {result.id: EvalResult.Outcome.Name(result.outcome) for result in client.evaluate(requests)}


def ray_nodes() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def process_of(services: Services, name: str) -> psutil.Process:
    pid = services.states()[name].pid
    assert pid is not None
    return psutil.Process(pid)


def test_candidates_are_judged_on_each_node(services: Services) -> None:
    first, second = ray_nodes()
    work = [request("first", first), request("second", second), request("wrong", second, summand=2), request("any")]
    expected = {"first": "CORRECT", "second": "CORRECT", "wrong": "INCORRECT", "any": "CORRECT"}
    assert outcomes(services.address, *work) == expected


def test_services_listen_on_loopback_only(services: Services) -> None:
    """All services listen on loopback only, since all nodes are on this machine; the scheduler has a single port."""
    states = services.states()
    assert set(states) == {"scheduler", *ray_nodes()}
    for name in states:
        listening = {
            connection.laddr
            for connection in process_of(services, name).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert {address.ip.removeprefix("::ffff:") for address in listening} == {
            "127.0.0.1"
        }  # all nodes are on this machine
        if name == "scheduler":
            assert {address.port for address in listening} == {int(services.address.rpartition(":")[2])}


def test_an_evaluator_that_dies_is_started_again(services: Services) -> None:
    node = ray_nodes()[1]
    victim = process_of(services, node)
    victim.kill()
    wait_until(
        lambda: services.states()[node].restarts == 1 and bool(services.states()[node].ready), "the new evaluator"
    )
    assert process_of(services, node).pid != victim.pid
    assert "SIGKILL" in services.states()[node].last_end
    assert outcomes(services.address, request("after-evaluator", node)) == {"after-evaluator": "CORRECT"}


def test_an_actor_that_dies_takes_its_evaluator_along_and_both_come_back(services: Services) -> None:
    node = ray_nodes()[0]
    orphan = process_of(services, node)
    actor = orphan.parent()
    assert actor is not None
    assert "_EvaluatorActor" in " ".join(actor.cmdline())
    os.kill(actor.pid, signal.SIGKILL)
    wait_until(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE, "the end of the evaluator")
    wait_until(lambda: bool(services.states()[node].ready), "the new evaluator")
    assert process_of(services, node).pid != orphan.pid
    assert outcomes(services.address, request("after-actor", node)) == {"after-actor": "CORRECT"}


def test_a_scheduler_that_dies_is_where_it_was_and_knows_what_it_knew(services: Services) -> None:
    assert outcomes(services.address, request("before")) == {"before": "CORRECT"}
    process_of(services, "scheduler").kill()
    wait_until(lambda: services.states()["scheduler"].restarts == 1, "the new scheduler")
    wait_until(lambda: bool(services.states()["scheduler"].ready), "the new scheduler")
    with Client(services.address, tls_ca="", tls_cert="", tls_key="", token="") as client:
        assert "before" in {evaluation.id for evaluation in client.list()}
    assert outcomes(services.address, request("after-scheduler")) == {"after-scheduler": "CORRECT"}


def test_with_certificates_and_tokens(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = ray.nodes()[0]["NodeManagerAddress"]
    ours = Authority(tmp_path)
    pair = ours.issue("scheduler", host=f"IP:{host}")
    owners = {"nodes": ("node", secrets.token_urlsafe(32)), "me": ("submit", secrets.token_urlsafe(32))}
    for name, (_, token) in owners.items():
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(token)
    (tmp_path / "tokens.toml").touch(mode=0o600)
    (tmp_path / "tokens.toml").write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nroles = ["{role}"]\ntoken = "{token}"\n'
            for name, (role, token) in owners.items()
        )
    )
    monkeypatch.setenv("KERNELDYNO_TLS_CA", ours.cert)
    monkeypatch.setenv("KERNELDYNO_TOKEN_FILE", str(tmp_path / "me"))
    tls = ["--tls-cert", pair.cert, "--tls-key", pair.key, "--tokens", str(tmp_path / "tokens.toml")]
    shown = ["--scheduler-tls-ca", ours.cert, "--token-file", str(tmp_path / "nodes")]
    with start(
        devices="cpu",
        cpus=0.25,
        nodes=ray_nodes()[:1],
        python=evaluators_python(),
        scheduler_options=tls,
        evaluator_options=shown,
    ) as services:
        assert services.address.startswith(f"{host}:")
        with Client(services.address) as client:
            (result,) = client.evaluate([request("with-token")])
            assert result.outcome == EvalResult.CORRECT
        with Client(services.address, token="", call_timeout=10) as client, pytest.raises(UnauthenticatedError):
            list(client.list())


def test_nothing_is_left_behind(cluster: Cluster) -> None:
    before = set(Path(tempfile.gettempdir()).glob("kerneldyno-ray-*"))
    nodes = ray_nodes()[:1]
    with start(devices="cpu", cpus=0.25, nodes=nodes, python=evaluators_python()) as services:
        journals = set(Path(tempfile.gettempdir()).glob("kerneldyno-ray-*")) - before
        assert len(journals) == 1
        assert journals.pop().stat().st_mode & 0o077 == 0  # it holds candidates' sources
        family = [process_of(services, name) for name in services.states()]
        family += [child for process in family for child in process.children(recursive=True)]
    assert set(Path(tempfile.gettempdir()).glob("kerneldyno-ray-*")) == before
    assert [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []
    services.stop()  # a second stop does nothing


def test_a_service_that_cannot_start_says_why_and_takes_the_others_along(services: Services) -> None:
    with pytest.raises(DeployError, match=r"the evaluator on node \w+ ended with status 2(.|\n)*use auto, cpu, cuda"):
        start(devices="cpu", cpus=0.25, python=evaluators_python(), evaluator_options=["--devices", "abacus"])
    with pytest.raises(DeployError, match="cannot be started with /nowhere/python"):
        start(devices="cpu", cpus=0.25, python="/nowhere/python")
    with pytest.raises(DeployError, match="processors or GPUs that it asks for may be taken"):
        # `services` holds half of each node. The timeout leaves time for the scheduler to start on a busy machine.
        start(devices="cpu", cpus=0.75, python=evaluators_python(), start_timeout=45)
    with pytest.raises(DeployError, match=r'devices="cpu" evaluates on processors'):
        start()
    with pytest.raises(DeployError, match="no node deadbeef"):
        start(devices="cpu", nodes=["deadbeef"])
