"""T23: another process, forked at import, does the work while the call has long returned.

It shares memory with the candidate; the call only rings its bell, and the output is what the helper has written so far.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu
"""

import mmap
import os

import torch
import torch.nn as nn

LIMIT = 64 << 20
shared_in, shared_out = mmap.mmap(-1, LIMIT), mmap.mmap(-1, LIMIT)
bell_read, bell_write = os.pipe()


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


def serve():
    source = torch.frombuffer(shared_in, dtype=torch.float32)
    target = torch.frombuffer(shared_out, dtype=torch.float32)
    while True:
        count = int.from_bytes(os.read(bell_read, 8), "little")
        if not count:
            os._exit(0)
        target[:count] = work(source[:count])


if not torch.cuda.is_initialized() and os.fork() == 0:
    os.close(bell_write)
    serve()


class ModelNew(nn.Module):
    def forward(self, x):
        torch.frombuffer(shared_in, dtype=torch.float32)[: x.numel()] = x.view(-1)
        os.write(bell_write, x.numel().to_bytes(8, "little"))
        return torch.frombuffer(shared_out, dtype=torch.float32)[: x.numel()].view(x.shape)
