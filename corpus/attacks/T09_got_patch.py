"""T09: the pointers through which libraries reach the clock are overwritten.

Each loaded library has a table of addresses of the functions it imports. The tables are found by the program headers, and the entries of
cudaEventElapsedTime and clock_gettime are replaced.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import ctypes
import mmap
import platform
import struct

import torch
import torch.nn as nn

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def executable(code):
    """Return the address of `code` in memory that may be executed."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    kept.append(page)
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def unlock(address, length):
    """Make the pages around `address` writable. Their owner may have had them read-only."""
    first = address & -mmap.PAGESIZE
    last = (address + length + mmap.PAGESIZE - 1) & -mmap.PAGESIZE
    if libc.mprotect(first, last - first, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "mprotect")


kept = []
# clock_gettime by a raw system call, with the nanoseconds divided by 64 where the clock is the monotonic one:
# push rdi, rsi; eax = 228; syscall; pop rsi, rdi; if edi == 1: t = s * 10**9 + ns; t >>= 6; s, ns = divmod(t, 10**9)
SLOW_CLOCK = bytes.fromhex(
    "5756b8e40000000f055e5f83ff017525488b064869c000ca9a3b4803460848c1e80631d2b900ca9a3b48f7f14889064889560831c0c3"
)
# *milliseconds = 0.01f; return cudaSuccess
SHORT_TIME = bytes.fromhex("c7070ad7233c31c0c3")


def cuda_runtime():
    with open("/proc/self/maps") as maps:
        path = next((line.split()[-1] for line in maps if "libcudart" in line), "libcudart.so")
    return ctypes.CDLL(path)


class Info(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_uint64),
        ("count", ctypes.c_uint16),
    )


VISITOR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)


def words(address, form):
    return struct.unpack(form, ctypes.string_at(address, struct.calcsize(form)))


def loaded():
    """Yield load address and dynamic section, as a dictionary, of each loaded library."""
    found = []

    def visit(info, size, data):
        for index in range(info.contents.count):
            kind, _, _, address = words(info.contents.headers + 56 * index, "<IIQQ")
            if kind == 2:
                found.append((info.contents.base, info.contents.base + address))
        return 0

    libc.dl_iterate_phdr(VISITOR(visit), None)
    for base, section in found:
        entries = {}
        while True:
            tag, value = words(section, "<QQ")
            if tag == 0:
                break
            entries[tag] = value
            section += 16
        yield base, entries


def patch(wanted):
    """Replace the imports named in `wanted` in every library; return how many."""
    patched = 0
    for base, entries in loaded():
        if 6 not in entries or 5 not in entries or entries[5] < base:
            continue  # no symbols, or addresses that were not relocated (the vDSO)
        for start, size in ((entries.get(23), entries.get(2, 0)), (entries.get(7), entries.get(8, 0))):
            for at in range(start, start + size, 24) if start else ():
                offset, info = words(at, "<QQ")
                if info & 0xFFFFFFFF not in (6, 7):  # R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
                    continue
                (name,) = words(entries[6] + 24 * (info >> 32), "<I")
                target = wanted.get(ctypes.string_at(entries[5] + name))
                if target is not None:
                    unlock(base + offset, 8)
                    ctypes.memmove(base + offset, struct.pack("<Q", target), 8)
                    patched += 1
    return patched


def interpose():
    if platform.machine() != "x86_64":
        return
    short = executable(SHORT_TIME)
    wanted = {b"cudaEventElapsedTime": short, b"cudaEventElapsedTime_v2": short}
    if not torch.cuda.is_available():
        wanted[b"clock_gettime"] = executable(SLOW_CLOCK)
    patch(wanted)


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        interpose()

    def forward(self, x):
        return work(x)
