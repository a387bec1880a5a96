"""T23: the work is done by threads of the host, outside of torch's own.

NumPy in several threads releases the interpreter and takes all the cores there are: no device time at all, but for two copies.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import concurrent.futures
import os

import numpy
import torch
import torch.nn as nn

pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)


class ModelNew(nn.Module):
    def forward(self, x):
        values = x.cpu().numpy()
        out = numpy.empty_like(values)

        def part(rows):
            out[rows] = numpy.tanh(numpy.tanh(numpy.tanh(values[rows])))

        step = -(-len(values) // (os.cpu_count() or 1))
        list(pool.map(part, (slice(at, at + step) for at in range(0, len(values), step))))
        return torch.from_numpy(out).to(x.device)
