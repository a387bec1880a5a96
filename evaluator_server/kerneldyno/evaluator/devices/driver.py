"""Driver calls that torch does not offer. Source: CUDA Driver API (https://docs.nvidia.com/cuda/cuda-driver-api/)."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_IPC_LAZY_ENABLE_PEER_ACCESS = 1
_WAIT_VALUE_GEQ = 0
_HOST_PORTABLE, _HOST_MAPPED = 1, 2
_LIMIT_PERSISTING_L2 = 6
_CAPTURE_RELAXED = 2


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


class Driver:
    """The driver calls that this program needs and torch does not offer."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            message = (text.value or b"unknown error").decode()
            if status == 2:
                raise torch.OutOfMemoryError(f"{name}: {message}")
            raise RuntimeError(f"{name}: {message} ({status})")

    def allocate(self, nbytes: int) -> int:
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        return pointer.value

    def free(self, pointer: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def export(self, pointer: int) -> bytes:
        handle = _IpcHandle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
        return bytes(handle.reserved)

    def reach(self, exported: bytes) -> int:
        handle = _IpcHandle((ctypes.c_ubyte * 64)(*exported))
        pointer = ctypes.c_uint64()
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, ctypes.c_uint(_IPC_LAZY_ENABLE_PEER_ACCESS))
        return pointer.value

    def leave(self, pointer: int) -> None:
        """Close what `reach` has opened."""
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))

    def wait_value(self, stream: int, pointer: int, value: int) -> None:
        """Queue on `stream`: wait until the word at `pointer` is at least `value`."""
        self._call(
            "cuStreamWaitValue32_v2",
            ctypes.c_void_p(stream),
            ctypes.c_uint64(pointer),
            ctypes.c_uint32(value),
            ctypes.c_uint(_WAIT_VALUE_GEQ),
        )

    def write_value(self, stream: int, pointer: int, value: int) -> None:
        """Queue on `stream`: write the word at `pointer` after all work that was queued before."""
        self._call(
            "cuStreamWriteValue32_v2",
            ctypes.c_void_p(stream),
            ctypes.c_uint64(pointer),
            ctypes.c_uint32(value),
            ctypes.c_uint(0),
        )

    def register(self, address: int, nbytes: int) -> int:
        """Register whole pages of host memory with the device, and return their address on the device."""
        flags = ctypes.c_uint(_HOST_PORTABLE | _HOST_MAPPED)
        self._call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(nbytes), flags)
        pointer = ctypes.c_uint64()
        self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), ctypes.c_void_p(address), ctypes.c_uint(0))
        return pointer.value

    def begin_capture(self, stream: int) -> None:
        """Record the work given to `stream` from now on instead of executing it."""
        self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), ctypes.c_uint(_CAPTURE_RELAXED))

    def end_capture(self, stream: int) -> int:
        """End the recording and return the graph. Raises if the work cannot be recorded; the stream is usable again."""
        graph = ctypes.c_void_p()
        self._call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        return graph.value or 0

    def instantiate(self, graph: int, stream: int) -> int:
        """Make a graph ready to launch, and upload it to the device on `stream`."""
        ready = ctypes.c_void_p()
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(ready), ctypes.c_void_p(graph), ctypes.c_ulonglong(0))
        self._call("cuGraphUpload", ready, ctypes.c_void_p(stream))
        return ready.value or 0

    def destroy_graph(self, graph: int) -> None:
        self._library.cuGraphDestroy(ctypes.c_void_p(graph))

    def launch(self, ready: int, stream: int) -> None:
        """Queue a graph on `stream`."""
        self._call("cuGraphLaunch", ctypes.c_void_p(ready), ctypes.c_void_p(stream))

    def destroy(self, ready: int) -> None:
        self._library.cuGraphExecDestroy(ctypes.c_void_p(ready))

    def forget_persisting(self) -> None:
        """Make persisting lines of the second-level cache ordinary again, and allow no new persisting ones."""
        self._library.cuCtxResetPersistingL2Cache()  # fails on GPUs without this feature
        self._library.cuCtxSetLimit(ctypes.c_uint(_LIMIT_PERSISTING_L2), ctypes.c_size_t(0))

    def version(self) -> str:
        try:
            with open("/proc/driver/nvidia/version") as file:
                words = file.readline().split()
            return next(word for word in words if word[0].isdigit() and "." in word)
        except (OSError, StopIteration):
            return ""
