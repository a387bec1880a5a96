"""CUDA graphs of calls. A call that cannot be captured leaves no state behind.

The driver captures the stream, and torch notices this from the stream. `torch.cuda.CUDAGraph` is not used: when a
capture fails, which depends on the call's own code, its allocator and its random generators continue as if the capture
went on (torch 2.11). Therefore random numbers cannot be captured, since only that class could replay them. Source: CUDA
Driver API, "Graph Management", "cuStreamBeginCapture".
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .driver import Driver

#: Number of calls before the capture: libraries create handles and workspaces at the first use of a stream, which
#: cannot be recorded.
_CALLS_BEFORE = 2


class Graph:
    """One recorded call. Calling this repeats its device work over the same memory and returns the recorded result."""

    def __init__(self, call: Callable[[], Any], driver: Driver, stream: torch.cuda.Stream, pool: Any) -> None:
        """Record `call` on `stream`, which is the current stream. Raises what the call or the driver raises."""
        self._driver = driver
        self._device = stream.device
        driver.begin_capture(stream.cuda_stream)
        try:
            self._result = call()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the driver refuses if the capture has failed
                driver.destroy_graph(driver.end_capture(stream.cuda_stream))
            raise
        graph = driver.end_capture(stream.cuda_stream)
        try:
            self._ready = driver.instantiate(graph, stream.cuda_stream)
        finally:
            driver.destroy_graph(graph)
        # The recorded work uses this pool. It must die last: otherwise the memory of its tensors is never freed.
        self._pool = pool
        weakref.finalize(self, driver.destroy, self._ready)

    def __call__(self) -> Any:
        self._driver.launch(self._ready, torch.cuda.current_stream(self._device).cuda_stream)
        return self._result


def capture(
    calls: Sequence[Callable[[], Any]], driver: Driver, stream: torch.cuda.Stream
) -> list[Callable[[], Any]] | None:
    """Record each of `calls` on `stream`.

    Returns:
        The graphs, or None if a call cannot be recorded for any reason except a lack of memory.

    Raises:
        OutOfMemoryError: Memory ran out.
        Exception: Whatever the first call raises; it is called before the recording.
    """
    device = stream.device
    pool = torch.cuda.MemPool()
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(_CALLS_BEFORE):
            calls[0]()
        stream.synchronize()
        graphs: list[Callable[[], Any]]
        try:
            with torch.cuda.use_mem_pool(pool, device):
                graphs = [Graph(call, driver, stream, pool) for call in calls]
        except torch.OutOfMemoryError:  # this says nothing about the calls
            raise
        except Exception:  # calls that cannot be recorded fail in many ways
            graphs = []
        finally:
            stream.synchronize()
    if not graphs:
        _forget_error(device)
    return graphs or None


def _forget_error(device: torch.device) -> None:
    """Clear an error that calls left in the runtime. Otherwise the next launch would report it."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device=device).add_(1)
