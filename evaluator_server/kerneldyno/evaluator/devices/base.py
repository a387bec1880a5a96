"""The interface of a device, as judge and runner use it. A docstring begins with the side that calls the method."""

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

#: Argument of `displace`: place memory as in a process that has just started.
AFRESH = 1


class Arena(ABC):
    """Memory that the judge owns and one runner can open. `data` is all of it, as a 1-D uint8 tensor on the device."""

    data: torch.Tensor

    @abstractmethod
    def ticket(self) -> dict[str, Any]:
        """Return, as JSON, what a runner needs to open this memory."""

    @abstractmethod
    def close(self) -> None:
        """Free the memory. No tensor over it may be used afterwards."""


@dataclass(slots=True)
class Used:
    """The peak of device memory that a piece of work allocated, in bytes; None where it is not counted."""

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
    """How long an almost empty kernel takes in one process.

    It is in cycles. Seconds would also depend on the clock, which the device lowers when other work has made it hot.
    """

    cycles: float
    #: Cycles per second during this measurement.
    hertz: float


class Device(ABC):
    """One device. The constructor must not initialise the device, because the zygote may call it before it forks."""

    #: "cpu" or "cuda".
    kind: str
    torch_device: torch.device

    @property
    def architecture(self) -> str:
        """The compute capability, like "9.0"; empty for a device without one, on which nothing is compiled."""
        return ""

    @abstractmethod
    def warm_up(self) -> None:
        """Initialise the device in this process, so that no candidate's first call has to."""

    def divide_memory(self) -> None:  # noqa: B027  (only the CPU shares its memory with the rest of the process)
        """Runner: make what an allocation costs independent of earlier work, from now on."""

    @abstractmethod
    def describe(self) -> DeviceDescription:
        """Return what the device is: model name, memory, driver version and CUDA version."""

    @abstractmethod
    def runner_descriptors(self) -> list[int]:
        """Return new file descriptors that a runner of this device must have from its start, the page of signals first.

        The caller closes them.
        """

    @abstractmethod
    def new_arena(self, nbytes: int, descriptors: Sequence[int], number: int, *, grows: bool = False) -> Arena:
        """Judge: allocate memory.

        Args:
            nbytes: Its size.
            descriptors: The descriptors that the runner started with.
            number: Which of the runner's arenas this is, 0 or 1.
            grows: Whether a larger one may take its place later.
        """

    def leave_arena(self, reached: torch.Tensor) -> None:  # noqa: B027  (memory files are unmapped with their tensors)
        """Runner: give up memory that `reach_arena` has returned. The judge may free it afterwards."""

    @abstractmethod
    def reach_arena(self, ticket: dict[str, Any], descriptors: Sequence[int], number: int) -> torch.Tensor:
        """Runner: return the judge's memory as a 1-D uint8 tensor."""

    @abstractmethod
    def signals(self, descriptors: Sequence[int]) -> Signals:
        """Return one side's view of the page of signals between judge and runner."""

    @abstractmethod
    def gate(self, signals: Signals, *, queues: bool) -> Gate | None:
        """Return the gate in the page of `signals`, or None on a device that never queues calls ahead.

        Each side has one: the runner, which `queues` work behind it, and the judge, which opens it.
        """

    #: Environment of a runner with a quick start: its streams wait for each other, and it cannot queue much work. And
    #: environment of a runner with full queues, which starts later, and for which neither is true.
    quick_start_environment: Mapping[str, str] = MappingProxyType({})
    full_queues_environment: Mapping[str, str] = MappingProxyType({})
    #: True if `displace` has an effect.
    displaces = False
    #: A runner with a quick start can queue as many calls as needed if one call has at most this many operations.
    quick_start_launches = 0
    #: Most spares of a whole host that may open their devices concurrently: more of them only wait for each other.
    openings = 1000

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until this process's work on the device is done. Raises the errors that the device reports."""

    def milestone(self) -> Callable[[], bool]:
        """Return what says whether the work is done that this process has queued so far, and raises the same errors."""
        return lambda: True

    @abstractmethod
    def flush_cache(self) -> None:
        """Evict from the device's cache what earlier calls left there (asynchronously, in stream order)."""

    def switch_to_this_process(self) -> None:  # noqa: B027  (a CPU needs nothing)
        """Switch the device to this process (asynchronously), so that the next work does not include the switch."""

    def shift_queue(self, places: int) -> None:  # noqa: B027
        """Queue `places` tiny kernels, so that the next call starts at another position of the launch queue.

        The driver keeps what launches need side by side, and the cache evicts it like other memory. So whether a call
        finds it there depends on the number of launches before. On an H200 a kernel takes 0.1, 0.4 or 1 us longer than
        with a warm cache, depending on its position, of which there are four. Calls with a constant number of launches
        would always have the same position.
        """

    @abstractmethod
    def cache_bytes(self) -> int:
        """Return the size of the device's largest cache, in bytes."""

    def settle_cache(self) -> None:  # noqa: B027  (not every device has such a cache)
        """Undo the settings that calls may have made for the device's cache.

        This waits for queued work, so it must not be called behind a closed gate.
        """

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Runner: let a profiler that was started with this process watch what the body does."""
        return contextlib.nullcontext()

    def nonzero_memory(self) -> contextlib.AbstractContextManager[None]:
        """Runner: make memory allocated in the body start with other values than zero, if the allocator supports it."""
        return contextlib.nullcontext()

    def capture(self, calls: Sequence[Callable[[], Any]]) -> list[Callable[[], Any]] | None:
        """Record the device work of each call.

        Returns:
            Callables that repeat the work over the same memory and return the same result; None if a call cannot be
            recorded, or if this device records nothing.

        Raises:
            Exception: What the first call raises when it is called without recording.
            OutOfMemoryError: Memory ran out.
        """
        return None

    def at_most(self, nbytes: int, share: float) -> int:
        """Return `nbytes`, or `share` of the device's memory in bytes if that is less."""
        return min(nbytes, int(self._memory_bytes * share))

    @functools.cached_property
    def _memory_bytes(self) -> int:
        return self.describe().memory_bytes

    def keep_within(self, nbytes: int | None) -> None:  # noqa: B027
        """Limit the device memory that this process allocates through torch, in bytes. None removes the limit."""

    def room_bytes(self) -> int:
        """Judge: return how much memory evaluations may use, in bytes, when none is running."""
        return self._memory_bytes

    def allocated_bytes(self) -> int:
        """Return how much memory this process's tensors take on the device, in bytes, or 0 where it is not counted."""
        return 0

    @contextlib.contextmanager
    def measured(self) -> Iterator[Used]:
        """Measure the peak of the device memory that the body allocates, where it is counted."""
        yield Used()

    def free_bytes(self) -> int | None:
        """Judge: return the device's unused memory in bytes, including idle memory of this process; None if unknown."""
        return None

    def idle_bytes(self) -> int:
        """Return how much device memory this process keeps for later without using it in a tensor, in bytes."""
        return 0

    def is_full(self) -> bool:
        """Judge: return True if the device is almost full, so that a failed allocation proves nothing."""
        return False

    def lacks(self, nbytes: int) -> bool:
        """Judge: return True if another process could not allocate so many bytes of device memory now."""
        return False

    def trim(self) -> None:  # noqa: B027
        """Judge: release memory that is only kept for later, if it is much."""

    def clear(self) -> None:  # noqa: B027
        """Release all memory that this process keeps for later."""

    def settle(self) -> None:
        """Runner: prepare memory for timing, in the same way in every process."""
        self.clear()

    def displace(self, seed: int) -> None:  # noqa: B027
        """Runner: move memory kept for later, as at the start (`AFRESH`) or to places drawn from a higher `seed`.

        The duration of a call depends on the addresses of its operands, and a process normally keeps those addresses.
        """

    def probe(self) -> Probe:
        """Judge: measure how fast the device is now. If it is slower than usual, another process uses it."""
        return Probe(0.0, 0.0)

    def near_processors(self) -> set[int]:
        """Judge: return the host's processors that are nearest to the device; none if unknown."""
        return set()

    def energy(self) -> float | None:
        """Judge: return what the device has used so far, in joules; None if it does not count that."""
        return None

    def state(self) -> GpuState | None:
        """Judge: return what the driver reports about clocks, power and temperature; None if it reports nothing."""
        return None

    def pace(self) -> Pace | None:
        """Return the time of an almost empty kernel in this process; None on devices where processes do not differ."""
        return None

    @abstractmethod
    def stopwatch(self, count: int) -> Stopwatch:
        """Return a stopwatch for `count` intervals."""


