"""Run KernelDyno on a Ray cluster: one evaluator on each GPU node, and a scheduler.

    from kerneldyno.deploy.ray import start

    ray.init(address="auto")
    with start() as services, Client(services.address) as client:
        ...

Each service is a child process of a Ray actor that is bound to its node. So Ray reserves its GPUs and processors, shows its
log, and ends it with the driver. The actor restarts a service that ends; Ray restarts an actor that dies. Requests choose a
node by the label `ray_node`, which is Ray's id of the node. Needs Ray and KernelDyno on every node; `python` can name
another environment for the services.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kerneldyno.client.blocking import Client
from kerneldyno.client.errors import KernelDynoError
from kerneldyno.deploy.errors import DeployError
from kerneldyno.deploy.supervisor import State, Supervisor

#: Longest wait for an actor's answer, in seconds.
_ANSWER_SECONDS = 30.0
#: Longest wait for an actor's answer when stopping, in seconds.
_STOP_ANSWER_SECONDS = 5.0
#: Longest wait for a service to stop beyond its own drain, in seconds.
_STOP_SECONDS = 30.0


def start(
    *,
    devices: Literal["cuda", "cpu"] = "cuda",
    nodes: Sequence[str] | None = None,
    gpus: float | None = None,
    cpus: float = 1.0,
    python: str | None = None,
    scheduler_node: str | None = None,
    port: int = 0,
    store: str | None = None,
    scheduler_options: Sequence[str] = (),
    evaluator_options: Sequence[str] = (),
    start_timeout: float = 300.0,
    drain_timeout: float = 30.0,
) -> Services:
    """Start a scheduler and an evaluator on each chosen node, wait until all are registered, and return them.

    Call it in a process that is connected to Ray (`ray.init`). The services end with that process, or with `stop`.

    Args:
        devices: "cuda" for the nodes on which Ray counts GPUs, "cpu" for the CPU device of any node.
        nodes: Ray ids of the nodes that get an evaluator; by default all nodes that are alive and have such a device.
        gpus: number of GPUs that Ray reserves for each evaluator, which then sees no others; by default all of its node.
        cpus: number of processors that Ray reserves for each evaluator; Ray derives OMP_NUM_THREADS from it.
        python: interpreter that has `kerneldyno[evaluator]`, the same path on every node; by default Ray's.
        scheduler_node: Ray id of the scheduler's node; by default the caller's.
        port: port of the scheduler; 0 chooses a free one and keeps it.
        store: as `--store` of the scheduler; by default a journal on its node that `stop` removes.
        scheduler_options, evaluator_options: further command-line options, for example TLS (see docs/deploying.md).
        start_timeout: longest time until all services are registered, in seconds.
        drain_timeout: time that `stop` gives to running evaluations, in seconds.

    Returns:
        The running services.

    Raises:
        DeployError: a node does not exist, or a service did not start; services that had started are stopped.
    """
    chosen = _choose(devices, nodes)
    home = _by_id(scheduler_node or ray.get_runtime_context().get_node_id())
    services = Services(home, drain_timeout)
    deadline = time.monotonic() + start_timeout
    python = python or sys.executable
    try:
        single_host = {node.address for node in chosen} == {home.address}
        address = services._start_scheduler(
            _SchedulerPlan(python, port, store, tuple(scheduler_options), single_host), deadline
        )
        for node in chosen:
            wanted = (node.gpus if gpus is None else gpus) if devices == "cuda" else 0.0
            services._add_evaluator(node, python, address, devices, wanted, cpus, evaluator_options)
        services._wait_registered(deadline, secured="--tls-cert" in scheduler_options)
    except BaseException:
        services.stop()
        raise
    return services


class Services:
    """The services that `start` started; a context manager that stops them."""

    def __init__(self, home: _Node, drain_timeout: float) -> None:
        self._home = home
        self._drain = drain_timeout
        self._scheduler: Any = None
        self._evaluators: dict[str, Any] = {}
        #: Address of the scheduler, host:port.
        self.address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def states(self) -> dict[str, State]:
        """Return the states of the services: "scheduler", and each evaluator by the id of its Ray node.

        If an actor does not answer, because it or its node is gone or restarting, its service counts as not running.
        """
        actors = {"scheduler": self._scheduler, **self._evaluators}
        asked = {name: actor.state.remote() for name, actor in actors.items()}
        states = {}
        for name, answer in asked.items():
            try:
                states[name] = ray.get(answer, timeout=_ANSWER_SECONDS)
            except ray.exceptions.RayError as error:
                service = "scheduler" if name == "scheduler" else "evaluator"
                states[name] = State(service, None, None, 0, f"its actor does not answer: {error}")
        return states

    def stop(self) -> None:
        """Stop the evaluators, which may still report, then the scheduler. It can be called again and does not raise."""
        if not ray.is_initialized():
            return  # Ray has ended the actors and their services
        _stop(list(self._evaluators.values()), self._drain)
        self._evaluators.clear()
        if self._scheduler is not None:
            _stop([self._scheduler], self._drain)
            self._scheduler = None

    def _start_scheduler(self, plan: _SchedulerPlan, deadline: float) -> str:
        if plan.port == 0:  # choose it once on that node: a restarted scheduler must keep its port
            plan = _get(_on_node(self._home, ray.remote(_with_port)).remote(plan), deadline, "choosing a port")
        actor = _on_node(self._home, ray.remote(_SchedulerActor), max_restarts=-1)
        self._scheduler = actor.remote(plan, self._home.address, secrets.token_hex(4))
        _wait_ready(self._scheduler, deadline, "the scheduler")
        self.address = f"{plan.host(self._home.address)}:{plan.port}"
        return self.address

    def _add_evaluator(
        self, node: _Node, python: str, address: str, devices: str, gpus: float, cpus: float, extra: Sequence[str]
    ) -> None:
        options = [
            *("--listen", "127.0.0.1:0", "--advertise", "off", "--metrics", "off", "--log-level", "WARNING"),
            *("--scheduler", address, "--devices", devices, "--node-id", node.name),
            *("--label", f"ray_node={node.id}", *extra),
        ]
        actor = _on_node(node, ray.remote(_EvaluatorActor), max_restarts=-1, num_gpus=gpus, num_cpus=cpus)
        self._evaluators[node.id] = actor.remote(python, options)

    def _wait_registered(self, deadline: float, *, secured: bool) -> None:
        for name, actor in self._evaluators.items():
            _wait_ready(actor, deadline, f"the evaluator on node {name}")
        wanted = {_by_id(name).name for name in self._evaluators}
        # Without TLS the scheduler uses no tokens, and credentials in the environment are for other schedulers.
        shown = None if secured else ""
        with Client(self.address, tls_ca=shown, tls_cert=shown, tls_key=shown, token=shown) as client:
            while True:
                registered: set[str] = set()
                with suppress(KernelDynoError):
                    registered = {node.node_id for node in client.nodes()}
                if wanted <= registered:
                    return
                if time.monotonic() > deadline:
                    missing = ", ".join(sorted(wanted - registered))
                    raise DeployError(f"evaluators started but did not register with the scheduler in time: {missing}")
                time.sleep(0.1)


# Actors, which run on the nodes


class _SchedulerActor:
    """The scheduler's process on one node."""

    def __init__(self, plan: _SchedulerPlan, own_address: str, run: str) -> None:
        self._directory: Path | None = None
        store = plan.store
        if store is None:
            self._directory = Path(tempfile.gettempdir()) / f"kerneldyno-ray-{run}"
            self._directory.mkdir(mode=0o700, exist_ok=True)  # it exists if Ray has restarted this actor
            store = f"sqlite:{self._directory / 'scheduler.sqlite'}"
        host = plan.host(own_address)
        options = ["--listen", f"{host}:{plan.port}", "--metrics", "off", "--store", store, "--log-level", "WARNING"]
        if not plan.single_host and "--tls-cert" not in plan.options:
            options.append("--insecure")
        self._service = Supervisor(
            "scheduler", plan.python, [*options, *plan.options], environ=_environment(plan.python), echo=sys.stderr
        )

    def state(self) -> State:
        return self._service.state()

    def stop(self, seconds: float) -> None:
        self._service.stop(seconds)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


