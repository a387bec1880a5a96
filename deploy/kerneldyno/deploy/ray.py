"""KernelDyno on the nodes of a Ray cluster: one evaluator on each GPU node, and a scheduler beside them.

    from kerneldyno.deploy.ray import start

    ray.init(address="auto")
    with start() as services, Client(services.address) as client:
        ...

Each service is a child process of a Ray actor that is bound to its node, so Ray counts its GPUs and processors, shows its
log, and ends it with the driver. A service that dies is started again by its actor, an actor that dies by Ray. Requests
choose a node by the label `ray_node`, which is Ray's id of it. Needs Ray and KernelDyno on every node; `python` may name
another environment for the services themselves.
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
from kerneldyno.client.blocking import Client
from kerneldyno.client.errors import KernelDynoError
from kerneldyno.deploy.errors import DeployError
from kerneldyno.deploy.supervisor import State, Supervisor
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

#: Longest waits in seconds: for an actor's answer, for the same at the end, and beyond a service's own drain.
_ANSWER_SECONDS = 30.0
_THERE_SECONDS = 5.0
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

    Parameters:
        devices: "cuda" for the nodes that have GPUs in Ray's count, "cpu" for the CPU device of any node.
        nodes: Ray ids of the nodes that get an evaluator; all alive ones with such a device by default.
        gpus: GPUs that Ray sets aside for each evaluator, which then sees no others; all of its node's by default.
        cpus: processors that Ray sets aside for each evaluator; Ray's OMP_NUM_THREADS follows from it.
        python: interpreter that has `kerneldyno[evaluator]`, the same path on every node; Ray's own by default.
        scheduler_node: Ray id of the scheduler's node; the caller's own by default.
        port: the scheduler's; 0 takes a free one and keeps it.
        store: as `--store` of the scheduler. By default a journal on its node that `stop` removes.
        scheduler_options, evaluator_options: more of their command lines, for example TLS (see docs/deploying.md).
        start_timeout: longest time until all are registered, in seconds.
        drain_timeout: seconds that `stop` lets running evaluations have.

    Raises:
        DeployError: no such node, or a service did not start; what had started is stopped.
    """
    chosen = _choose(devices, nodes)
    home = _by_id(scheduler_node or ray.get_runtime_context().get_node_id())
    services = Services(home, drain_timeout)
    deadline = time.monotonic() + start_timeout
    python = python or sys.executable
    try:
        everybody_here = {node.address for node in chosen} == {home.address}
        address = services._start_scheduler(
            _SchedulerPlan(python, port, store, tuple(scheduler_options), everybody_here), deadline
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
    """What `start` started; a context manager that stops it."""

    def __init__(self, home: _Node, drain_timeout: float) -> None:
        self._home = home
        self._drain = drain_timeout
        self._scheduler: Any = None
        self._evaluators: dict[str, Any] = {}
        #: Where the scheduler listens, host:port.
        self.address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def states(self) -> dict[str, State]:
        """Tell how the services are: "scheduler", and each evaluator by the id of its Ray node.

        An actor that does not answer, for it or its node is gone or starts again, counts as a service without a process.
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
        """Stop the evaluators, which may still report, then the scheduler. May be called again; knows no failure."""
        if not ray.is_initialized():
            return  # Ray has ended the actors, and their services with them
        _stop(list(self._evaluators.values()), self._drain)
        self._evaluators.clear()
        if self._scheduler is not None:
            _stop([self._scheduler], self._drain)
            self._scheduler = None

    def _start_scheduler(self, plan: _SchedulerPlan, deadline: float) -> str:
        if plan.port == 0:  # chosen there, once: a scheduler that is started again has to be where it was
            plan = _ask(_on(self._home, ray.remote(_with_port)).remote(plan), deadline, "choosing a port")
        actor = _on(self._home, ray.remote(_SchedulerActor), max_restarts=-1)
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
        actor = _on(node, ray.remote(_EvaluatorActor), max_restarts=-1, num_gpus=gpus, num_cpus=cpus)
        self._evaluators[node.id] = actor.remote(python, options)

    def _wait_registered(self, deadline: float, *, secured: bool) -> None:
        for name, actor in self._evaluators.items():
            _wait_ready(actor, deadline, f"the evaluator on node {name}")
        wanted = {_by_id(name).name for name in self._evaluators}
        # Without TLS of its own the scheduler knows no tokens either, and what the environment has is for others.
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
                    raise DeployError(f"started, but not registered with the scheduler in time: {missing}")
                time.sleep(0.1)


# What runs on the nodes


class _SchedulerActor:
    """The scheduler's process on one node."""

    def __init__(self, plan: _SchedulerPlan, own_address: str, run: str) -> None:
        self._directory: Path | None = None
        store = plan.store
        if store is None:
            self._directory = Path(tempfile.gettempdir()) / f"kerneldyno-ray-{run}"
            self._directory.mkdir(mode=0o700, exist_ok=True)  # there already when Ray starts this actor again
            store = f"sqlite:{self._directory / 'scheduler.sqlite'}"
        host = plan.host(own_address)
        options = ["--listen", f"{host}:{plan.port}", "--metrics", "off", "--store", store, "--log-level", "WARNING"]
        if not plan.everybody_here and "--tls-cert" not in plan.options:
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
    """An evaluator's process on one node. Ray has set CUDA_VISIBLE_DEVICES to the GPUs that are the actor's."""

    def __init__(self, python: str, options: Sequence[str]) -> None:
        self._service = Supervisor("evaluator", python, options, environ=_environment(python), echo=sys.stderr)

    def state(self) -> State:
        return self._service.state()

    def stop(self, seconds: float) -> None:
        self._service.stop(seconds)


def _environment(python: str) -> dict[str, str]:
    """Return this process's environment; another interpreter gets none of the paths of Ray's."""
    dropped = set() if python == sys.executable else {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


# Nodes and actors


@dataclasses.dataclass(frozen=True, slots=True)
class _SchedulerPlan:
    """What a scheduler is started with, the same at each start."""

    python: str
    port: int
    store: str | None
    options: tuple[str, ...]
    #: Whether all nodes are on one machine, so that nobody else needs to reach the port.
    everybody_here: bool

    def host(self, own_address: str) -> str:
        return "127.0.0.1" if self.everybody_here and "--tls-cert" not in self.options else own_address


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
        """Its evaluator's node id: two Ray nodes on one machine have different ones."""
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
        raise DeployError(f"the Ray cluster has no node {node_id} that is alive") from None


def _choose(devices: str, wanted: Sequence[str] | None) -> list[_Node]:
    if devices not in ("cuda", "cpu"):
        raise DeployError(f'devices is {devices!r}; it must be "cuda" or "cpu"')
    if not ray.is_initialized():
        raise DeployError("this process is not connected to Ray: call ray.init first")
    if wanted is not None:
        chosen = [_by_id(node_id) for node_id in dict.fromkeys(wanted)]
        if devices == "cuda" and (without := [node.id for node in chosen if not node.gpus]):
            raise DeployError(f"Ray counts no GPU on {', '.join(without)}")
    else:
        chosen = [node for node in _alive().values() if node.gpus or devices == "cpu"]
    if not chosen:
        raise DeployError('no node to evaluate on: Ray counts no GPU anywhere; devices="cpu" evaluates on processors')
    return chosen


def _on(node: _Node, remote: Any, **options: Any) -> Any:
    """Bind a remote class or function to a node; it takes no processor unless told to."""
    affinity = NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
    return remote.options(**{"num_cpus": 0, **options}, scheduling_strategy=affinity)


def _ask(answer: Any, deadline: float, what: str) -> Any:
    try:
        return ray.get(answer, timeout=max(1.0, deadline - time.monotonic()))
    except ray.exceptions.GetTimeoutError:
        raise DeployError(
            f"{what}: Ray did not start it in time; are the processors or GPUs that it asks for taken? (ray status)"
        ) from None
    except ray.exceptions.RayError as error:
        raise DeployError(f"{what}: {error}") from None


def _wait_ready(actor: Any, deadline: float, what: str) -> None:
    """Wait until its service is ready. Raises DeployError when it has ended instead, or takes too long."""
    while True:
        state = _ask(actor.state.remote(), deadline, what)
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
        there, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_THERE_SECONDS)
        # One that was never placed, or whose node is gone, does not answer, and has nothing to drain.
        answers = [asked[answer].stop.remote(drain_seconds) for answer in there]
        if answers:
            ray.wait(answers, num_returns=len(answers), timeout=drain_seconds + _STOP_SECONDS)
    for actor in actors:
        ray.kill(actor)
