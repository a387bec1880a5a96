"""Kullback-Leibler divergence as torch.compile makes it, from the sum form of the formula.

problem: kl_divergence
backend: torch
outcome: CORRECT
devices: cuda
"""

import torch
from torch import nn


def divergence(student, teacher, prior):
    student = torch.log_softmax(student + prior, dim=-1)
    teacher = torch.log_softmax(teacher, dim=-1)
    rows = (teacher.exp() * (teacher - student)).sum(-1)
    return rows, rows.mean()


class ModelNew(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.prior = nn.Parameter(torch.randn(classes))
        self.divergence = torch.compile(divergence)

    def forward(self, student, teacher):
        rows, mean = self.divergence(student, teacher, self.prior)
        return {"rows": rows, "mean": mean}
