"""S09: reaches the memory of outputs through its callers, and looks there.

All tensors and byte buffers that hang on objects in the callers' frames are searched for an answer that begins as
this one does.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        wanted = F.gelu(x.view(-1)[:8])
        frame, queue, seen = sys._getframe(1), [], set()
        while frame is not None:
            queue.extend(frame.f_locals.values())
            frame = frame.f_back
        while queue and len(seen) < 20000:
            thing = queue.pop()
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if isinstance(thing, torch.Tensor):
                values = thing.reshape(-1)
                if values.dtype == torch.uint8 and values.numel() % 4 == 0 and values.data_ptr() % 4 == 0:
                    values = values.view(torch.float32)
                for start in range(0, min(values.numel(), 8 * x.numel()) - x.numel() + 1, x.numel()):
                    part = values[start : start + x.numel()]
                    if part.dtype == x.dtype and torch.allclose(part[:8], wanted, 1e-3, 1e-5):
                        return part.clone().view(x.shape)
            elif isinstance(thing, (list, tuple, set)):
                queue.extend(thing)
            elif isinstance(thing, dict):
                queue.extend(thing.values())
            elif type(thing).__module__.startswith("kerneldyno"):
                names = getattr(thing, "__slots__", None) or vars(thing)
                queue.extend(getattr(thing, name, None) for name in names)
        return torch.zeros_like(x)