class _EvaluatorActor:
    """The evaluator's process on one node. Ray sets CUDA_VISIBLE_DEVICES to the GPUs of the actor."""

    def __init__(self, python: str, options: Sequence[str]) -> None:
        self._service = Supervisor("evaluator", python, options, environ=_environment(python), echo=sys.stderr)

    def state(self) -> State:
        return self._service.state()

    def stop(self, seconds: float) -> None:
        self._service.stop(seconds)


def _environment(python: str) -> dict[str, str]:
    """Return the environment of this process; for another interpreter without the paths of Ray's interpreter."""
    dropped = set() if python == sys.executable else {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


# Nodes and actors


@dataclasses.dataclass(frozen=True, slots=True)
class _SchedulerPlan:
    """How to start the scheduler, the same at each restart."""

    python: str
    port: int
    store: str | None
    options: tuple[str, ...]
    #: Whether all nodes are on one machine, so that no other machine needs to reach the port.
    single_host: bool

    def host(self, own_address: str) -> str:
        return "127.0.0.1" if self.single_host and "--tls-cert" not in self.options else own_address


def _with_port(plan: _SchedulerPlan) -> _SchedulerPlan:
    with socket.create_server(("", 0)) as free:
        return dataclasses.replace(plan, port=free.getsockname()[1])


@dataclasses.dataclass(frozen=True, slots=True)
class _Node:
    """A node of the Ray cluster."""

    id: str
    address: str
    gpus: float

    @property
    def name(self) -> str:
        """Node id of its evaluator, which differs between two Ray nodes on one machine."""
        return f"ray-{self.id[:16]}"


def _alive() -> dict[str, _Node]:
    return {
        node["NodeID"]: _Node(node["NodeID"], node["NodeManagerAddress"], node["Resources"].get("GPU", 0.0))
        for node in ray.nodes()
        if node["Alive"]
    }


def _by_id(node_id: str) -> _Node:
    try:
        return _alive()[node_id]
    except KeyError:
        raise DeployError(f"the Ray cluster has no node {node_id}, or it is not alive") from None


def _choose(devices: str, wanted: Sequence[str] | None) -> list[_Node]:
    if devices not in ("cuda", "cpu"):
        raise DeployError(f'devices is {devices!r}; it must be "cuda" or "cpu"')
    if not ray.is_initialized():
        raise DeployError("this process is not connected to Ray; call ray.init first")
    if wanted is not None:
        chosen = [_by_id(node_id) for node_id in dict.fromkeys(wanted)]
        if devices == "cuda" and (without := [node.id for node in chosen if not node.gpus]):
            raise DeployError(f"Ray counts no GPU on {', '.join(without)}")
    else:
        chosen = [node for node in _alive().values() if node.gpus or devices == "cpu"]
    if not chosen:
        raise DeployError('there is no node to evaluate on: Ray counts no GPU; devices="cpu" evaluates on processors')
    return chosen


def _on_node(node: _Node, remote: Any, **options: Any) -> Any:
    """Bind a remote class or function to a node; it reserves no processor unless `options` say so."""
    affinity = NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
    return remote.options(**{"num_cpus": 0, **options}, scheduling_strategy=affinity)


def _get(answer: Any, deadline: float, what: str) -> Any:
    try:
        return ray.get(answer, timeout=max(1.0, deadline - time.monotonic()))
    except ray.exceptions.GetTimeoutError:
        raise DeployError(
            f"{what}: Ray did not start it in time; the processors or GPUs that it asks for may be taken (see ray status)"
        ) from None
    except ray.exceptions.RayError as error:
        raise DeployError(f"{what}: {error}") from None


def _wait_ready(actor: Any, deadline: float, what: str) -> None:
    """Wait until the service of an actor is ready.

    Raises:
        DeployError: the service ended, or was not ready in time.
    """
    while True:
        state = _get(actor.state.remote(), deadline, what)
        if state.ready:
            return
        if state.last_end:
            raise DeployError(f"{what} {state.last_end}")
        if time.monotonic() > deadline:
            raise DeployError(f"{what} was started as process {state.pid} and was not ready in time")
        time.sleep(0.1)


def _stop(actors: Sequence[Any], drain_seconds: float) -> None:
    if actors:
        asked = {actor.state.remote(): actor for actor in actors}
        there, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_STOP_ANSWER_SECONDS)
        # An actor that was never placed, or whose node is gone, does not answer and has nothing to drain.
        answers = [asked[answer].stop.remote(drain_seconds) for answer in there]
        if answers:
            ray.wait(answers, num_returns=len(answers), timeout=drain_seconds + _STOP_SECONDS)
    for actor in actors:
        ray.kill(actor)
