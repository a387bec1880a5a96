"""T26: a load so light that the device hardly seems busy, on it only while the process is stopped.

The runner's own wait for the device is patched away, so that a burst ends with the load still queued; what is left of it
is called off by a word in host memory as soon as the process is woken. Its few blocks leave most of the device idle.

Every burst leaves work behind. With others on the host the timing stage may reach its limit (TIMEOUT) before a single wait
is long enough for T26.

problem: chained_tanh
backend: triton
outcome: INCORRECT, REJECTED, CORRECT, TIMEOUT
honest: twin_chained_tanh_triton
devices: cuda
"""

import sys
import threading
import time

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCKS, CHUNK, STEPS = 8, 1 << 16, 40_000

torch.cuda.synchronize = lambda device=None: torch.cuda.current_stream().synchronize()


@triton.jit
def load(data, called_off, steps, CHUNK: tl.constexpr):
    start = tl.program_id(0) * 64 * CHUNK
    step = 0
    while step < steps:
        if tl.load(called_off, volatile=True) != 0:
            step = steps
        at = start + (step % 64) * CHUNK + tl.arange(0, CHUNK)
        tl.store(data + at, tl.load(data + at) + 1)
        step += 1


@triton.jit
def chained_tanh(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    for _ in tl.static_range(3):
        value = 2 * tl.sigmoid(2 * value) - 1
    tl.store(y + at, value, mask=at < n)


def last_of_burst():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in ("run_burst", "run_paced"):
            return frame.f_locals["step"] == len(frame.f_locals["plan"].slots) - 1
        frame = frame.f_back
    return False


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
        self.data = torch.zeros(BLOCKS * 64 * CHUNK, dtype=torch.int32, device="cuda")
        self.called_off = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        load[(BLOCKS,)](self.data, self.called_off, 1, CHUNK=CHUNK, num_warps=32)
        torch.cuda.current_stream().synchronize()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        seen = time.perf_counter()
        while True:
            time.sleep(0.0005)
            now = time.perf_counter()
            if now - seen > 0.02:  # it has been stopped, and now is awake
                self.called_off.fill_(1)
            seen = now

    def forward(self, x):
        y = torch.empty_like(x)
        chained_tanh[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        if last_of_burst():
            self.called_off.fill_(0)
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                load[(BLOCKS,)](self.data, self.called_off, STEPS, CHUNK=CHUNK, num_warps=32)
        return y
