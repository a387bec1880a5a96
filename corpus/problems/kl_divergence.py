"""Kullback-Leibler divergence of two rows of logits, row by row, and its mean: a dictionary.

A prior of the model's own is added to the student, so that the divergence does not vanish for small logits.
"""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, CLASSES = (4096, 6000) if BIG else (8, 200)


class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.prior = nn.Parameter(torch.randn(classes))

    def forward(self, student, teacher):
        student = torch.log_softmax(student + self.prior, dim=-1)
        teacher = torch.log_softmax(teacher, dim=-1)
        rows = (teacher.exp() * (teacher - student)).sum(-1)
        return {"rows": rows, "mean": rows.mean()}


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randn(ROWS, CLASSES)]


def get_init_inputs():
    return [CLASSES]
