"""What a node is: its devices, its software, its sandbox, its back ends. Read by the scheduler and by direct callers.

The judges describe their devices when they become ready (`Cell.description`); this file puts the descriptions together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kerneldyno.rpc.profiles import asks_for_profile
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2 as service_pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from . import registry
from .builders import Builders
from .cell import Cell


class NodeDescription:
    """The description of one node. Each device must have been ready once before a method is called."""

    def __init__(
        self,
        node_id: str,
        cells: Sequence[Cell],
        labels: Mapping[str, str] | None = None,
        builders: Builders | None = None,
    ) -> None:
        self.node_id = node_id
        self.labels = dict(labels or {})
        self.backends, self.toolkits = registry.backend_names(), registry.toolkit_names()
        self._cells = cells
        self._builders = builders

    @property
    def lanes(self) -> int:
        """Return the number of lanes of all devices."""
        return sum(cell.settings.lanes for cell in self._cells)

    @property
    def builders(self) -> int:
        """Return how many candidates are built at once; 0 if lanes build."""
        return self._builders.places if self._builders is not None else 0

    def devices(self) -> list[fleet_pb.Device]:
        """Return the devices in their present state."""
        found = []
        for cell in self._cells:
            assert cell.description is not None
            device = fleet_pb.Device()
            device.CopyFrom(cell.description.device)
            device.name, device.lanes, device.ready = cell.name, cell.settings.lanes, cell.ready
            found.append(device)
        return found

    @property
    def profiling(self) -> bool:
        """Return True if a device can report which kernels ran: GPUs can."""
        return any(device.kind == "cuda" for device in self.devices())

    def lack(self, request: pb.EvalRequest) -> str:
        """Return what an effective request needs and this node does not have, in a sentence, or ""."""
        if request.backend not in self.backends:
            return f"this node does not have the backend {request.backend!r}"
        if request.toolkit not in self.toolkits:
            return f"this node does not have the toolkit {request.toolkit!r}"
        if asks_for_profile(request) and not self.profiling:
            return "no device of this node can profile"
        return ""

    def environment(self) -> pb.Environment:
        """Return the node's software and hardware, without a device."""
        assert self._cells[0].description is not None
        environment = pb.Environment()
        environment.CopyFrom(self._cells[0].description.environment)
        environment.device = environment.device_model = ""
        environment.node_id = self.node_id
        return environment

    def sandbox_layers(self) -> list[fleet_pb.SandboxLayer]:
        """Return the layers of the sandbox. A layer is active if it is active on every device."""
        layers: dict[str, fleet_pb.SandboxLayer] = {}
        for cell in self._cells:
            for layer in cell.description.sandbox_layers if cell.description is not None else ():
                if layer.name not in layers or not layer.active:
                    layers[layer.name] = layer
        return list(layers.values())

    def capabilities(self) -> service_pb.EvaluatorServiceGetCapabilitiesResponse:
        """Return the answer to GetCapabilities."""
        known = [cell.description for cell in self._cells if cell.description is not None]
        return service_pb.EvaluatorServiceGetCapabilitiesResponse(
            node_id=self.node_id,
            devices=self.devices(),
            backends=self.backends,
            toolkits=self.toolkits,
            environment=self.environment(),
            sandbox_layers=self.sandbox_layers(),
            candidate_memory_bytes=min(description.candidate_memory_bytes for description in known),
            spare_runners=min(description.spare_runners for description in known),
            profiling=self.profiling,
            builders=self.builders,
        )
