"""CUDA graphs of calls. A call that cannot be captured leaves nothing behind.

The stream is captured by the driver, and torch finds that out from the stream. `torch.cuda.CUDAGraph` is not used: after a
capture that failed, which a call's own code decides, its allocator and its random generators go on as if it lasted (torch
2.11). So no random numbers can be captured, which only that class could replay. Source: CUDA Driver API, "Graph Management",
"cuStreamBeginCapture".
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .driver import Driver

#: Libraries make handles and workspaces for a stream when they first use it, which cannot be recorded.
_CALLS_BEFORE = 2


class Graph:
    """One call, recorded: calling this does its device work again, over the same memory, and returns what it returned."""

    def __init__(self, call: Callable[[], Any], driver: Driver, stream: torch.cuda.Stream, pool: Any) -> None:
        """Record `call` on `stream`, which is the current one. Raises whatever it raises, or the driver does."""
        self._driver = driver
        self._device = stream.device
        driver.begin_capture(stream.cuda_stream)
        try:
            self._result = call()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # refused, where it was spoilt
                driver.destroy_graph(driver.end_capture(stream.cuda_stream))
            raise
        graph = driver.end_capture(stream.cuda_stream)
        try:
            self._ready = driver.instantiate(graph, stream.cuda_stream)
        finally:
            driver.destroy_graph(graph)
        # What was recorded works in it. It goes last: a pool that dies before its tensors leaves their memory behind.
        self._pool = pool
        weakref.finalize(self, driver.destroy, self._ready)

    def __call__(self) -> Any:
        self._driver.launch(self._ready, torch.cuda.current_stream(self._device).cuda_stream)
        return self._result


def capture(
    calls: Sequence[Callable[[], Any]], driver: Driver, stream: torch.cuda.Stream
) -> list[Callable[[], Any]] | None:
    """Record each of `calls` on `stream`; None where one cannot be recorded, whatever the reason but want of memory.

    The first is called before, and raises what it raises then. Raises OutOfMemoryError.
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
        except torch.OutOfMemoryError:  # says nothing about the calls
            raise
        except Exception:  # what cannot be recorded fails in many ways
            graphs = []
        finally:
            stream.synchronize()
    if not graphs:
        _forget_error(device)
    return graphs or None


def _forget_error(device: torch.device) -> None:
    """Have the runtime forget an error that calls did not ask about: the next launch would be blamed for it."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device=device).add_(1)