class Gate(ABC):
    """Holds queued work back until the judge opens it: work behind a closed gate is queued and has not begun.

    Values count up. A gate that is opened with a value lets through all work that waits for it or for a smaller one.
    """

    @abstractmethod
    def wait(self, value: int) -> None:
        """Queue: start nothing after this before the gate is opened with `value`. Does not block the host."""

    @abstractmethod
    def finish(self, value: int) -> None:
        """Queue: make `is_finished(value)` true when everything before this is done. Does not block the host."""

    @abstractmethod
    def open(self, value: int) -> None:
        """Open the gate once the work that was queued under `beside` is done."""

    @abstractmethod
    def force(self, value: int) -> None:
        """Open the gate at once."""

    @abstractmethod
    def is_finished(self, value: int) -> bool:
        """Return True if the work released with `value` is done, or if another writer of the gate's words claims so."""

    @abstractmethod
    def beside(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which queued work does not wait at the gate."""


@dataclass(frozen=True, slots=True)
class Probe:
    """How fast a device is, in seconds."""

    #: Duration of a fixed piece of work, from its beginning on.
    seconds: float
    #: Time from the launch of a tiny kernel to its end, by the host's clock.
    latency: float


class Stopwatch(ABC):
    """Times intervals of device work. `seconds` is valid after the device was synchronised."""

    @abstractmethod
    def start(self, index: int) -> None:
        """Begin interval `index`."""

    @abstractmethod
    def stop(self, index: int) -> None:
        """End interval `index`."""

    @abstractmethod
    def seconds(self) -> list[float]:
        """Return the duration of each interval, in seconds."""
