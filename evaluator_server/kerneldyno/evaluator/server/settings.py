"""The evaluator's settings: the command line, and defaults that depend on the machine.

`server/main.py` loads them once. GPUs are found from files of the driver and without CUDA, because the server process
must never open a GPU.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kerneldyno.rpc import channel, credentials, security
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.rpc.security import ServerSecurity
from kerneldyno.rpc.serving import Address
from kerneldyno.rpc.validation import MAX_LABEL_CHARS, MAX_LABELS

from ..shared import nvml
from .builders import BuilderSettings
from .cell import CellSettings

#: Maximum number of lanes of a GPU. Its judge has one thread, so more lanes do not help: it judges 293 candidates a
#: minute with 8 lanes, 284 with 12, 269 with 16 (H200).
_MAX_CUDA_LANES = 8
#: Device memory in bytes for each lane: two contexts, the arenas, and other memory of candidate and judge (5.8 GB on an
#: H200).
_LANE_BYTES = 6 * 10**9
#: Maximum number of spares by default. Each holds a CUDA context of about 500 MB of device memory.
_MAX_SPARES = 8


class SettingsError(ValueError):
    """The settings are invalid; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, checked."""

    listen: Address
    metrics: str
    security: ServerSecurity
    scheduler: str | None
    credentials: Credentials
    devices: tuple[str, ...]
    sandbox: str
    lanes: int
    spares: int
    node_id: str
    labels: dict[str, str]
    advertise: str | None
    drain_seconds: float
    reference_seconds: float
    builders: int
    build_cache: Path
    build_cache_bytes: int
    #: Of the GPUs, as in TORCH_CUDA_ARCH_LIST; empty without any.
    architecture: str
    exit_with_parent: bool
    log_level: str

    def cells(self) -> list[CellSettings]:
        """Return the settings of each device's cell."""
        return [
            CellSettings(
                device,
                self.node_id,
                self.lanes,
                self.spares,
                self.sandbox,
                self.reference_seconds,
                (number, len(self.devices)),
            )
            for number, device in enumerate(self.devices)
        ]

    def builder(self) -> BuilderSettings:
        """Return the settings of the node's builders."""
        return BuilderSettings(
            self.builders,
            self.build_cache,
            self.build_cache_bytes,
            self.architecture,
            self.sandbox,
            at_once=not self.devices[0].startswith("cpu"),
        )

    def address(self, bound: Address) -> str:
        """Return the address at which others reach this node, or "" if they cannot.

        `bound` is where the server listens.
        """
        if self.advertise:
            return "" if self.advertise == "off" else self.advertise
        if bound.loopback and self.scheduler is not None and not channel.stays_here(self.scheduler):
            return ""  # on the scheduler's machine, this address means another process
        everywhere = bound.host in ("0.0.0.0", "::", "*")
        return str(Address(socket.gethostname(), bound.port) if everywhere else bound)


def load(arguments: Sequence[str], environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Settings:
    """Read the command line.

    Raises:
        SettingsError: A setting is invalid.
        SystemExit: `--help`, or an unknown option.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    devices = find_devices(options.devices, environ, root)
    cores = max(1, len(os.sched_getaffinity(0)) // len(devices))
    names = [] if devices[0].startswith("cpu") else [_driver_name(device, environ) for device in devices]
    derived = _cuda_lanes(cores, nvml.smallest_memory(names)) if names else cores
    lanes = options.lanes or derived
    spares = min(lanes, _MAX_SPARES) if options.spares is None else options.spares
    try:
        listen = Address.parse(options.listen)
        if options.advertise not in (None, "off"):
            Address.parse(options.advertise)
        if options.scheduler is not None:
            channel.addresses(options.scheduler)
        server_security = ServerSecurity.of(options)
        server_security.check(options.listen, options.metrics)
        client_credentials = credentials.choose(
            tls_ca=options.scheduler_tls_ca,
            tls_cert=options.scheduler_tls_cert,
            tls_key=options.scheduler_tls_key,
            token_file=options.token_file,
            environ=environ,
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if lanes < 1 or spares < 1 or options.drain_timeout < 0 or options.reference_timeout <= 0:
        raise SettingsError("--lanes and --spares must be at least 1, and time limits must not be negative")
    if options.builders is not None and options.builders < 0:
        raise SettingsError("--builders must not be negative; 0 means that candidates are built in lanes")
    if options.build_cache_bytes < 1 << 20:
        raise SettingsError("--build-cache-bytes must be at least 1 MiB (1048576)")
    if not 1 <= len(options.node_id) <= 100:
        raise SettingsError("--node-id must have 1 to 100 characters")
    return Settings(
        listen=listen,
        metrics=options.metrics,
        security=server_security,
        scheduler=options.scheduler,
        credentials=client_credentials,
        devices=devices,
        sandbox=options.sandbox,
        lanes=lanes,
        spares=spares,
        node_id=options.node_id,
        labels=_labels(options.label),
        advertise=options.advertise,
        drain_seconds=options.drain_timeout,
        reference_seconds=options.reference_timeout,
        builders=max(1, len(os.sched_getaffinity(0)) // 2) if options.builders is None else options.builders,
        build_cache=options.build_cache or _cache_directory(environ),
        build_cache_bytes=options.build_cache_bytes,
        architecture=_architecture(names),
        exit_with_parent=options.exit_with_parent,
        log_level=options.log_level,
    )


def _cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the default build cache, by the rule of the XDG base directories."""
    home = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or "/var/cache", ".cache"))
    return Path(home, "kerneldyno", "builds")


def _architecture(names: Sequence[str]) -> str:
    """Return the architectures of GPUs as in TORCH_CUDA_ARCH_LIST. The suffix of Hopper allows all its instructions."""
    found = sorted(nvml.compute_capabilities(names)) if names else []
    return ";".join(f"{major}.{minor}{'a' if major == 9 else ''}" for major, minor in found)


