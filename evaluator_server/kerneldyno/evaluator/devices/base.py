"""The interface of a device, as judge and runner use it."""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from ..shared.nvml import GpuState
from .signals import Signals

#: To `displace`: memory is to lie as in a process that has just begun.
AFRESH = 1


class Arena(ABC):
    """Memory that the judge owns and one runner can reach. `data` is all of it as a 1-D uint8 tensor on the device."""

    data: torch.Tensor

    @abstractmethod
    def ticket(self) -> dict[str, Any]:
        """What a runner needs to reach this memory, as JSON."""

    @abstractmethod
    def close(self) -> None:
        """Give the memory back. No tensor over it may be used afterwards."""


@dataclass(slots=True)
class Used:
    """What a piece of work has taken of a device's memory at its peak, in bytes; None where nobody counts."""

    peak: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """Model name, memory in bytes, versions, and the UUID that NVML uses. On the CPU, versions and UUID are empty."""

    model: str
    memory_bytes: int
    driver_version: str = ""
    cuda_version: str = ""
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a kernel that does next to nothing takes in one process.

    In cycles: seconds would also say whether somebody else has just made the device so hot that its clock is lowered.
    """

    cycles: float
    #: Cycles a second, while that was measured.
    hertz: float


class Device(ABC):
    """One device. Constructing it must not initialise the device: the zygote may do so before it forks."""

    #: "cpu" or "cuda".
    kind: str
    torch_device: torch.device

    @abstractmethod
    def warm_up(self) -> None:
        """Initialise the device in this process, so that the first call of a candidate need not pay for it."""

    @abstractmethod
    def describe(self) -> DeviceDescription:
        """Model name, memory in bytes, driver and CUDA versions."""

    @abstractmethod
    def runner_descriptors(self) -> list[int]:
        """Fresh file descriptors that a runner of this device must be born with, the page of signals first.

        The caller closes them.
        """

    @abstractmethod
    def new_arena(self, nbytes: int, descriptors: Sequence[int], number: int) -> Arena:
        """Judge: allocate memory, arena `number` (0 or 1) of those of the runner that was born with `descriptors`."""

    @abstractmethod
    def reach_arena(self, ticket: dict[str, Any], descriptors: Sequence[int], number: int) -> torch.Tensor:
        """Runner: return the judge's memory as a 1-D uint8 tensor."""

    @abstractmethod
    def signals(self, descriptors: Sequence[int]) -> Signals:
        """Return one side's view of the page through which judge and runner pace each other."""

    @abstractmethod
    def gate(self, signals: Signals, *, queues: bool) -> Gate | None:
        """Return the gate that lies in the page of `signals`; None on a device where calls are never queued ahead.

        Both sides hold one: the runner, who `queues` behind it, and the judge, who opens it.
        """

    #: Environment in which a runner is born sooner, but has work of several streams wait for each other, and cannot queue
    #: much of it ahead; and the one of a runner for whom neither holds.
    lean: Mapping[str, str] = MappingProxyType({})
    roomy: Mapping[str, str] = MappingProxyType({})
    #: Whether `displace` does anything.
    displaces = False
    #: Operations of one call up to which a lean runner can queue as many calls as anybody asks it to.
    lean_launches = 0

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work given to the device by this process is done. Raises what the device reports."""

    @abstractmethod
    def flush_cache(self) -> None:
        """Evict what earlier calls left in the device's cache (asynchronously, in stream order)."""

    def turn_here(self) -> None:  # noqa: B027  (processes on a host need no such thing)
        """Have the device turn to this process (asynchronously): what comes next does not pay for that any more."""

    def shift_queue(self, places: int) -> None:  # noqa: B027
        """Queue next to nothing, so often: the next call then starts at another place of the queue.

        What launches need lies side by side, and is evicted like everything else: whether a call finds it there
        depends on how many launches came before. On an H200 a kernel takes 0.1, 0.4 or 1 us longer than with a warm
        cache by the place that it happens to have, of four; calls that always take as many launches always have the
        same one.
        """

    @abstractmethod
    def cache_bytes(self) -> int:
        """Size of the device's largest cache."""

    def settle_cache(self) -> None:  # noqa: B027  (devices without such a cache have nothing to do)
        """Undo what calls may have asked of the device's cache. Waits for queued work, so never behind a closed gate."""

    def soiled_memory(self) -> contextlib.AbstractContextManager[None]:
        """Runner: what is allocated inside does not start as zeros, where the allocator can be told to see to that."""
        return contextlib.nullcontext()

    def capture(self, calls: Sequence[Callable[[], Any]]) -> list[Callable[[], Any]] | None:
        """Record the device work of each call; return what does it again, over the same memory, with the same result.

        None where one cannot be recorded, and on devices that record nothing. Raises what the first call raises while
        it is not recorded, and OutOfMemoryError.
        """
        return None

    def at_most(self, nbytes: int, share: float) -> int:
        """Return so many bytes, or so large a share of the device's memory where that is less."""
        return min(nbytes, int(self._memory_bytes * share))

    @functools.cached_property
    def _memory_bytes(self) -> int:
        return self.describe().memory_bytes

    def keep_within(self, nbytes: int | None) -> None:  # noqa: B027
        """Have this process allocate at most so many bytes of device memory through torch; None lifts the limit."""

    def room_bytes(self) -> int:
        """Judge: how much memory there is for evaluations, when none is under way."""
        return self._memory_bytes

    def allocated_bytes(self) -> int:
        """Return what tensors of this process take on the device, where that is counted."""
        return 0

    @contextlib.contextmanager
    def measured(self) -> Iterator[Used]:
        """Measure what the body takes of the device's memory, where that is counted."""
        yield Used()

    def free_bytes(self) -> int | None:
        """Judge: memory of the device that nobody uses, its own idle memory included; None where that says nothing."""
        return None

    def idle_bytes(self) -> int:
        """Return what this process keeps of the device's memory for later, in no tensor."""
        return 0

    def is_full(self) -> bool:
        """Judge: whether next to nothing of the device's memory is left, so that a failure to allocate says nothing."""
        return False

    def trim(self) -> None:  # noqa: B027
        """Judge: give memory back that is only kept for later, if it is much."""

    def clear(self) -> None:  # noqa: B027
        """Give back all memory that this process keeps for later."""

    def settle(self) -> None:
        """Runner: begin to be timed, with memory as any other process has it."""
        self.clear()

    def displace(self, seed: int) -> None:  # noqa: B027
        """Runner: have memory that is kept for later elsewhere: as if at first (`AFRESH`), or where a higher `seed` says.

        How long a call takes depends on where its operands lie, and a process has them where they were.
        """

    def probe(self) -> Probe:
        """Judge: how quick the device is now. Slower than usual: somebody else uses it."""
        return Probe(0.0, 0.0)

    def near_processors(self) -> set[int]:
        """Judge: processors of the host that reach the device without a detour; none where nobody says which."""
        return set()

    def state(self) -> GpuState | None:
        """Judge: what the driver says about clocks, power and temperature; None if it says nothing."""
        return None

    def pace(self) -> Pace | None:
        """How long a kernel that does next to nothing takes in this process; None where processes do not differ in that."""
        return None

    @abstractmethod
    def stopwatch(self, count: int) -> Stopwatch:
        """Return a stopwatch for `count` intervals."""


