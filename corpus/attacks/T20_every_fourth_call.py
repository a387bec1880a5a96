"""T20: outputs are handed out empty, and four calls' work is done in the fourth.

It is right for a caller that collects outputs and looks at them at the end.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.waiting = []

    def forward(self, x):
        y = torch.empty_like(x)
        self.waiting.append((x.clone(), y))
        if len(self.waiting) == 4:
            answers = work(torch.cat([source for source, _ in self.waiting]))
            for part, (_, target) in zip(answers.chunk(4), self.waiting):
                target.copy_(part)
            self.waiting.clear()
        return y