def _driver_name(device: str, environ: Mapping[str, str]) -> str:
    """Return the driver's name of a device: its index, or its entry in CUDA_VISIBLE_DEVICES."""
    index = device.partition(":")[2]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return index if visible is None else visible.split(",")[int(index)].strip()


def _cuda_lanes(cores: int, memory: int | None) -> int:
    """Return how many candidates a GPU judges at once.

    Args:
        cores: The GPU's share of the processor cores.
        memory: Its memory in bytes, or None if unknown.
    """
    lanes = min(_MAX_CUDA_LANES, max(2, cores // 2))
    return lanes if memory is None else min(lanes, max(1, memory // _LANE_BYTES))


def _labels(texts: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key or not text.isprintable():
            raise SettingsError(f"--label {text!r} is invalid: use KEY=VALUE in printable characters")
        if max(len(key), len(value)) > MAX_LABEL_CHARS:
            raise SettingsError(f"--label {key[:60]}: key and value may have at most {MAX_LABEL_CHARS} characters each")
        if key in labels:
            raise SettingsError(f"--label {key} is given twice")
        labels[key] = value
    if len(labels) > MAX_LABELS:
        raise SettingsError(f"--label is given {len(labels)} times; a node has at most {MAX_LABELS} labels")
    return labels


def find_devices(wanted: str, environ: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """Return the devices that an option names.

    Args:
        wanted: "auto", "cpu", "cuda", or a list such as "cuda:0,cuda:1". CUDA numbers the devices
            in CUDA_VISIBLE_DEVICES from 0, so "cuda:0" is the first of them.
        environ: Environment variables.
        root: The root of the file system.

    Raises:
        SettingsError: A device is not visible, or `wanted` is malformed.
    """
    if wanted in ("cpu", "cpu:0"):
        return ("cpu:0",)
    visible = tuple(f"cuda:{index}" for index in range(_visible_gpus(environ, root)))
    if wanted == "auto":
        return visible or ("cpu:0",)
    if wanted == "cuda" and visible:
        return visible
    chosen = tuple(dict.fromkeys(name.strip() for name in wanted.split(",")))
    if wanted == "cuda" or not all(re.fullmatch(r"cuda:\d+", name) for name in chosen):
        found = "no NVIDIA GPU is visible" if wanted == "cuda" else "use auto, cpu, cuda, or cuda:0,cuda:1,..."
        raise SettingsError(f"--devices {wanted}: {found}")
    if missing := [name for name in chosen if name not in visible]:
        raise SettingsError(f"--devices {wanted}: not visible: {', '.join(missing)}; found {len(visible)} GPUs")
    return chosen


def _visible_gpus(environ: Mapping[str, str], root: Path) -> int:
    # In a container /proc may list all GPUs of the host, but only the container's GPUs have a device node. Nodes appear
    # when the driver is first used, so if there are none, the list in /proc decides.
    nodes = [path for path in root.glob("dev/nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    count = len(nodes) or len(list(root.glob("proc/driver/nvidia/gpus/*")))
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return count
    usable = 0
    for entry in chosen.split(","):  # CUDA ignores the first unknown entry and all after it
        known = int(entry) < count if entry.strip().isdigit() else entry.strip().startswith(("GPU-", "MIG-"))
        if not known:
            break
        usable += 1
    return min(usable, count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kerneldyno.evaluator", description="Evaluate candidates on the devices of this machine."
    )
    add = parser.add_argument
    add("--listen", default="127.0.0.1:50052", metavar="HOST:PORT", help="where to serve gRPC; port 0: any free port")
    add("--metrics", default="127.0.0.1:9465", metavar="HOST:PORT", help='where to serve Prometheus, or "off"')
    add(
        "--scheduler",
        metavar="HOST:PORT[,HOST:PORT]",
        help="scheduler to register with, or several of which one serves; without it the node serves alone",
    )
    add("--scheduler-tls-ca", metavar="FILE", help='CA of the scheduler certificate, or "public"; turns on TLS')
    add("--scheduler-tls-cert", metavar="FILE", help="this node's certificate, for a scheduler that asks for one")
    add("--scheduler-tls-key", metavar="FILE", help="private key of this node's certificate")
    add("--token-file", metavar="FILE", help="this node's token for the scheduler (KERNELDYNO_TOKEN)")
    add("--devices", default="auto", help="auto (all GPUs, or the CPU), cpu, cuda, or a list such as cuda:0,cuda:1")
    add("--sandbox", choices=("auto", "require", "off"), default="auto", help="require: refuse to serve without it")
    add("--lanes", type=int, help="candidates at once on each device (derived from cores and device memory)")
    add("--spares", type=int, help="warm runners that each device keeps ready (the lanes, at most 8)")
    add("--node-id", default=socket.gethostname()[:100], help="stable name of this node (the host's name)")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="label that requests can ask for; repeatable")
    add("--advertise", metavar="HOST:PORT", help='address for others (where the node listens), or "off"')
    add("--drain-timeout", type=float, default=60.0, metavar="SECONDS", help="limit for running work at SIGTERM")
    add("--reference-timeout", type=float, default=120.0, metavar="SECONDS", help="limit for one reference")
    add("--builders", type=int, metavar="N", help="candidates built at once; 0: lanes build (half of the cores)")
    add("--build-cache", type=Path, metavar="DIR", help="where built libraries are kept (~/.cache/kerneldyno/builds)")
    add("--build-cache-bytes", type=int, default=4 << 30, metavar="N", help="size of the build cache (4 GiB)")
    security.add_options(parser)
    add("--exit-with-parent", action="store_true", help="stop when the parent process ends")
    add("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    return parser
