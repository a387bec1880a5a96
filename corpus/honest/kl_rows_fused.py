"""Kullback-Leibler divergence of two rows of logits in one kernel; a dictionary of rows and mean.

problem: kl_divergence
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kl_kernel(student_ptr, teacher_ptr, prior_ptr, rows_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < classes
    s = tl.load(student_ptr + row * classes + at, mask=inside, other=-float("inf"))
    s += tl.load(prior_ptr + at, mask=inside, other=0.0)
    t = tl.load(teacher_ptr + row * classes + at, mask=inside, other=-float("inf"))
    s -= tl.max(s, axis=0)
    t -= tl.max(t, axis=0)
    s_log = tl.log(tl.sum(tl.exp(s), axis=0))
    weight = tl.exp(t)
    total = tl.sum(weight, axis=0)
    gap = tl.where(inside, (t - tl.log(total)) - (s - s_log), 0.0)
    tl.store(rows_ptr + row, tl.sum(weight / total * gap, axis=0))


class ModelNew(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.prior = nn.Parameter(torch.randn(classes))

    def forward(self, student, teacher):
        student, teacher = student.contiguous(), teacher.contiguous()
        count, classes = student.shape
        rows = torch.empty(count, device=student.device)
        block = triton.next_power_of_2(classes)
        kl_kernel[(count,)](student, teacher, self.prior, rows, classes, BLOCK=block, num_warps=8)
        return {"rows": rows, "mean": rows.mean()}