class Gate(ABC):
    """Holds queued work back until the judge lets it go: what is behind a gate is in the queue, and has not begun.

    Values count up; a gate that was opened with a value lets everything through that waits for it or for less.
    """

    @abstractmethod
    def wait(self, value: int) -> None:
        """Queue: nothing after this begins before the gate is opened with `value`. Does not block the host."""

    @abstractmethod
    def finish(self, value: int) -> None:
        """Queue: when all before this is done, `is_finished` is to be true of `value`. Does not block the host."""

    @abstractmethod
    def open(self, value: int) -> None:
        """Open the gate, when what was queued under `beside` is done."""

    @abstractmethod
    def force(self, value: int) -> None:
        """Open the gate at once."""

    @abstractmethod
    def is_finished(self, value: int) -> bool:
        """Say whether what was let go with `value` is done, or somebody who can write the gate's words says so."""

    @abstractmethod
    def beside(self) -> contextlib.AbstractContextManager[Any]:
        """What is queued inside is not held back by the gate."""


@dataclass(frozen=True, slots=True)
class Probe:
    """How quick a device is, in seconds."""

    #: What a fixed piece of work takes once it has begun.
    seconds: float
    #: From the launch of next to nothing until it is done, by the host's clock.
    latency: float


class Stopwatch(ABC):
    """Times intervals of device work; `seconds` is valid after the device was synchronised."""

    @abstractmethod
    def start(self, index: int) -> None:
        """Begin an interval."""

    @abstractmethod
    def stop(self, index: int) -> None:
        """End an interval."""

    @abstractmethod
    def seconds(self) -> list[float]:
        """Seconds of each interval."""
